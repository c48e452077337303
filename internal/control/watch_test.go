package control

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

func TestLifetime(t *testing.T) {
	r := newRig(t)
	id := r.started(sos.SandboxSpec{Timeout: sos.Duration(300 * time.Millisecond)})
	if s := r.look(id); s.ExpiresAt == nil {
		t.Error("no expires_at")
	}
	r.exec(id, "cd /root; echo kept > f")
	_, err := r.Exec(t.Context(), id, sos.ExecRequest{Command: "sleep 600"})
	wantCode(t, err, sos.CodeSandboxStopped)
	eventually(t, "it is stopped", func() bool { return r.look(id).Status == sos.StatusStopped })
	if s := r.look(id); s.Reason != sos.ReasonTimeout || s.Message == "" || s.ExpiresAt != nil {
		t.Errorf("after its lifetime: %+v", s)
	}
	r.start(id)
	if got := r.exec(id, "cat /root/f"); got.Output != "kept" {
		t.Errorf("files: %+v", got)
	}
}

func TestLifetimeAcrossARestart(t *testing.T) {
	r := newRig(t)
	id := r.started(sos.SandboxSpec{Timeout: sos.Duration(400 * time.Millisecond)})
	other := r.started(sos.SandboxSpec{Timeout: sos.Duration(time.Hour)})
	r.crash()
	time.Sleep(450 * time.Millisecond) // its end passes while nobody looks
	r.boot()
	eventually(t, "it is stopped", func() bool { return r.look(id).Status == sos.StatusStopped })
	if s := r.look(id); s.Reason != sos.ReasonTimeout {
		t.Errorf("reason %s", s.Reason)
	}
	if s := r.look(other); s.Status != sos.StatusStarted || s.ExpiresAt == nil {
		t.Errorf("the other one: %+v", s)
	}
}

func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		exit   driver.Exit
		reason sos.Reason
	}{
		"killed":  {driver.Exit{Known: true, Signal: 9}, sos.ReasonLost},
		"oom":     {driver.Exit{Known: true, Signal: 9, OOM: true}, sos.ReasonOOM},
		"unknown": {driver.Exit{}, sos.ReasonLost},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			id := r.started(sos.SandboxSpec{})
			r.exec(id, "cd /root; echo kept > f")
			errs := make(chan error, 1)
			go func() {
				_, err := r.Exec(t.Context(), id, sos.ExecRequest{Command: "sleep 600"})
				errs <- err
			}()
			eventually(t, "it runs", func() bool {
				l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessRunning}})
				return len(l) == 1 && l[0].StartedAt != nil
			})
			r.fake.Crash(id, c.exit)
			wantCode(t, <-errs, sos.CodeSandboxLost)
			eventually(t, "the loss is recorded", func() bool { return r.look(id).Status == sos.StatusFailed })
			if s := r.look(id); s.Reason != c.reason || s.Message == "" {
				t.Errorf("recorded %+v", s)
			}
			if held, _ := r.admission.counts(); held != 0 {
				t.Errorf("%d places are taken", held)
			}
			l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
			if p := l[len(l)-1]; p.Status != sos.ProcessLost || p.ExitCode != nil || p.EndedAt != nil {
				t.Errorf("recorded %+v", p)
			}
			_, err := r.Exec(t.Context(), id, sos.ExecRequest{Command: "true"})
			wantCode(t, err, sos.CodeNotStarted)
			r.start(id)
			if got := r.exec(id, "cat /root/f"); got.Output != "kept" {
				t.Errorf("files: %+v", got)
			}
		})
	}
}

func TestGuestDiesDuringSetup(t *testing.T) {
	r := newRig(t)
	id := r.create(sos.SandboxSpec{SetupCommands: []string{"echo a", "crash"}})
	_, err := r.StartSandbox(t.Context(), id)
	wantCode(t, err, sos.CodeSandboxLost)
	if s := r.look(id); s.Status != sos.StatusFailed || s.Reason != sos.ReasonLost {
		t.Errorf("recorded %+v", s)
	}
	if list, _ := r.fake.List(t.Context()); len(list) != 0 {
		t.Errorf("the driver has %v", list)
	}
}

func TestStopDuringSetup(t *testing.T) {
	r := newRig(t)
	for _, remove := range []bool{false, true} {
		id := r.create(sos.SandboxSpec{SetupCommands: []string{"sleep 600"}})
		errs := make(chan error, 1)
		go func() { _, err := r.StartSandbox(t.Context(), id); errs <- err }()
		eventually(t, "the set-up runs", func() bool {
			l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
			return len(l) == 1 && l[0].StartedAt != nil
		})
		if s := r.look(id); s.Status != sos.StatusStarting {
			t.Errorf("status %s", s.Status)
		}
		if _, err := r.StopSandbox(t.Context(), id, sos.StopRequest{Remove: remove}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, <-errs, sos.CodeSandboxStopped)
		if !remove {
			if s := r.look(id); s.Status != sos.StatusCreated {
				t.Errorf("status %s", s.Status)
			}
		}
	}
	if list, _ := r.fake.List(t.Context()); len(list) != 0 {
		t.Errorf("the driver has %v", list)
	}
}

// TestStarterGone: once admitted a start ends nothing by its caller's leaving.
func TestStarterGone(t *testing.T) {
	r := newRig(t)
	id := r.create(sos.SandboxSpec{SetupCommands: []string{"sleep 0.2", "echo done > mark"}})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() { _, err := r.StartSandbox(ctx, id); errs <- err }()
	eventually(t, "the set-up runs", func() bool {
		l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
		return len(l) == 1
	})
	cancel()
	wantCode(t, <-errs, sos.CodeCanceled)
	eventually(t, "it is started", func() bool { return r.look(id).Status == sos.StatusStarted })
	if got := r.exec(id, "cat mark"); got.Output != "done" {
		t.Errorf("got %+v", got)
	}
}

func TestDefaultExecTimeout(t *testing.T) {
	r := newRig(t, func(c *Config) { c.ExecTimeout = 50 * time.Millisecond })
	id := r.started(sos.SandboxSpec{})
	if got := r.exec(id, "echo a; sleep 60"); !got.TimedOut || !got.DefaultTimeout || got.Output != "a" {
		t.Errorf("got %+v", got)
	}
	got := r.execReq(id, sos.ExecRequest{Command: "echo a; sleep 0.2", Timeout: sos.Duration(time.Minute)})
	if got.TimedOut || got.DefaultTimeout {
		t.Errorf("got %+v", got)
	}
}

func TestAnswerIsCutAndSaysSo(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxAnswer = 1000 })
	id := r.started(sos.SandboxSpec{})
	for _, q := range []sos.ExecRequest{{Command: "spam 50000"}, {Command: "spam 50000", Standalone: true}} {
		if got := r.execReq(id, q); !got.Truncated || len(got.Output) != 1000 || got.OutputBytes != 50000 {
			t.Errorf("%d bytes, truncated %v, of %d", len(got.Output), got.Truncated, got.OutputBytes)
		}
	}
	if got := r.exec(id, "spam 1000"); got.Truncated || len(got.Output) != 1000 || got.OutputBytes != 0 {
		t.Errorf("%d bytes, truncated %v", len(got.Output), got.Truncated)
	}
}

func TestProcessLimits(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxProcesses, c.MaxQueue = 2, 1 })
	id := r.started(sos.SandboxSpec{})
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 8)
	run := func(q sos.ExecRequest) {
		go func() { _, err := r.Exec(ctx, id, q); results <- err }()
	}
	running := func(n int) func() bool {
		return func() bool {
			l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessRunning}})
			return len(l) == n
		}
	}
	run(sos.ExecRequest{Command: "sleep 600", Standalone: true})
	run(sos.ExecRequest{Command: "sleep 600", Standalone: true})
	eventually(t, "two run", running(2))
	run(sos.ExecRequest{Command: "sleep 600", Standalone: true})
	b, _ := r.find(t.Context(), id)
	l, _ := b.running()
	eventually(t, "one waits", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.waiting == 1 })
	_, err := r.Exec(t.Context(), id, sos.ExecRequest{Command: "true", Standalone: true})
	wantCode(t, err, sos.CodeUnavailable)
	r.exec(id, "echo sessions are not affected")
	for range 2 {
		run(sos.ExecRequest{Command: "sleep 600"})
	}
	eventually(t, "one runs, one waits", func() bool {
		s, _ := r.ListSessions(t.Context(), id)
		return len(s) == 1 && s[0].Running != "" && s[0].Queued == 1
	})
	_, err = r.Exec(t.Context(), id, sos.ExecRequest{Command: "true"})
	wantCode(t, err, sos.CodeUnavailable)
	if _, err := r.StopSandbox(t.Context(), id, sos.StopRequest{}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		wantCode(t, <-results, sos.CodeSandboxStopped)
	}
	cancel()
}

func TestStopAll(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxSandboxes = 2 })
	a, b, c := r.started(sos.SandboxSpec{}), r.started(sos.SandboxSpec{}), r.create(sos.SandboxSpec{})
	r.exec(a, "exit")
	errs := make(chan error, 1)
	go func() { _, err := r.StartSandbox(t.Context(), c); errs <- err }()
	eventually(t, "one waits", func() bool { return r.look(c).QueuePosition == 1 })
	if err := r.StopAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := sos.ErrorCode(<-errs); code != sos.CodeUnavailable && code != sos.CodeSandboxStopped {
		t.Errorf("the waiting start got %s", code)
	}
	for _, id := range []string{a, b} {
		if s := r.look(id); s.Status != sos.StatusStopped || s.Reason != sos.ReasonShutdown {
			t.Errorf("%+v", s)
		}
	}
	r.shutdown()
	r.boot()
	r.start(a)
}

// TestSickSandbox: a guest that answers nothing harms nobody else.
func TestSickSandbox(t *testing.T) {
	r := newRig(t)
	sick, well := r.started(sos.SandboxSpec{}), r.started(sos.SandboxSpec{})
	r.exec(sick, "true")
	r.gate.Driver.(interface{ Disconnect(string) }).Disconnect(sick)
	r.fake.Plan(sick, planHang)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := r.Exec(ctx, sick, sos.ExecRequest{Command: "true"})
	if err == nil {
		t.Error("a guest that answers nothing gave a result")
	}
	r.exec(well, "echo fine")
	if _, err := r.ListSandboxes(t.Context(), sos.SandboxFilter{}); err != nil {
		t.Error(err)
	}
	if err := r.RemoveSandbox(t.Context(), sick); err != nil {
		t.Error(err)
	}
}

// stubborn is a driver under which commands outlive the first attempt to end
// them.
type stubborn struct {
	*gate
	frozen, thawed atomic.Bool
}

func (s *stubborn) Freeze(ctx context.Context, id string) error {
	s.frozen.Store(true)
	return s.gate.Freeze(ctx, id)
}

func (s *stubborn) Thaw(ctx context.Context, id string) error {
	s.thawed.Store(true)
	return s.gate.Thaw(ctx, id)
}

// TestFreezeEndsWhatDoesNotEnd: a guest that is slow to kill gets help.
func TestFreezeEndsWhatDoesNotEnd(t *testing.T) {
	r := newRig(t)
	r.shutdown()
	s := &stubborn{}
	r.boot(func(c *Config) { s.gate = c.Driver.(*gate); c.Driver = s })
	id := r.started(sos.SandboxSpec{})
	go r.Exec(t.Context(), id, sos.ExecRequest{Command: "sleep 600", Standalone: true})
	var pr *proc
	b, _ := r.find(t.Context(), id)
	l, _ := b.running()
	eventually(t, "it runs", func() bool {
		for _, q := range b.alive() {
			pr = q
		}
		return pr != nil && pr.snapshot(false).StartedAt != nil
	})
	// A process that the guest does not know stands for one that it cannot end.
	ghost, err := l.accept(sos.KindStandalone, r.newID(sos.ProcessIDPrefix), 99, "ghost", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.slots <- struct{}{} // the one that accept counts on
	l.force(ghost, sos.EndTimeout)
	eventually(t, "the sandbox was frozen and thawed", func() bool { return s.frozen.Load() && s.thawed.Load() })
	if got := pr.snapshot(false); got.Status != sos.ProcessRunning {
		t.Errorf("the other command is %s", got.Status)
	}
	r.execReq(id, sos.ExecRequest{Command: "echo thawed", Standalone: true})
}

// TestDriverThatCannotStop: the place stays taken until the sandbox has ended
// really, and the reconciler gets there.
func TestDriverThatCannotStop(t *testing.T) {
	r := newRig(t)
	r.shutdown()
	broken := &unstoppable{}
	r.boot(func(c *Config) { broken.gate = c.Driver.(*gate); c.Driver = broken })
	id := r.started(sos.SandboxSpec{})
	broken.failing.Store(true)
	_, err := r.StopSandbox(t.Context(), id, sos.StopRequest{})
	wantCode(t, err, sos.CodeInternal)
	if held, _ := r.admission.counts(); held != 1 {
		t.Errorf("%d places are taken by what still runs", held)
	}
	if s := r.look(id); s.Status != sos.StatusStopping {
		t.Errorf("status %s", s.Status)
	}
	broken.failing.Store(false)
	eventually(t, "it is stopped", func() bool { return r.look(id).Status == sos.StatusStopped })
	if held, _ := r.admission.counts(); held != 0 {
		t.Errorf("%d places are taken", held)
	}
	r.start(id)
}

type unstoppable struct {
	*gate
	failing atomic.Bool
}

func (u *unstoppable) Stop(ctx context.Context, id string) error {
	if u.failing.Load() {
		return errCut
	}
	return u.gate.Stop(ctx, id)
}
