package control

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/fake"
	"github.com/seaofsimulation/sos/internal/journal"
)

// restart kills the server and starts the next one on the same directory.
func (r *rig) restart(set ...func(*Config)) {
	r.t.Helper()
	r.crash()
	r.boot(set...)
}

func TestCrashAfterCreate(t *testing.T) {
	r := newRig(t)
	id := r.create(sos.SandboxSpec{Name: "kept"})
	r.restart()
	if s := r.look("kept"); s.ID != id || s.Status != sos.StatusCreated {
		t.Errorf("after the crash: %+v", s)
	}
	r.start(id)
}

func TestCrashWhileQueued(t *testing.T) {
	one := func(c *Config) { c.MaxSandboxes = 1 }
	r := newRig(t, one)
	first := r.started(sos.SandboxSpec{})
	id := r.create(sos.SandboxSpec{})
	go r.StartSandbox(context.WithoutCancel(t.Context()), id)
	eventually(t, "it waits", func() bool { return r.look(id).QueuePosition == 1 })
	r.restart(one)
	if s := r.look(id); s.Status != sos.StatusCreated {
		t.Errorf("the queued one is %s", s.Status)
	}
	if s := r.look(first); s.Status != sos.StatusStarted {
		t.Errorf("the running one is %s", s.Status)
	}
	if held, _ := r.admission.counts(); held != 1 {
		t.Errorf("%d places are taken", held)
	}
}

// TestCrashDuringStart kills the server at several points of a first start: the
// sandbox is as before it, nothing of it is left, and it can be started.
func TestCrashDuringStart(t *testing.T) {
	for name, c := range map[string]struct {
		plan  fake.Plan
		setup []string
		reach func(r *rig, id string) bool
	}{
		"in the driver":       {plan: fake.Plan{StartDelay: time.Hour}, reach: func(r *rig, id string) bool { return r.look(id).Status == sos.StatusStarting }},
		"guest does not talk": {plan: fake.Plan{Hang: true}, reach: func(r *rig, id string) bool { return r.fake.Starts(id) == 1 }},
		"in the set-up": {setup: []string{"echo half > mark", "sleep 600"}, reach: func(r *rig, id string) bool {
			l, _ := r.ListProcesses(r.t.Context(), id, sos.ProcessFilter{})
			return len(l) == 2 && l[1].StartedAt != nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			id := r.create(sos.SandboxSpec{SetupCommands: c.setup})
			r.fake.Plan(id, c.plan)
			done := make(chan struct{})
			go func() {
				defer close(done)
				r.StartSandbox(context.WithoutCancel(t.Context()), id)
			}()
			eventually(t, "the start is there", func() bool { return c.reach(r, id) })
			r.crash()
			<-done
			r.fake.Plan(id, fake.Plan{})
			r.boot()
			if s := r.look(id); s.Status != sos.StatusCreated || s.Reason != sos.ReasonStartFailed {
				t.Errorf("after the crash: %s (%s)", s.Status, s.Reason)
			}
			if list, _ := r.fake.List(t.Context()); len(list) != 0 {
				t.Errorf("the driver has %v", list)
			}
			l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessRunning, sos.ProcessQueued}})
			if len(l) != 0 {
				t.Errorf("still running: %+v", l)
			}
			if held, _ := r.admission.counts(); held != 0 {
				t.Errorf("%d places are taken", held)
			}
			if c.setup != nil {
				return // its set-up never ends
			}
			r.start(id)
			r.exec(id, "true")
		})
	}
}

// TestCrashDuringExec kills the server while commands run: the next one has the
// session's state, the true ends and the whole output.
func TestCrashDuringExec(t *testing.T) {
	r := newRig(t)
	id := r.started(sos.SandboxSpec{})
	r.exec(id, "V=kept")
	r.execReq(id, sos.ExecRequest{Command: "exit 6", Standalone: true})
	for _, q := range []sos.ExecRequest{
		{Command: "echo before; sleep 0.4; echo after; false"},
		{Command: "echo queued"},
		{Command: "echo one; sleep 0.4; echo two; exit 9", Standalone: true},
		{Command: "echo long; sleep 600", Standalone: true},
	} {
		go r.Exec(context.WithoutCancel(t.Context()), id, q)
		eventually(t, "the command is recorded", func() bool {
			notes, err := r.journal.Notes(id)
			for _, n := range notes {
				var p sos.Process
				if err = errors.Join(err, json.Unmarshal(n, &p)); p.Command == q.Command {
					return err == nil
				}
			}
			return false
		})
	}
	eventually(t, "output came", func() bool {
		n := 0
		l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
		for _, p := range l {
			if p.Status == sos.ProcessRunning && len(p.Output) > 0 {
				n++
			}
		}
		return n == 3
	})
	r.restart()
	if s := r.look(id); s.Status != sos.StatusStarted || s.SessionCommandCount != 3 || s.LastStandaloneExitCode == nil || *s.LastStandaloneExitCode != 6 {
		t.Errorf("taken over: %+v", s)
	}
	if got := r.exec(id, "echo $V"); got.Output != "kept" {
		t.Errorf("the session has %q", got.Output)
	}
	eventually(t, "the ends are recorded", func() bool {
		l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessRunning, sos.ProcessQueued}})
		return len(l) == 1
	})
	want := map[string]struct {
		code   int
		output string
	}{
		"echo before; sleep 0.4; echo after; false": {1, "before\nafter\n"},
		"echo queued":                           {0, "queued\n"},
		"echo one; sleep 0.4; echo two; exit 9": {9, "one\ntwo\n"},
	}
	l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessExited}})
	for _, p := range l {
		w, ok := want[p.Command]
		if !ok {
			continue
		}
		delete(want, p.Command)
		var b strings.Builder
		_, err := r.ReadOutput(t.Context(), id, p.ID, sos.StreamOut, 0, false, &b)
		if p.ExitCode == nil || *p.ExitCode != w.code || b.String() != w.output || err != nil {
			t.Errorf("%q: %+v with %q, %v", p.Command, p.Exit, b.String(), err)
		}
	}
	if len(want) != 0 {
		t.Errorf("no end of %v", want)
	}
	tr, err := r.Trajectory(t.Context(), id)
	if err != nil || len(tr.Entries) != 4 || tr.Entries[1].Output != "before\nafter" {
		t.Errorf("trajectory %+v, %v", tr, err)
	}
	if starts := r.fake.Starts(id); starts != 1 {
		t.Errorf("started %d times", starts)
	}
}

// TestProcessWithoutRecord: the crash came between the guest and the store.
func TestProcessWithoutRecord(t *testing.T) {
	r := newRig(t)
	id := r.started(sos.SandboxSpec{})
	go r.Exec(context.WithoutCancel(t.Context()), id, sos.ExecRequest{Command: "echo x; sleep 0.3; exit 5", Standalone: true})
	eventually(t, "output came", func() bool {
		l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
		return len(l) == 1 && len(l[0].Output) == 1
	})
	r.crash()
	r.forgetProcesses(id)
	r.boot()
	eventually(t, "it is taken up with its end", func() bool {
		l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
		return len(l) == 1 && l[0].ExitCode != nil && *l[0].ExitCode == 5
	})
}

// TestCrashBeforeTheStore kills the server when an end is noted and answered and
// not stored yet: it counts all the same, and no note makes an ended process run.
func TestCrashBeforeTheStore(t *testing.T) {
	r := newRig(t)
	id := r.started(sos.SandboxSpec{})
	r.exec(id, "echo stored")
	list, err := r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	stored := list[0]
	r.crash()
	j, err := journal.Open(filepath.Join(r.dir, "journal"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	code := 5
	ended := stored
	ended.ID, ended.Seq, ended.Command, ended.ExitCode = sos.NewID(sos.ProcessIDPrefix, nil), stored.Seq+1, "exit 5", &code
	stale := stored
	stale.Status, stale.Exit, stale.EndedAt = sos.ProcessRunning, sos.Exit{}, nil
	for _, q := range []sos.Process{ended, stale} {
		rec, err := j.Create(id, q.ID)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(q)
		if err = errors.Join(err, rec.Note(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	r.boot()
	list, err = r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
	if err != nil || len(list) != 2 || list[0].Status != sos.ProcessExited || list[1].ExitCode == nil || *list[1].ExitCode != 5 {
		t.Fatalf("%+v %v", list, err)
	}
	if s := r.look(id); s.SessionCommandCount != 2 {
		t.Errorf("%d session commands, want 2", s.SessionCommandCount)
	}
}

func TestCrashWithSandboxLost(t *testing.T) {
	r := newRig(t)
	id := r.started(sos.SandboxSpec{})
	r.exec(id, "cd /root; echo data > f")
	go r.Exec(context.WithoutCancel(t.Context()), id, sos.ExecRequest{Command: "sleep 600"})
	eventually(t, "it runs", func() bool {
		notes, err := r.journal.Notes(id)
		return err == nil && len(notes) == 2
	})
	r.crash()
	r.fake.Crash(id, driver.Exit{Known: true, OOM: true, Signal: 9})
	r.boot()
	if s := r.look(id); s.Status != sos.StatusFailed || s.Reason != sos.ReasonOOM || s.Message == "" {
		t.Errorf("after the loss: %+v", s)
	}
	l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{})
	if len(l) != 2 || l[1].Status != sos.ProcessLost || l[1].ExitCode != nil {
		t.Errorf("processes %+v", l)
	}
	if held, _ := r.admission.counts(); held != 0 {
		t.Errorf("%d places are taken", held)
	}
	r.start(id)
	if got := r.exec(id, "cat /root/f"); got.Output != "data" {
		t.Errorf("the files hold %q", got.Output)
	}
}

// TestCrashDuringStopAndRemove: the intent is durable, the next server finishes.
func TestCrashDuringStopAndRemove(t *testing.T) {
	for _, remove := range []bool{false, true} {
		r := newRig(t)
		id := r.started(sos.SandboxSpec{Name: "n"})
		r.exec(id, "true")
		r.gate.cut.Store(true) // the driver is not reached any more
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.StopSandbox(context.WithoutCancel(t.Context()), id, sos.StopRequest{Remove: remove})
		}()
		eventually(t, "the intent is stored", func() bool {
			rows, err := r.store.Sandboxes(t.Context())
			return err == nil && (rows[0].Desired == sos.DesiredStopped || rows[0].Desired == sos.DesiredRemoved)
		})
		r.crash()
		<-done
		r.boot()
		list, _ := r.fake.List(t.Context())
		if remove {
			_, err := r.GetSandbox(t.Context(), id)
			wantCode(t, err, sos.CodeNotFound)
			if left, _ := r.journal.Sandboxes(); len(list) != 0 || len(left) != 0 {
				t.Errorf("left: %v, %v", list, left)
			}
			r.create(sos.SandboxSpec{Name: "n"})
			continue
		}
		if s := r.look(id); s.Status != sos.StatusStopped || s.Reason != sos.ReasonUser {
			t.Errorf("after the crash: %+v", s)
		}
		if len(list) != 1 || list[0].Running {
			t.Errorf("the driver has %v", list)
		}
		r.start(id)
	}
}

func TestOrphansAreRemovedAtTheSecondLook(t *testing.T) {
	r := newRig(t)
	stray := sos.NewID(sos.SandboxIDPrefix, nil)
	if err := r.fake.Start(t.Context(), stray, driver.Spec{}); err != nil {
		t.Fatal(err)
	}
	kept := r.started(sos.SandboxSpec{})
	eventually(t, "the stray one is gone", func() bool {
		l, _ := r.fake.List(t.Context())
		return len(l) == 1 && l[0].ID == kept
	})
	r.exec(kept, "true")
}

func TestExitedSurvivesARestart(t *testing.T) {
	r := newRig(t)
	id := r.started(sos.SandboxSpec{})
	r.exec(id, "exit 3")
	r.restart()
	if s := r.look(id); s.Status != sos.StatusExited {
		t.Errorf("status %s", s.Status)
	}
	_, err := r.Exec(t.Context(), id, sos.ExecRequest{Command: "true"})
	wantCode(t, err, sos.CodeSessionExited)
	if got := r.execReq(id, sos.ExecRequest{Command: "echo alive", Standalone: true}); got.Output != "alive\n" {
		t.Errorf("standalone gave %+v", got)
	}
}

// TestRestartLeavesSandboxes: an orderly end of the server ends no sandbox.
func TestRestartLeavesSandboxes(t *testing.T) {
	r := newRig(t)
	id := r.started(sos.SandboxSpec{})
	r.exec(id, "V=kept")
	errs := make(chan error, 1)
	go func() {
		_, err := r.Exec(t.Context(), id, sos.ExecRequest{Command: "sleep 0.3; exit 7", Standalone: true})
		errs <- err
	}()
	eventually(t, "it runs", func() bool {
		l, _ := r.ListProcesses(t.Context(), id, sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessRunning}})
		return len(l) == 1 && l[0].StartedAt != nil
	})
	r.shutdown()
	wantCode(t, <-errs, sos.CodeUnavailable)
	r.boot()
	if got := r.exec(id, "echo $V"); got.Output != "kept" {
		t.Errorf("the session has %q", got.Output)
	}
	eventually(t, "the end is recorded", func() bool {
		s := r.look(id)
		return s.LastStandaloneExitCode != nil && *s.LastStandaloneExitCode == 7
	})
}
