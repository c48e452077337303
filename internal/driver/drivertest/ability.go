package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

func testFreeze(t *testing.T, s *suite) {
	f, ok := s.d.(driver.Freezer)
	if !ok {
		t.Skip("this driver freezes nothing")
	}
	id := newID()
	if err := f.Freeze(s.ctx, id); sos.ErrorCode(err) != sos.CodeNotStarted {
		t.Errorf("freeze of what does not run: %v", err)
	}
	s.start(t, id)
	sh := s.connect(t, id)
	p := sh.Begin(t, "sleep 0.3; echo thawed")
	for range 2 { // twice is once
		if err := f.Freeze(s.ctx, id); err != nil {
			t.Fatalf("freeze: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, Deadline)
	defer cancel()
	if err := sh.Client.Ping(ctx); err != nil {
		t.Errorf("the guest of a frozen sandbox does not answer: %v", err)
	}
	time.Sleep(600 * time.Millisecond) // longer than the process would take
	if sh.Ended(p) {
		t.Error("a frozen process went on")
	}
	for range 2 {
		if err := f.Thaw(s.ctx, id); err != nil {
			t.Fatalf("thaw: %v", err)
		}
	}
	if out, code := sh.Finish(t, p); out != "thawed\n" || code != 0 {
		t.Errorf("after thaw the process gave %q and exited %d", out, code)
	}
}

func testStopFrozen(t *testing.T, s *suite) {
	f, ok := s.d.(driver.Freezer)
	if !ok {
		t.Skip("this driver freezes nothing")
	}
	id := newID()
	s.start(t, id)
	s.connect(t, id).Begin(t, "sleep 1000")
	if err := f.Freeze(s.ctx, id); err != nil {
		t.Fatalf("freeze: %v", err)
	}
	s.stop(t, id)
	s.start(t, id)
	s.connect(t, id).Must(t, "echo not frozen")
}

func testStats(t *testing.T, s *suite) {
	st, ok := s.d.(driver.Statser)
	if !ok {
		t.Skip("this driver counts nothing")
	}
	id := newID()
	if _, err := st.Stats(s.ctx, id); sos.ErrorCode(err) != sos.CodeNotStarted {
		t.Errorf("stats of what does not run: %v", err)
	}
	s.start(t, id)
	sh := s.connect(t, id)
	before, err := st.Stats(s.ctx, id)
	if err != nil {
		t.Fatalf("stats: %v", err)
	}
	sh.Must(t, "printf %016384d 0 > /big")
	sh.Begin(t, "sleep 1000")
	after, err := st.Stats(s.ctx, id)
	if err != nil {
		t.Fatalf("stats: %v", err)
	}
	if after.CPU < before.CPU {
		t.Errorf("CPU went from %v to %v", before.CPU, after.CPU)
	}
	if after.PIDs < 1 {
		t.Errorf("%d tasks with a process running", after.PIDs)
	}
	if before.DiskBytes >= 0 && after.DiskBytes < before.DiskBytes+16384 {
		t.Errorf("disk went from %d to %d bytes by a file of 16 KiB", before.DiskBytes, after.DiskBytes)
	}
}
