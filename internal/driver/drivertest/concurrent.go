package drivertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos/internal/driver"
)

func testWaitMany(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	const waiters = 8
	ends := make(chan driver.Exit, waiters)
	for range waiters {
		go func() {
			e, err := s.d.Wait(s.ctx, id)
			if err != nil {
				t.Errorf("wait: %v", err)
			}
			ends <- e
		}()
	}
	s.stop(t, id)
	for range waiters {
		if e := <-ends; !e.Known || !e.Stopped {
			t.Errorf("a waiter got %+v", e)
		}
	}
}

func testWaitAfter(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	s.stop(t, id)
	first := s.wait(t, id)
	if !first.Known || !first.Stopped {
		t.Errorf("wait after stop gives %+v", first)
	}
	if again := s.wait(t, id); again != first {
		t.Errorf("a second wait gives %+v after %+v", again, first)
	}
}

func testWaitContext(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { _, err := s.d.Wait(ctx, id); done <- err }()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled wait gives %v", err)
		}
	case <-time.After(Deadline):
		t.Fatal("wait does not end with its context")
	}
	s.want(t, id, true, true)
}

func testWaitNextRun(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	s.stop(t, id)
	s.start(t, id)
	ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
	defer cancel()
	if e, err := s.d.Wait(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait of a running sandbox gives the end of its former run: %+v, %v", e, err)
	}
}

func testDialMany(t *testing.T, s *suite) {
	id := newID()
	s.start(t, id)
	// Connections that nobody speaks on, and one that was left, are in nobody's way.
	for i := range 3 {
		c, err := s.d.Dial(s.ctx, id)
		if err != nil {
			t.Fatalf("dial: %v", err)
		}
		if i > 0 {
			defer c.Close()
			continue
		}
		c.Close()
	}
	if out := s.connect(t, id).Must(t, "echo served"); out != "served\n" {
		t.Errorf("echo gave %q", out)
	}
}

// testConcurrentOne throws every method at one id: all end, and afterwards the
// sandbox obeys.
func testConcurrentOne(t *testing.T, s *suite) {
	id := newID()
	var wg sync.WaitGroup
	for range many() {
		wg.Go(func() {
			if err := s.d.Start(s.ctx, id, s.env.Spec); err != nil {
				t.Errorf("start: %v", err)
			}
		})
		wg.Go(func() {
			if err := s.d.Stop(s.ctx, id); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
		wg.Go(func() {
			if _, err := s.d.List(s.ctx); err != nil {
				t.Errorf("list: %v", err)
			}
		})
		wg.Go(func() {
			if c, err := s.d.Dial(s.ctx, id); err == nil {
				c.Close()
			}
		})
	}
	wg.Go(func() {
		if err := s.d.Remove(s.ctx, id); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
	wg.Wait()
	s.start(t, id)
	s.connect(t, id).Must(t, "echo alive")
	s.remove(t, id)
	if n := len(s.list(t)); n != 0 {
		t.Errorf("%d sandboxes left", n)
	}
}

func testConcurrentMany(t *testing.T, s *suite) {
	var wg sync.WaitGroup
	for range many() {
		wg.Go(func() {
			id := newID()
			if err := s.d.Start(s.ctx, id, s.env.Spec); err != nil {
				t.Errorf("start: %v", err)
				return
			}
			if out := s.connect(t, id).Must(t, "echo "+id); out != id+"\n" {
				t.Errorf("sandbox %s answers %q", id, out)
			}
			if err := s.d.Stop(s.ctx, id); err != nil {
				t.Errorf("stop: %v", err)
			}
			if err := s.d.Remove(s.ctx, id); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
	}
	wg.Wait()
	if n := len(s.list(t)); n != 0 {
		t.Errorf("%d sandboxes left", n)
	}
}
