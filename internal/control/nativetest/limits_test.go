package nativetest

import (
	"context"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
)

// sandbox is one that runs, with a deadline against hangs.
type sandbox struct {
	t   *testing.T
	h   *host
	id  string
	ctx context.Context
}

func (h *host) started(t *testing.T, spec sos.SandboxSpec) *sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	spec.Image = debian
	s, err := h.CreateSandbox(ctx, spec)
	if err == nil {
		_, err = h.StartSandbox(ctx, s.ID)
	}
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := h.RemoveSandbox(context.Background(), s.ID); err != nil {
			t.Error(err)
		}
	})
	return &sandbox{t, h, s.ID, ctx}
}

func (s *sandbox) exec(q sos.ExecRequest) sos.ExecResult {
	s.t.Helper()
	res, err := s.h.Exec(s.ctx, s.id, q)
	if err != nil {
		s.t.Fatalf("%q: %v", q.Command, err)
	}
	return res
}

func (s *sandbox) want(command, output string, code int) {
	s.t.Helper()
	if got := s.exec(sos.ExecRequest{Command: command}); got.Output != output || got.ExitCode != code {
		s.t.Errorf("%q gave %+v, want %q with %d", command, got, output, code)
	}
}

func testLimits(t *testing.T, h *host) {
	t.Run("set-up", func(t *testing.T) {
		s := h.started(t, sos.SandboxSpec{SetupCommands: []string{
			"cd /root", "sleep 300 & echo $! > pid", "yes | head -1 > /dev/null", "echo 'export FROM_RC=yes' >> ~/.bashrc", "# a comment", "exit 0", "false",
		}})
		s.want("kill -0 $(cat /root/pid) && echo alive", "alive", 0)
		s.want("echo $FROM_RC; pwd; echo $-", "yes\n/\nhiBs", 0)
		s.want("yes | head -1", "y", 141)
	})
	t.Run("fork bomb", func(t *testing.T) {
		s := h.started(t, sos.SandboxSpec{Limits: sos.Limits{PIDs: 100}})
		s.want("V=kept", "", 0)
		for _, alone := range []bool{true, false} {
			got := s.exec(sos.ExecRequest{Command: "b() { b | b & }; b; sleep 60", Standalone: alone, Timeout: sos.Duration(time.Second)})
			if !alone && got.Exited { // it may take its own shell with it, and says so
				continue
			}
			if !got.TimedOut && got.ExitCode == 0 {
				t.Errorf("standalone %v: %+v", alone, got)
			}
		}
		deadline := time.Now().Add(30 * time.Second)
		for {
			res, err := h.Exec(s.ctx, s.id, sos.ExecRequest{Command: "echo help", Standalone: true, Timeout: sos.Duration(5 * time.Second)})
			if err == nil && res.Output == "help\n" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("nothing can be run any more: %+v, %v", res, err)
			}
		}
		if _, err := h.StopSandbox(s.ctx, s.id, sos.StopRequest{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		s := h.started(t, sos.SandboxSpec{Limits: sos.Limits{Memory: 128 << 20}})
		for range 2 {
			got := s.exec(sos.ExecRequest{Command: "tail /dev/zero", Standalone: true})
			if !got.OOMKilled || got.Reason != sos.EndOOM {
				t.Errorf("out of memory gave %+v", got)
			}
		}
		if got := s.exec(sos.ExecRequest{Command: "kill -9 $$", Standalone: true}); got.OOMKilled || got.Reason != sos.EndSignal || got.ExitCode != 137 {
			t.Errorf("a plain kill gave %+v", got)
		}
		s.want("echo alive", "alive", 0)
	})
	t.Run("disk", func(t *testing.T) {
		s := h.started(t, sos.SandboxSpec{Limits: sos.Limits{Disk: 64 << 20}})
		s.want("V=kept", "", 0)
		got := s.exec(sos.ExecRequest{Command: "while :; do head -c 4M /dev/zero >> /root/big; sleep 0.02; done"})
		if got.Reason != sos.EndDiskLimit || got.Exited {
			t.Errorf("beyond the limit: %+v", got)
		}
		s.want("rm /root/big; echo $V", "kept", 0)
		// What goes on in the background costs the sandbox its run, not its files.
		s.want("(while :; do head -c 4M /dev/zero >> /root/big; sleep 0.02; done) > /dev/null 2>&1 & sleep 0.1", "", 0)
		for {
			v, err := h.GetSandbox(s.ctx, s.id)
			if err != nil {
				t.Fatal(err)
			}
			if v.Status == sos.StatusStopped {
				if v.Reason != sos.ReasonDiskLimit {
					t.Errorf("stopped: %+v", v)
				}
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	t.Run("stop is quick", func(t *testing.T) {
		s := h.started(t, sos.SandboxSpec{})
		go h.Exec(s.ctx, s.id, sos.ExecRequest{Command: "trap '' TERM INT; sleep 600 & wait", Standalone: true})
		for {
			if l, _ := h.ListProcesses(s.ctx, s.id, sos.ProcessFilter{}); len(l) == 1 && l[0].StartedAt != nil {
				break
			}
		}
		began := time.Now()
		if _, err := h.StopSandbox(s.ctx, s.id, sos.StopRequest{}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("stop took %v", d)
		}
	})
}
