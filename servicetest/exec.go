package servicetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
)

func sessionKeepsState(s *suite) {
	id := s.started()
	s.want(id, "pwd", "/", 0)
	s.want(id, "cd /root; WORD=kept", "", 0)
	s.want(id, "pwd", "/root", 0)
	s.want(id, "echo $WORD", "kept", 0)
	s.want(id, "false", "", 1)
	s.want(id, "true", "", 0)
	if sb := s.get(id); sb.SessionCommandCount != 6 || sb.LastStandaloneExitCode != nil {
		s.Errorf("counters: %+v", sb)
	}
}

func sessionText(s *suite) {
	id := s.started()
	s.want(id, "echo a; echo b", "a\nb", 0)
	s.want(id, "", "", 0)
	if got := s.exec(id, "spam 100000; echo"); !s.Real && len(got.Output) != 100000 {
		s.Errorf("%d bytes came back", len(got.Output))
	}
}

// sessionQueues sends commands at once: each gets its own output, and the
// trajectory is in the order in which they ran.
func sessionQueues(s *suite) {
	id := s.started()
	s.want(id, "true", "", 0)
	const n = 20
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			word := fmt.Sprintf("word%d", i)
			got, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "LAST=" + word + "; sleep 0.01; echo $LAST"})
			if err != nil || got.Output != word {
				s.Errorf("%s gave %+v, %v", word, got, err)
			}
		})
	}
	wg.Wait()
	last := s.exec(id, "echo $LAST").Output
	tr, err := s.Service.Trajectory(s.ctx, id)
	if err != nil || len(tr.Entries) != n+2 {
		s.Fatalf("trajectory has %d entries, %v", len(tr.Entries), err)
	}
	if got := tr.Entries[n].Output; got != last {
		s.Errorf("the last entry is %s, but %s ran last", got, last)
	}
	for i, e := range tr.Entries[1 : n+1] {
		if !strings.Contains(e.Process.Command, e.Output+";") || i > 0 && e.Process.StartedAt.Before(*tr.Entries[i].Process.StartedAt) {
			s.Errorf("entry %d: %q with %q", i+1, e.Process.Command, e.Output)
		}
	}
}

func sessionExit(s *suite) {
	for _, code := range []int{0, 3, 255} {
		id := s.started()
		got := s.exec(id, fmt.Sprintf("echo out; exit %d", code))
		if !got.Exited || got.ExitCode != code || got.Output != "out" || got.Reason != "" {
			s.Errorf("exit %d gave %+v", code, got)
		}
		if sb := s.get(id); sb.Status != sos.StatusExited {
			s.Errorf("status %s at once after the answer", sb.Status)
		}
		l, err := s.Service.ListSessions(s.ctx, id)
		if err != nil || len(l) != 1 || l[0].Status != "exited" || l[0].ExitCode == nil || *l[0].ExitCode != code {
			s.Errorf("sessions %+v, %v", l, err)
		}
	}
}

func standalone(s *suite) {
	id := s.started()
	run := func(command, output string, code int) {
		s.Helper()
		got := s.do(id, sos.ExecRequest{Command: command, Standalone: true})
		if got.Output != output || got.ExitCode != code || got.Exited {
			s.Errorf("%q gave %+v, want %q with %d", command, got, output, code)
		}
		sb := s.get(id)
		if sb.LastStandaloneExitCode == nil || *sb.LastStandaloneExitCode != code {
			s.Errorf("last_standalone_exit_code after %q: %v", command, sb.LastStandaloneExitCode)
		}
	}
	s.want(id, "cd /tmp", "", 0)
	run("pwd", "/\n", 0)
	run("exit 3", "", 3)
	run("false", "", 1)
	run("echo a; echo b", "a\nb\n", 0)
	run("", "", 0)
	if sb := s.get(id); sb.Status != sos.StatusStarted || sb.SessionCommandCount != 1 {
		s.Errorf("standalone commands changed %+v", sb)
	}
	s.entries(id, 1)
}

func execOptions(s *suite) {
	id := s.create(sos.SandboxSpec{Env: map[string]string{"A": "sandbox", "B": "sandbox"}, Workdir: "/tmp"}).ID
	s.start(id)
	for _, alone := range []bool{true, false} {
		out := func(r sos.ExecRequest) string {
			r.Standalone = alone
			return strings.TrimRight(s.do(id, r).Output, "\n")
		}
		if got := out(sos.ExecRequest{Command: "pwd; echo $A; echo $B", Env: map[string]string{"B": "request"}}); got != "/tmp\nsandbox\nrequest" {
			s.Errorf("standalone %v: %q", alone, got)
		}
		if got := out(sos.ExecRequest{Command: "echo $B"}); got != "sandbox" {
			s.Errorf("standalone %v: the request's variable stayed: %q", alone, got)
		}
		if got := out(sos.ExecRequest{Command: "cat", Stdin: []byte("given")}); got != "given" {
			s.Errorf("standalone %v: stdin gave %q", alone, got)
		}
		if got := out(sos.ExecRequest{Command: "cat"}); got != "" {
			s.Errorf("standalone %v: no stdin gave %q", alone, got)
		}
		if got := out(sos.ExecRequest{Command: "pwd", Cwd: "/root"}); got != "/root" {
			s.Errorf("standalone %v: cwd gave %q", alone, got)
		}
	}
}

func execBadInput(s *suite) {
	id := s.started()
	for name, r := range map[string]sos.ExecRequest{
		"NUL in the command":       {Command: "echo a\x00b"},
		"negative timeout":         {Command: "true", Timeout: -1},
		"standalone in a session":  {Command: "true", Standalone: true, Session: "x"},
		"user in a session":        {Command: "true", User: "nobody"},
		"variable without name":    {Command: "true", Env: map[string]string{"": "x"}},
		"variable with NUL":        {Command: "true", Env: map[string]string{"A": "x\x00"}},
		"NUL in the directory":     {Command: "true", Standalone: true, Cwd: "/a\x00"},
		"variable with = in name ": {Command: "true", Standalone: true, Env: map[string]string{"A=B": "x"}},
	} {
		_, err := s.Service.Exec(s.ctx, id, r)
		s.fails(name, err, sos.CodeInvalid, "")
	}
	_, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "echo " + strings.Repeat("x", 200<<10), Standalone: true})
	s.fails("a standalone command that is too long", err, sos.CodeTooLarge, "")
	_, err = s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "true", Session: "nobody-made-it"})
	s.fails("an unknown session", err, sos.CodeNotFound, "")
	s.entries(id, 0) // nothing of all this was accepted
	s.want(id, "echo fine", "fine", 0)
}

func timeout(s *suite) {
	id := s.started()
	s.want(id, "V=kept", "", 0)
	for _, alone := range []bool{false, true} {
		began := time.Now()
		got := s.do(id, sos.ExecRequest{Command: "echo first; sleep 60; echo never", Standalone: alone, Timeout: sos.Duration(300 * time.Millisecond)})
		if !got.TimedOut || got.Reason != sos.EndTimeout || strings.TrimSpace(got.Output) != "first" || got.Exited || got.DefaultTimeout {
			s.Errorf("standalone %v: %+v", alone, got)
		}
		if d := time.Since(began); d > 20*time.Second {
			s.Errorf("standalone %v: the answer took %v", alone, d)
		}
	}
	s.want(id, "echo $V", "kept", 0)
	tr, err := s.Service.Trajectory(s.ctx, id)
	if err != nil || len(tr.Entries) != 3 {
		s.Fatalf("trajectory %+v, %v", tr, err)
	}
	if e := tr.Entries[1]; e.Process.Reason != sos.EndTimeout || !e.HasResult || e.Output != "first" {
		s.Errorf("the timed-out command is recorded as %+v", e)
	}
}

// callerGone checks that a command belongs to the sandbox and not to its caller,
// and that its output never reaches another.
func callerGone(s *suite) {
	id := s.started()
	s.want(id, "true", "", 0)
	ctx, cancel := context.WithCancel(s.ctx)
	errs := make(chan error, 1)
	go func() {
		_, err := s.Service.Exec(ctx, id, sos.ExecRequest{Command: "sleep 0.5; echo first"})
		errs <- err
	}()
	p := s.running(id)
	cancel()
	s.fails("the caller that went", <-errs, sos.CodeCanceled, "")
	s.want(id, "echo second", "second", 0)
	got, err := s.Service.GetProcess(s.ctx, id, p.ID)
	if err != nil || got.Status != sos.ProcessExited || got.ExitCode == nil || *got.ExitCode != 0 {
		s.Errorf("the first command is recorded as %+v, %v", got, err)
	}
	tr, err := s.Service.Trajectory(s.ctx, id)
	if err != nil || len(tr.Entries) != 3 || tr.Entries[1].Output != "first" || tr.Entries[2].Output != "second" {
		s.Errorf("trajectory %+v, %v", tr, err)
	}
}

func manyStandalone(s *suite) {
	id := s.started()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			got, err := s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: fmt.Sprintf("echo %d; exit %d", i, i), Standalone: true})
			if err != nil || got.ExitCode != i || got.Output != fmt.Sprintln(i) {
				s.Errorf("%d gave %+v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
}
