package servicetest

import (
	"strings"
	"sync"

	"github.com/seaofsimulation/sos"
)

const (
	notStarted     = "Sandbox not started"
	alreadyStarted = "Sandbox already started"
	alreadyExited  = "Sandbox session already exited"
)

// refuses checks what is refused of a sandbox that does not run.
func (s *suite) refusesCommands(id string) {
	s.Helper()
	_, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "true"})
	s.fails("exec", err, sos.CodeNotStarted, notStarted)
	_, err = s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "true", Standalone: true})
	s.fails("exec standalone", err, sos.CodeNotStarted, notStarted)
	_, err = s.Service.CreateSession(s.ctx, id, "other")
	s.fails("create session", err, sos.CodeNotStarted, notStarted)
	s.fails("interrupt", s.Service.InterruptSession(s.ctx, id, sos.DefaultSession), sos.CodeNotStarted, notStarted)
}

// status checks the status of a sandbox.
func (s *suite) status(id string, want sos.Status) sos.Sandbox {
	s.Helper()
	sb := s.get(id)
	if sb.Status != want {
		s.Errorf("status is %s (%s: %s), want %s", sb.Status, sb.Reason, sb.Message, want)
	}
	return sb
}

func (s *suite) stop(id string, remove bool) {
	s.Helper()
	if _, err := s.Service.StopSandbox(s.ctx, id, sos.StopRequest{Remove: remove}); err != nil {
		s.Fatalf("stop: %v", err)
	}
}

// entries checks the number of commands in the trajectory.
func (s *suite) entries(id string, want int) {
	s.Helper()
	tr, err := s.Service.Trajectory(s.ctx, id)
	if err != nil || len(tr.Entries) != want {
		s.Errorf("trajectory has %d entries, %v; want %d", len(tr.Entries), err, want)
	}
}

func statesCreated(s *suite) {
	id := s.create(sos.SandboxSpec{}).ID
	s.refusesCommands(id)
	s.stop(id, false)
	s.status(id, sos.StatusCreated)
	s.entries(id, 0)
	s.start(id)
	s.status(id, sos.StatusStarted)

	id = s.create(sos.SandboxSpec{}).ID
	s.stop(id, true)
	_, err := s.Service.GetSandbox(s.ctx, id)
	s.fails("get after removal", err, sos.CodeNotFound, "")
}

func statesStarted(s *suite) {
	id := s.started()
	sb := s.status(id, sos.StatusStarted)
	if sb.StartedAt == nil || sb.Reason != "" || sb.ImageDigest == "" {
		s.Errorf("started: %+v", sb)
	}
	_, err := s.Service.StartSandbox(s.ctx, id)
	s.fails("second start", err, sos.CodeAlreadyStarted, alreadyStarted)
	s.want(id, "echo hi", "hi", 0)
	s.entries(id, 1)
	s.status(id, sos.StatusStarted)
	s.stop(id, false)
	if sb := s.status(id, sos.StatusStopped); sb.Reason != sos.ReasonUser || sb.StoppedAt == nil {
		s.Errorf("stopped: %+v", sb)
	}
}

func statesExited(s *suite) {
	id := s.started()
	if got := s.exec(id, "echo hi; exit 7; echo bye"); !got.Exited || got.Output != "hi" || got.ExitCode != 7 {
		s.Errorf("exit gave %+v", got)
	}
	s.status(id, sos.StatusExited)
	_, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "true"})
	s.fails("exec", err, sos.CodeSessionExited, alreadyExited)
	if got := s.do(id, sos.ExecRequest{Command: "echo alive", Standalone: true}); got.Output != "alive\n" || got.Exited {
		s.Errorf("standalone gave %+v", got)
	}
	_, err = s.Service.StartSandbox(s.ctx, id)
	s.fails("start", err, sos.CodeAlreadyStarted, alreadyStarted)
	s.entries(id, 1)
	s.stop(id, false)
	s.status(id, sos.StatusStopped)
	s.start(id) // somebody asked for it: a new session
	s.want(id, "echo again", "again", 0)
	s.status(id, sos.StatusStarted)
}

func statesStopped(s *suite) {
	id := s.started()
	s.want(id, "echo one", "one", 0)
	s.stop(id, false)
	s.refusesCommands(id)
	s.stop(id, false)
	s.status(id, sos.StatusStopped)
	s.entries(id, 1)
	s.start(id)
	s.want(id, "echo two", "two", 0)
	s.entries(id, 2)
	s.stop(id, false)
	s.stop(id, true)
	_, err := s.Service.GetSandbox(s.ctx, id)
	s.fails("get after removal", err, sos.CodeNotFound, "")
}

func statesRemoved(s *suite) {
	id := s.started()
	s.stop(id, true)
	s.gone(id)
}

func statesUnknown(s *suite) { s.gone("non-existent-id") }

// gone checks that every operation says that there is no such sandbox.
func (s *suite) gone(ref string) {
	s.Helper()
	words := "Sandbox " + ref + " not found"
	_, err := s.Service.GetSandbox(s.ctx, ref)
	s.fails("get", err, sos.CodeNotFound, words)
	_, err = s.Service.StartSandbox(s.ctx, ref)
	s.fails("start", err, sos.CodeNotFound, words)
	_, err = s.Service.StopSandbox(s.ctx, ref, sos.StopRequest{})
	s.fails("stop", err, sos.CodeNotFound, words)
	_, err = s.Service.StopSandbox(s.ctx, ref, sos.StopRequest{Remove: true})
	s.fails("stop with remove", err, sos.CodeNotFound, words)
	s.fails("remove", s.Service.RemoveSandbox(s.ctx, ref), sos.CodeNotFound, words)
	_, err = s.Service.Exec(s.ctx, ref, sos.ExecRequest{Command: "true"})
	s.fails("exec", err, sos.CodeNotFound, words)
	_, err = s.Service.Exec(s.ctx, ref, sos.ExecRequest{Command: "true", Standalone: true})
	s.fails("exec standalone", err, sos.CodeNotFound, words)
	_, err = s.Service.Trajectory(s.ctx, ref)
	s.fails("trajectory", err, sos.CodeNotFound, words)
	_, err = s.Service.ListProcesses(s.ctx, ref, sos.ProcessFilter{})
	s.fails("processes", err, sos.CodeNotFound, words)
	_, err = s.Service.ListSessions(s.ctx, ref)
	s.fails("sessions", err, sos.CodeNotFound, words)
	_, err = s.Service.CreateSession(s.ctx, ref, "x")
	s.fails("create session", err, sos.CodeNotFound, words)
	s.fails("remove session", s.Service.RemoveSession(s.ctx, ref, "x"), sos.CodeNotFound, words)
	s.fails("interrupt", s.Service.InterruptSession(s.ctx, ref, "x"), sos.CodeNotFound, words)
}

func statesFailedSetup(s *suite) {
	id := s.create(sos.SandboxSpec{SetupCommands: []string{"echo before", "echo here; false", "echo never"}}).ID
	for range 2 { // it can be tried again, from a clean beginning
		_, err := s.Service.StartSandbox(s.ctx, id)
		s.fails("start", err, sos.CodeSetupFailed, "Setup commands failed: before\nhere\n")
		sb := s.status(id, sos.StatusFailed)
		if sb.Reason != sos.ReasonSetupFailed || sb.LastStandaloneExitCode == nil || *sb.LastStandaloneExitCode != 1 {
			s.Errorf("after the failure: %+v", sb)
		}
		s.refusesCommands(id)
	}
	s.stop(id, false)
	s.entries(id, 0)
	s.stop(id, true)
}

func statesBadImage(s *suite) {
	for _, image := range []string{"", "UPPER CASE/!!"} {
		sb, err := s.Service.CreateSandbox(s.ctx, sos.SandboxSpec{Image: image})
		if err != nil {
			s.Fatalf("create with image %q: %v", image, err)
		}
		_, err = s.Service.StartSandbox(s.ctx, sb.ID)
		s.fails("start", err, sos.CodeImageFailed, "")
		if !strings.HasPrefix(sos.ErrorMessage(err), "Failed to pull image") {
			s.Errorf("the message is %q", sos.ErrorMessage(err))
		}
		if got := s.status(sb.ID, sos.StatusCreated); got.Reason != sos.ReasonImageFailed {
			s.Errorf("after the failure: %+v", got)
		}
		s.refusesCommands(sb.ID)
		s.stop(sb.ID, true)
	}
}

func startRace(s *suite) {
	id := s.create(sos.SandboxSpec{}).ID
	var mu sync.Mutex
	won := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := s.Service.StartSandbox(s.ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else {
				s.fails("a second start", err, sos.CodeAlreadyStarted, alreadyStarted)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		s.Errorf("%d starts succeeded", won)
	}
	s.want(id, "echo ok", "ok", 0)
}

func stopKeepsFiles(s *suite) {
	id := s.started()
	s.want(id, "cd /tmp; echo kept > f; V=1", "", 0)
	s.want(id, "cd /root; echo kept > g", "", 0)
	s.stop(id, false)
	s.start(id)
	s.want(id, "cat /root/g", "kept", 0)
	if got := s.exec(id, "echo \"$V\""); got.Output != "" {
		s.Errorf("a variable came through the stop: %q", got.Output)
	}
}

func stopEndsWhatRuns(s *suite)   { s.endsWhatRuns(false) }
func removeEndsWhatRuns(s *suite) { s.endsWhatRuns(true) }

func (s *suite) endsWhatRuns(remove bool) {
	s.Helper()
	id := s.started()
	s.want(id, "true", "", 0)
	errs := make(chan error, 2)
	for _, standalone := range []bool{false, true} {
		go func() {
			_, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "sleep 600", Standalone: standalone})
			errs <- err
		}()
	}
	s.soon("both run", func() bool {
		l, err := s.Service.ListProcesses(s.ctx, id, sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessRunning}})
		return err == nil && len(l) == 2 && l[0].StartedAt != nil && l[1].StartedAt != nil
	})
	s.stop(id, remove)
	for range 2 {
		s.fails("a command in flight", <-errs, sos.CodeSandboxStopped, "")
	}
	if remove {
		return
	}
	l, err := s.Service.ListProcesses(s.ctx, id, sos.ProcessFilter{Kinds: []sos.ProcessKind{sos.KindSession, sos.KindStandalone}})
	if err != nil || len(l) != 3 {
		s.Fatalf("processes %+v, %v", l, err)
	}
	for _, p := range l[1:] {
		if p.Status != sos.ProcessExited || p.Reason != sos.EndSandboxStopped || p.EndedAt == nil {
			s.Errorf("recorded %+v", p)
		}
	}
}

func setupOnce(s *suite) {
	id := s.create(sos.SandboxSpec{SetupCommands: []string{"cd /root", "V=here", "echo $V > mark"}}).ID
	s.start(id)
	if sb := s.get(id); sb.LastStandaloneExitCode == nil || *sb.LastStandaloneExitCode != 0 || sb.SessionCommandCount != 0 {
		s.Errorf("counters after the set-up: %+v", sb)
	}
	s.want(id, "cat /root/mark", "here", 0)
	s.want(id, "pwd", "/", 0)
	l, err := s.Service.ListProcesses(s.ctx, id, sos.ProcessFilter{Kinds: []sos.ProcessKind{sos.KindSetup}})
	if err != nil || len(l) != 3 || l[2].Command != "echo $V > mark" {
		s.Errorf("set-up is recorded as %+v, %v", l, err)
	}
	s.want(id, "echo mine > /root/mark", "", 0)
	s.stop(id, false)
	s.start(id)
	s.want(id, "cat /root/mark", "mine", 0)
}
