package servicetest

import (
	"slices"
	"sync"

	"github.com/seaofsimulation/sos"
)

func (s *suite) sessionNames(id string) (names []string) {
	s.Helper()
	l, err := s.Service.ListSessions(s.ctx, id)
	if err != nil {
		s.Fatal(err)
	}
	for _, v := range l {
		names = append(names, v.Name)
	}
	return names
}

func sessions(s *suite) {
	id := s.started()
	s.want(id, "V=default", "", 0)
	v, err := s.Service.CreateSession(s.ctx, id, "other")
	if err != nil || v.Name != "other" || v.Status != "running" || v.Sandbox != id {
		s.Fatalf("created %+v, %v", v, err)
	}
	in := func(session, command string) sos.ExecResult {
		s.Helper()
		return s.do(id, sos.ExecRequest{Command: command, Session: session})
	}
	in("other", "V=other; cd /tmp")
	if got := in("other", "echo $V; pwd"); got.Output != "other\n/tmp" {
		s.Errorf("other has %q", got.Output)
	}
	if got := in(sos.DefaultSession, "echo $V; pwd"); got.Output != "default\n/" {
		s.Errorf("default has %q", got.Output)
	}
	if got := s.sessionNames(id); !slices.Equal(got, []string{"default", "other"}) {
		s.Errorf("sessions %v", got)
	}
	again, err := s.Service.CreateSession(s.ctx, id, "other")
	if err != nil || again.Status != "running" || in("other", "echo $V").Output != "other" {
		s.Errorf("creating it again gave %+v, %v", again, err)
	}
	if got := in("other", "exit 4"); !got.Exited || got.ExitCode != 4 {
		s.Errorf("exit gave %+v", got)
	}
	_, err = s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "true", Session: "other"})
	s.fails("exec after exit", err, sos.CodeSessionExited, alreadyExited)
	if sb := s.get(id); sb.Status != sos.StatusStarted {
		s.Errorf("the exit of a named session made the sandbox %s", sb.Status)
	}
	if err := s.Service.RemoveSession(s.ctx, id, "other"); err != nil {
		s.Fatal(err)
	}
	s.fails("removing it again", s.Service.RemoveSession(s.ctx, id, "other"), sos.CodeNotFound, "")
	_, err = s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "true", Session: "other"})
	s.fails("exec after removal", err, sos.CodeNotFound, "")
	for range 3 { // the name is free at once
		if _, err := s.Service.CreateSession(s.ctx, id, "other"); err != nil {
			s.Fatal(err)
		}
		if got := in("other", "echo \"$V\""); got.Output != "" {
			s.Errorf("the new shell knows %q", got.Output)
		}
		in("other", "V=again")
		if err := s.Service.RemoveSession(s.ctx, id, "other"); err != nil {
			s.Fatal(err)
		}
	}
	_, err = s.Service.CreateSession(s.ctx, id, "No Name")
	s.fails("a bad name", err, sos.CodeInvalid, "")
	s.fails("removing the default session", s.Service.RemoveSession(s.ctx, id, sos.DefaultSession), sos.CodeConflict, "")
}

func sessionRace(s *suite) {
	id := s.started()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.Service.CreateSession(s.ctx, id, "one"); err != nil {
				s.Error(err)
			}
			// Each adds its mark to the state of the one shell.
			if _, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "echo $MARK; MARK=set", Session: "one"}); err != nil {
				s.Error(err)
			}
		})
	}
	wg.Wait()
	tr, err := s.Service.Trajectory(s.ctx, id)
	if err != nil || len(tr.Entries) != 20 {
		s.Fatalf("trajectory has %d entries, %v", len(tr.Entries), err)
	}
	fresh := 0
	for _, e := range tr.Entries {
		if e.Output == "" {
			fresh++
		}
	}
	if fresh != 1 {
		s.Errorf("%d shells", fresh)
	}
	if got := s.sessionNames(id); !slices.Equal(got, []string{"default", "one"}) {
		s.Errorf("sessions %v", got)
	}
}

func interrupt(s *suite) {
	id := s.started()
	s.want(id, "V=kept", "", 0)
	if err := s.Service.InterruptSession(s.ctx, id, sos.DefaultSession); err != nil {
		s.Errorf("with nothing to interrupt: %v", err)
	}
	results := make(chan sos.ExecResult, 1)
	go func() {
		got, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "echo begun; sleep 600"})
		if err != nil {
			s.Error(err)
		}
		results <- got
	}()
	s.running(id)
	if err := s.Service.InterruptSession(s.ctx, id, sos.DefaultSession); err != nil {
		s.Fatal(err)
	}
	if got := <-results; got.Reason != sos.EndCancelled || got.Exited || got.TimedOut || s.Real && got.Output != "begun" {
		s.Errorf("interrupted: %+v", got)
	}
	s.want(id, "echo $V", "kept", 0)
	s.fails("an unknown session", s.Service.InterruptSession(s.ctx, id, "other"), sos.CodeNotFound, "")
	s.exec(id, "exit")
	s.fails("an ended session", s.Service.InterruptSession(s.ctx, id, sos.DefaultSession), sos.CodeSessionExited, alreadyExited)
}
