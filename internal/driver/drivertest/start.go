package drivertest

import (
	"context"
	"errors"
	"testing"

	"github.com/seaofsimulation/sos"
)

func testInfo(t *testing.T, s *suite) {
	i := s.d.Info(s.ctx)
	if i.Name == "" {
		t.Error("Info has no Name")
	}
	if i.DiskLimit == "" {
		t.Error("Info does not say which disk limit is in force")
	}
	for _, c := range i.Checks {
		if c.Name == "" {
			t.Errorf("a check has no name: %+v", c)
		}
		if !c.OK {
			t.Errorf("check %s fails on this host: %s (%s)", c.Name, c.Message, c.Fix)
		}
	}
	if !i.Healthy() {
		t.Error("not healthy")
	}
}

func testStartDialStop(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	s.want(t, id, true, true)
	sh := s.connect(t, id)
	if out := sh.Must(t, "echo hello"); out != "hello\n" {
		t.Errorf("echo gave %q", out)
	}
	if _, code := sh.Run(t, "exit 7"); code != 7 {
		t.Errorf("exit 7 gave %d", code)
	}
	s.stop(t, id)
	s.want(t, id, false, true)
	s.refused(t, id)
}

func testStartTwice(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	sh := s.connect(t, id)
	p := sh.Begin(t, "sleep 1000")
	s.start(t, id)
	if sh.Ended(p) {
		t.Error("a second start ended a process of the first")
	}
	sh.Must(t, "echo still here")
	if n := len(s.list(t)); n != 1 {
		t.Errorf("%d sandboxes after two starts of one id", n)
	}
}

func testStartKeepsFiles(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	s.connect(t, id).Must(t, "echo first > /kept")
	s.stop(t, id)
	for _, want := range []string{"first\n", "second\n"} {
		s.start(t, id)
		sh := s.connect(t, id)
		if out := sh.Must(t, "cat /kept"); out != want {
			t.Errorf("the file holds %q after a new start; want %q", out, want)
		}
		sh.Must(t, "echo second > /kept")
		s.stop(t, id)
	}
}

func testOwnFiles(t *testing.T, s *suite) {
	a, b := newID(), newID()
	s.start(t, a)
	s.start(t, b)
	s.connect(t, a).Must(t, "echo secret > /mine")
	if out, code := s.connect(t, b).Run(t, "cat /mine"); code == 0 {
		t.Errorf("a sandbox reads another's file: %q", out)
	}
}

func testStartFailure(t *testing.T, s *suite) {
	if s.env.Broken == nil {
		t.Skip("this driver's starts cannot be made to fail from outside")
	}
	id := newID()
	err := s.d.Start(s.ctx, id, *s.env.Broken)
	if err == nil {
		t.Fatal("a broken spec started")
	}
	if c := sos.ErrorCode(err); c == sos.CodeInternal {
		t.Errorf("the error has no code that a user can act on: %v", err)
	}
	if _, there := s.list(t)[id]; there {
		t.Error("a failed start left the sandbox in the list")
	}
	s.refused(t, id)
	// The same id can be tried again.
	s.start(t, id)
	s.connect(t, id).Must(t, "echo ok")
}

func testStartFailureKeepsFiles(t *testing.T, s *suite) {
	if s.env.Broken == nil {
		t.Skip("this driver's starts cannot be made to fail from outside")
	}
	id := newID()
	s.start(t, id)
	s.connect(t, id).Must(t, "echo kept > /kept")
	s.stop(t, id)
	if err := s.d.Start(s.ctx, id, *s.env.Broken); err == nil {
		t.Fatal("a broken spec started")
	}
	s.want(t, id, false, true)
	s.start(t, id)
	if out := s.connect(t, id).Must(t, "cat /kept"); out != "kept\n" {
		t.Errorf("the file holds %q after a failed start", out)
	}
}

func testStartCancelled(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	id := newID()
	if err := s.d.Start(ctx, id, s.env.Spec); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a cancelled context: %v", err)
	}
	if _, there := s.list(t)[id]; there {
		t.Error("a cancelled start left the sandbox in the list")
	}
	s.start(t, id)
}

func testBadIDs(t *testing.T, s *suite) {
	for _, id := range []string{"", ".", "..", "sb-", "../sb-aaaaaaaaaaaaaaaa", "sb-aaaaaaaaaaaaaaa/", "SB-AAAAAAAAAAAAAAAA", "sb-aaaaaaaaaaaaaaaa\x00"} {
		if err := s.d.Start(s.ctx, id, s.env.Spec); sos.ErrorCode(err) != sos.CodeInvalid {
			t.Errorf("start %q: %v; want code %s", id, err, sos.CodeInvalid)
		}
		s.stop(t, id)
		s.remove(t, id)
		s.refused(t, id)
	}
	if n := len(s.list(t)); n != 0 {
		t.Errorf("%d sandboxes from ids that are none", n)
	}
}
