package drivertest

import (
	"testing"

	"github.com/seaofsimulation/sos/internal/driver"
)

func testUnknown(t *testing.T, s *suite) {
	id := newID()
	s.stop(t, id)
	s.remove(t, id)
	s.refused(t, id)
	if e := s.wait(t, id); e.Known {
		t.Errorf("wait of an unknown sandbox gives a known end: %+v", e)
	}
	if len(s.list(t)) != 0 {
		t.Error("asking for an unknown sandbox made one")
	}
}

func testStopTwice(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	s.stop(t, id)
	s.stop(t, id)
	s.want(t, id, false, true)
}

func testStopEndsEverything(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	sh := s.connect(t, id)
	// Children that ignore every signal that can be ignored, and one in the
	// background that outlives its shell.
	sh.Begin(t, "trap '' HUP INT TERM QUIT; sleep 1000")
	sh.Begin(t, "sleep 1000 & sleep 1000 & wait")
	s.stop(t, id)
	s.refused(t, id)
	if e := s.wait(t, id); !e.Known || !e.Stopped {
		t.Errorf("the end of a stopped sandbox is %+v", e)
	}
	s.start(t, id)
	s.connect(t, id).Must(t, "echo fresh")
}

func testRemoveRunning(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	s.remove(t, id)
	s.remove(t, id)
	if _, there := s.list(t)[id]; there {
		t.Error("a removed sandbox is in the list")
	}
	s.refused(t, id)
}

func testRemoveStopped(t *testing.T, s *suite) {
	id, other := newID(), newID()
	s.start(t, id)
	s.start(t, other)
	s.stop(t, id)
	s.remove(t, id)
	l := s.list(t)
	if _, there := l[id]; there {
		t.Error("a removed sandbox is in the list")
	}
	if !l[other].Running {
		t.Error("removing one sandbox ended another")
	}
}

func testRemoveForgets(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	s.connect(t, id).Must(t, "echo old > /old")
	s.remove(t, id)
	s.start(t, id)
	if out, code := s.connect(t, id).Run(t, "cat /old"); code == 0 {
		t.Errorf("a file came back after remove: %q", out)
	}
}

func testList(t *testing.T, s *suite) {
	if n := len(s.list(t)); n != 0 {
		t.Fatalf("a new driver lists %d sandboxes", n)
	}
	running, stopped, removed := newID(), newID(), newID()
	for _, id := range []string{running, stopped, removed} {
		s.start(t, id)
	}
	s.stop(t, stopped)
	s.remove(t, removed)
	if n := len(s.list(t)); n != 2 {
		t.Errorf("list has %d sandboxes; want 2", n)
	}
	s.want(t, running, true, true)
	s.want(t, stopped, false, true)
	s.want(t, removed, false, false)
}

func testGuestKilled(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	s.connect(t, id).Must(t, "echo kept > /kept")
	s.env.KillGuest(t, s.d, id)
	e := s.wait(t, id)
	if !e.Known || e.Signal != 9 || e.Stopped {
		t.Errorf("the end of a killed guest is %+v", e)
	}
	s.want(t, id, false, true)
	s.refused(t, id)
	s.start(t, id)
	if out := s.connect(t, id).Must(t, "cat /kept"); out != "kept\n" {
		t.Errorf("the file holds %q after the guest's death", out)
	}
}

func testReopen(t *testing.T, s *suite) {
	if s.env.Reopen == nil {
		t.Skip("this driver has no life beyond its process")
	}
	running, stopped := newID(), newID()
	s.start(t, running)
	s.start(t, stopped)
	s.connect(t, stopped).Must(t, "echo kept > /kept")
	s.stop(t, stopped)
	sh := s.connect(t, running)
	sh.Must(t, "echo alive > /state")

	s.d = s.env.Reopen(t, s.d)
	s.want(t, running, true, true)
	s.want(t, stopped, false, true)
	if out := s.connect(t, running).Must(t, "cat /state"); out != "alive\n" {
		t.Errorf("the adopted sandbox's file holds %q", out)
	}
	if e := s.wait(t, stopped); !e.Known || !e.Stopped {
		t.Errorf("the end of a sandbox stopped by the former driver is %+v", e)
	}
	ends := make(chan driver.Exit, 1)
	go func() { e, _ := s.d.Wait(s.ctx, running); ends <- e }()
	s.env.KillGuest(t, s.d, running)
	if e := <-ends; !e.Known || e.Signal != 9 {
		t.Errorf("the end of an adopted guest is %+v", e)
	}
	s.start(t, stopped)
	if out := s.connect(t, stopped).Must(t, "cat /kept"); out != "kept\n" {
		t.Errorf("the file holds %q under a new driver", out)
	}
}
