package servicetest

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
)

func processes(s *suite) {
	id := s.create(sos.SandboxSpec{SetupCommands: []string{"true"}}).ID
	s.start(id)
	s.want(id, "echo one", "one", 0)
	res := s.do(id, sos.ExecRequest{Command: "echo two; exit 2", Standalone: true})
	if _, err := s.Service.CreateSession(s.ctx, id, "other"); err != nil {
		s.Fatal(err)
	}
	s.do(id, sos.ExecRequest{Command: "false", Session: "other"})
	kinds := func(f sos.ProcessFilter) (l []sos.ProcessKind) {
		all, err := s.Service.ListProcesses(s.ctx, id, f)
		if err != nil {
			s.Fatal(err)
		}
		for i, p := range all {
			l = append(l, p.Kind)
			if p.Sandbox != id || p.Status != sos.ProcessExited || p.EndedAt == nil || i > 0 && p.Seq <= all[i-1].Seq {
				s.Errorf("process %+v", p)
			}
		}
		return l
	}
	for _, c := range []struct {
		f    sos.ProcessFilter
		want []sos.ProcessKind
	}{
		{sos.ProcessFilter{}, []sos.ProcessKind{sos.KindSetup, sos.KindSession, sos.KindStandalone, sos.KindSession}},
		{sos.ProcessFilter{Kinds: []sos.ProcessKind{sos.KindStandalone, sos.KindSetup}}, []sos.ProcessKind{sos.KindSetup, sos.KindStandalone}},
		{sos.ProcessFilter{Session: "other"}, []sos.ProcessKind{sos.KindSession}},
		{sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessRunning}}, nil},
	} {
		if got := kinds(c.f); !slices.Equal(got, c.want) {
			s.Errorf("%+v gave %v, want %v", c.f, got, c.want)
		}
	}
	all, _ := s.Service.ListProcesses(s.ctx, id, sos.ProcessFilter{Kinds: []sos.ProcessKind{sos.KindStandalone}})
	p, err := s.Service.GetProcess(s.ctx, id, all[0].ID)
	if err != nil || p.Command != "echo two; exit 2" || p.ExitCode == nil || *p.ExitCode != 2 || p.Reason != sos.EndExit ||
		len(p.Output) != 1 || p.Output[0] != (sos.Output{Stream: sos.StreamOut, Bytes: 4, Seen: 4}) {
		s.Errorf("process %+v, %v", p, err)
	}
	if res.Process != "" && res.Process != p.ID {
		s.Errorf("the answer names process %s, the record %s", res.Process, p.ID)
	}
	_, err = s.Service.GetProcess(s.ctx, id, sos.NewID(sos.ProcessIDPrefix, nil))
	s.fails("an unknown process", err, sos.CodeNotFound, "")
}

// last gives the newest process.
func (s *suite) last(id string) sos.Process {
	s.Helper()
	l, err := s.Service.ListProcesses(s.ctx, id, sos.ProcessFilter{})
	if err != nil || len(l) == 0 {
		s.Fatalf("processes %v, %v", l, err)
	}
	return l[len(l)-1]
}

func output(s *suite) {
	id := s.started()
	s.do(id, sos.ExecRequest{Command: "echo 0123456789", Standalone: true})
	p := s.last(id)
	for _, c := range []struct {
		offset int64
		want   string
		end    int64
	}{{0, "0123456789\n", 11}, {5, "56789\n", 11}, {11, "", 11}} {
		var b bytes.Buffer
		end, err := s.Service.ReadOutput(s.ctx, id, p.ID, sos.StreamOut, c.offset, false, &b)
		if err != nil || b.String() != c.want || end != c.end {
			s.Errorf("from %d: %q to %d, %v; want %q to %d", c.offset, b.String(), end, err, c.want, c.end)
		}
	}
	_, err := s.Service.ReadOutput(s.ctx, id, p.ID, sos.StreamOut, -1, false, &bytes.Buffer{})
	s.fails("a negative offset", err, sos.CodeInvalid, "")
	_, err = s.Service.ReadOutput(s.ctx, id, p.ID, "other", 0, false, &bytes.Buffer{})
	s.fails("an unknown stream", err, sos.CodeInvalid, "")
	_, err = s.Service.ReadOutput(s.ctx, id, sos.NewID(sos.ProcessIDPrefix, nil), sos.StreamOut, 0, true, &bytes.Buffer{})
	s.fails("an unknown process", err, sos.CodeNotFound, "")
}

// notify tells when something was written.
type notify struct {
	bytes.Buffer
	first chan struct{}
}

func (n *notify) Write(b []byte) (int, error) {
	if n.Len() == 0 && len(b) > 0 {
		close(n.first)
	}
	return n.Buffer.Write(b)
}

func outputFollows(s *suite) {
	id := s.started()
	go s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "echo one; sleep 0.5; echo two", Standalone: true})
	p := s.running(id)
	n := &notify{first: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		end, err := s.Service.ReadOutput(s.ctx, id, p.ID, sos.StreamOut, 0, true, n)
		if err == nil && end != 8 {
			s.Errorf("ended at %d", end)
		}
		done <- err
	}()
	<-n.first // before the command has ended
	if q, err := s.Service.GetProcess(s.ctx, id, p.ID); err != nil || q.Status != sos.ProcessRunning {
		s.Errorf("output came, and the process is %s, %v", q.Status, err)
	}
	if err := <-done; err != nil || n.String() != "one\ntwo\n" {
		s.Errorf("followed %q, %v", n.String(), err)
	}
	// A follower that goes away ends alone.
	go s.Service.Exec(s.ctx, id, sos.ExecRequest{Command: "sleep 600", Standalone: true})
	p = s.running(id)
	ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
	defer cancel()
	_, err := s.Service.ReadOutput(ctx, id, p.ID, sos.StreamOut, 0, true, &bytes.Buffer{})
	s.fails("a follower that goes", err, sos.CodeCanceled, "")
}

func recordsOutlive(s *suite) {
	id := s.started()
	s.do(id, sos.ExecRequest{Command: "echo kept; exit 4", Standalone: true})
	s.want(id, "echo told", "told", 0)
	s.stop(id, false)
	l, err := s.Service.ListProcesses(s.ctx, id, sos.ProcessFilter{})
	if err != nil || len(l) != 2 || l[0].ExitCode == nil || *l[0].ExitCode != 4 {
		s.Fatalf("processes %+v, %v", l, err)
	}
	var b strings.Builder
	if _, err := s.Service.ReadOutput(s.ctx, id, l[0].ID, sos.StreamOut, 0, true, &b); err != nil || b.String() != "kept\n" {
		s.Errorf("output %q, %v", b.String(), err)
	}
	s.entries(id, 1)
	if got := s.sessionNames(id); !slices.Equal(got, []string{"default"}) {
		s.Errorf("sessions %v", got)
	}
	if sb := s.get(id); sb.SessionCommandCount != 1 || sb.LastStandaloneExitCode == nil || *sb.LastStandaloneExitCode != 4 {
		s.Errorf("counters %+v", sb)
	}
}

func trajectory(s *suite) {
	id := s.create(sos.SandboxSpec{SetupCommands: []string{"echo set-up"}}).ID
	s.start(id)
	commands := []string{"cd /tmp", "echo a; echo b", "", "false", "echo bye; exit 3"}
	for _, c := range commands {
		s.exec(id, c)
	}
	s.do(id, sos.ExecRequest{Command: "echo alone", Standalone: true})
	tr, err := s.Service.Trajectory(s.ctx, id)
	if err != nil || tr.Sandbox != id || len(tr.Entries) != len(commands) {
		s.Fatalf("trajectory %+v, %v", tr, err)
	}
	outputs := []string{"", "a\nb", "", "", "bye"}
	var before sos.Duration
	for i, e := range tr.Entries {
		if e.Index != i || e.Process.Command != commands[i] || e.Output != outputs[i] || !e.HasResult || e.Process.SinceStart < before {
			s.Errorf("entry %d: %+v", i, e)
		}
		before = e.Process.SinceStart
	}
	if c := tr.Entries[4].Process.ExitCode; c == nil || *c != 3 {
		s.Errorf("exit code of the last one: %v", c)
	}
}
