package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/fake"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// TestHundredStartsUnderTen starts 100 sandboxes at once: all complete, in the
// order of their calls, never more than ten at a time.
func TestHundredStartsUnderTen(t *testing.T) {
	r := newRig(t)
	n := testutil.Scale(100)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = r.create(sos.SandboxSpec{})
	}
	var alive, most atomic.Int64
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			if _, err := r.StartSandbox(t.Context(), id); err != nil {
				t.Error(err)
				return
			}
			if a := alive.Add(1); a > most.Load() {
				most.Store(a)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if res, err := r.Exec(t.Context(), id, sos.ExecRequest{Command: "echo ok", Standalone: true}); err != nil || res.Output != "ok\n" {
				t.Errorf("exec: %+v, %v", res, err)
			}
			alive.Add(-1)
			if err := r.RemoveSandbox(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
		// Each is in the queue, or past it, before the next one comes.
		eventually(t, "the start was asked for", func() bool {
			s, err := r.GetSandbox(t.Context(), id)
			return sos.ErrorCode(err) == sos.CodeNotFound || s.Status != sos.StatusCreated
		})
	}
	wg.Wait()
	if most.Load() > 10 || len(order) != n {
		t.Errorf("%d ran at once, %d of %d completed", most.Load(), len(order), n)
	}
	// Those admitted together may finish in any order; nobody overtakes by more
	// than the places there are.
	for at, i := range order {
		if i > at+10 || at > i+10 {
			t.Errorf("start %d was number %d to complete", i, at)
		}
	}
	if held, queued := r.admission.counts(); held != 0 || queued != 0 {
		t.Errorf("at rest %d places are taken, %d wait", held, queued)
	}
}

func TestQueueIsVisibleAndLeft(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxSandboxes = 1 })
	first := r.started(sos.SandboxSpec{})
	ctx, cancel := context.WithCancel(t.Context())
	second, third := r.create(sos.SandboxSpec{}), r.create(sos.SandboxSpec{})
	gone, late := make(chan error, 1), make(chan error, 1)
	go func() { _, err := r.StartSandbox(ctx, second); gone <- err }()
	eventually(t, "the second waits", func() bool { return r.look(second).QueuePosition == 1 })
	go func() { _, err := r.StartSandbox(t.Context(), third); late <- err }()
	eventually(t, "the third waits", func() bool { return r.look(third).QueuePosition == 2 })
	if s := r.look(third); s.Status != sos.StatusQueued || s.Reason != sos.ReasonServerLimit || s.Message == "" {
		t.Errorf("queued: %+v", s)
	}
	// While full, wrong requests answer at once.
	_, err := r.StartSandbox(t.Context(), "unknown")
	wantCode(t, err, sos.CodeNotFound)
	_, err = r.StartSandbox(t.Context(), first)
	wantCode(t, err, sos.CodeAlreadyStarted)
	_, err = r.StartSandbox(t.Context(), second)
	wantCode(t, err, sos.CodeAlreadyStarted)
	_, err = r.Exec(t.Context(), second, sos.ExecRequest{Command: "true"})
	wantCode(t, err, sos.CodeNotStarted)
	if i, _ := r.Info(t.Context()); i.Running != 1 || i.Queued != 2 {
		t.Errorf("info %+v", i)
	}

	cancel()
	wantCode(t, <-gone, sos.CodeCanceled)
	if s := r.look(second); s.Status != sos.StatusCreated || s.QueuePosition != 0 {
		t.Errorf("after leaving: %+v", s)
	}
	if s := r.look(third); s.QueuePosition != 1 {
		t.Errorf("the third is at %d", s.QueuePosition)
	}
	r.exec(first, "exit") // what has exited keeps its place
	if s := r.look(third); s.Status != sos.StatusQueued {
		t.Errorf("an exited sandbox lost its place: %s", s.Status)
	}
	if _, err := r.StopSandbox(t.Context(), first, sos.StopRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := <-late; err != nil {
		t.Fatal(err)
	}
	r.exec(third, "true")
}

func TestStopAndRemoveOfQueued(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxSandboxes = 1 })
	r.started(sos.SandboxSpec{})
	id := r.create(sos.SandboxSpec{})
	for _, remove := range []bool{false, true} {
		errs := make(chan error, 1)
		go func() { _, err := r.StartSandbox(t.Context(), id); errs <- err }()
		eventually(t, "it waits", func() bool { return r.look(id).QueuePosition == 1 })
		if _, err := r.StopSandbox(t.Context(), id, sos.StopRequest{Remove: remove}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, <-errs, sos.CodeSandboxStopped)
		if !remove && r.look(id).Status != sos.StatusCreated {
			t.Errorf("status %s", r.look(id).Status)
		}
	}
	if _, queued := r.admission.counts(); queued != 0 {
		t.Errorf("%d still wait", queued)
	}
}

func TestQueueTimesOut(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxSandboxes = 1 })
	r.started(sos.SandboxSpec{})
	id := r.create(sos.SandboxSpec{StartTimeout: sos.Duration(30 * time.Millisecond)})
	_, err := r.StartSandbox(t.Context(), id)
	wantCode(t, err, sos.CodeTimeout)
	if s := r.look(id); s.Status != sos.StatusCreated {
		t.Errorf("status %s", s.Status)
	}
}

func TestStartsWaitForMemory(t *testing.T) {
	var free atomic.Int64
	free.Store(4)
	r := newRig(t, func(c *Config) {
		c.MemAvailable = func() (float64, error) { return float64(free.Load()) / 100, nil }
	})
	id := r.create(sos.SandboxSpec{})
	errs := make(chan error, 1)
	go func() { _, err := r.StartSandbox(t.Context(), id); errs <- err }()
	eventually(t, "it waits", func() bool { return r.look(id).Status == sos.StatusQueued })
	free.Store(50)
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
}

func TestStartsAreRefusedOnAFullDisk(t *testing.T) {
	var free atomic.Int64
	r := newRig(t, func(c *Config) {
		c.DiskFree = func() (int64, int64, error) { return free.Load(), 1 << 40, nil }
	})
	id := r.create(sos.SandboxSpec{})
	_, err := r.StartSandbox(t.Context(), id)
	wantCode(t, err, sos.CodeUnavailable)
	if i, _ := r.Info(t.Context()); i.Healthy {
		t.Error("healthy with a full disk")
	}
	free.Store(1 << 39)
	r.start(id)
}

// TestNoPathPassesTheLimit tries every way to a running sandbox while all places
// are taken.
func TestNoPathPassesTheLimit(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxSandboxes = 1 })
	stopped := r.started(sos.SandboxSpec{})
	if _, err := r.StopSandbox(t.Context(), stopped, sos.StopRequest{}); err != nil {
		t.Fatal(err)
	}
	failed := r.create(sos.SandboxSpec{SetupCommands: []string{"false"}})
	if _, err := r.StartSandbox(t.Context(), failed); err == nil {
		t.Fatal("started with a failing set-up")
	}
	name := sos.SandboxSpec{Name: "again", Image: testImage}
	named := r.create(name)
	r.started(sos.SandboxSpec{})
	if _, err := r.CreateSandbox(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{stopped, failed, named} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		_, err := r.StartSandbox(ctx, id)
		cancel()
		wantCode(t, err, sos.CodeCanceled)
		_, err = r.Exec(t.Context(), id, sos.ExecRequest{Command: "true"})
		wantCode(t, err, sos.CodeNotStarted)
	}
	running := 0
	list, err := r.fake.List(t.Context())
	for _, s := range list {
		if s.Running {
			running++
		}
	}
	if err != nil || running != 1 {
		t.Errorf("%d run, %v", running, err)
	}
}

// TestPlacesSurviveOddEnds mixes every kind of end and compares places with what
// the driver runs.
func TestPlacesSurviveOddEnds(t *testing.T) {
	const limit = 4
	r := newRig(t, func(c *Config) { c.MaxSandboxes = limit })
	var wg sync.WaitGroup
	for i := range testutil.Scale(40) {
		wg.Go(func() {
			spec := sos.SandboxSpec{Image: testImage}
			if i%5 == 0 {
				spec.SetupCommands = []string{"false"}
			}
			s, err := r.CreateSandbox(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			if i%7 == 0 {
				r.fake.Plan(s.ID, fake.Plan{StartErr: sos.Errorf(sos.CodeStartFailed, "no")})
			}
			ctx, cancel := context.WithCancel(t.Context())
			if i%3 == 0 {
				time.AfterFunc(time.Duration(i)*time.Millisecond, cancel)
			}
			_, err = r.StartSandbox(ctx, s.ID)
			cancel()
			switch {
			case err != nil:
			case i%4 == 0:
				r.fake.Crash(s.ID, driver.Exit{Known: true, Signal: 9})
				eventually(t, "the loss is seen", func() bool { return r.look(s.ID).Status == sos.StatusFailed })
			default:
				_, err := r.Exec(t.Context(), s.ID, sos.ExecRequest{Command: "sleep 60", Timeout: sos.Duration(10 * time.Millisecond)})
				if err != nil {
					t.Error(err)
				}
			}
			if i%2 == 0 {
				if _, err := r.StopSandbox(t.Context(), s.ID, sos.StopRequest{}); err != nil {
					t.Error(err)
				}
			}
			if err := r.RemoveSandbox(t.Context(), s.ID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if held, queued := r.admission.counts(); held != 0 || queued != 0 {
		t.Errorf("at rest %d places are taken, %d wait", held, queued)
	}
	if list, _ := r.fake.List(t.Context()); len(list) != 0 {
		t.Errorf("the driver has %v", list)
	}
	for i := range limit { // and all places are good
		r.started(sos.SandboxSpec{Name: fmt.Sprintf("after%d", i)})
	}
}

func TestFailedStartsAreCleanedUp(t *testing.T) {
	r := newRig(t)
	id := r.create(sos.SandboxSpec{})
	r.fake.Plan(id, fake.Plan{StartErr: sos.Errorf(sos.CodeStartFailed, "no such thing")})
	_, err := r.StartSandbox(t.Context(), id)
	wantCode(t, err, sos.CodeStartFailed)
	if want := "Failed to start container: no such thing"; sos.ErrorMessage(err) != want {
		t.Errorf("message %q, want %q", sos.ErrorMessage(err), want)
	}
	if s := r.look(id); s.Status != sos.StatusFailed || s.Reason != sos.ReasonStartFailed {
		t.Errorf("after the failure: %+v", s)
	}
	r.fake.Plan(id, fake.Plan{StartErr: errors.New("secret of the host")})
	_, err = r.StartSandbox(t.Context(), id)
	if wantCode(t, err, sos.CodeStartFailed); slices.Contains([]string{"", "secret of the host"}, sos.ErrorMessage(err)) {
		t.Errorf("message %q", sos.ErrorMessage(err))
	}
	r.fake.Plan(id, fake.Plan{})
	r.start(id)
	r.exec(id, "true")
}
