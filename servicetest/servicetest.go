// Package servicetest is the suite that holds for every sos.Service: for the
// control plane in the server, and for the client that reaches it over HTTP.
package servicetest

import (
	"context"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
)

// Env is a service to test. It may hold other sandboxes than those of the suite.
type Env struct {
	Service sos.Service
	// Image is the name of an image with bash that the service has.
	Image string
	// Real: its sandboxes run real programs. Else they understand echo, cat, cd,
	// pwd, true, false, exit, sleep, spam, assignments and "> FILE".
	Real bool
}

// Run runs the suite. open gives the service of one case; it may give the same
// one each time.
func Run(t *testing.T, open func(t *testing.T) Env) {
	for _, c := range []struct {
		name string
		run  func(*suite)
	}{
		{"create", create},
		{"create refuses bad input", createBadInput},
		{"create by name reconnects", createReconnects},
		{"parallel creates of one name", createRace},
		{"name is free after removal", nameReuse},
		{"references", references},
		{"list", list},
		{"states: created", statesCreated},
		{"states: started", statesStarted},
		{"states: exited", statesExited},
		{"states: stopped", statesStopped},
		{"states: removed", statesRemoved},
		{"states: unknown", statesUnknown},
		{"states: failed set-up", statesFailedSetup},
		{"states: bad image", statesBadImage},
		{"parallel starts of one sandbox", startRace},
		{"stop keeps files", stopKeepsFiles},
		{"stop ends what runs", stopEndsWhatRuns},
		{"remove ends what runs", removeEndsWhatRuns},
		{"set-up runs once in one shell", setupOnce},
		{"session keeps state", sessionKeepsState},
		{"session text", sessionText},
		{"session queues in order", sessionQueues},
		{"session exit", sessionExit},
		{"standalone", standalone},
		{"env, cwd and stdin", execOptions},
		{"exec refuses bad input", execBadInput},
		{"timeout", timeout},
		{"caller gone", callerGone},
		{"many standalone at once", manyStandalone},
		{"sessions", sessions},
		{"parallel opening of one session", sessionRace},
		{"interrupt", interrupt},
		{"processes", processes},
		{"output", output},
		{"output follows", outputFollows},
		{"records outlive the stop", recordsOutlive},
		{"trajectory", trajectory},
		{"images", images},
		{"info", info},
		{"real shell", realShell},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{T: t, Env: open(t)}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // against hangs only
			defer cancel()
			s.ctx = ctx
			c.run(s)
		})
	}
}

// suite is one case under way.
type suite struct {
	*testing.T
	Env
	ctx context.Context
}

func (s *suite) create(spec sos.SandboxSpec) sos.Sandbox {
	s.Helper()
	if spec.Image == "" {
		spec.Image = s.Image
	}
	sb, err := s.Service.CreateSandbox(s.ctx, spec)
	if err != nil {
		s.Fatalf("create: %v", err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Service.RemoveSandbox(ctx, sb.ID); err != nil && sos.ErrorCode(err) != sos.CodeNotFound {
			s.Errorf("clean up: %v", err)
		}
	})
	return sb
}

func (s *suite) start(id string) sos.Sandbox {
	s.Helper()
	sb, err := s.Service.StartSandbox(s.ctx, id)
	if err != nil {
		s.Fatalf("start: %v", err)
	}
	return sb
}

func (s *suite) started() string {
	s.Helper()
	id := s.create(sos.SandboxSpec{}).ID
	s.start(id)
	return id
}

func (s *suite) get(id string) sos.Sandbox {
	s.Helper()
	sb, err := s.Service.GetSandbox(s.ctx, id)
	if err != nil {
		s.Fatalf("get: %v", err)
	}
	return sb
}

func (s *suite) do(id string, r sos.ExecRequest) sos.ExecResult {
	s.Helper()
	res, err := s.Service.Exec(s.ctx, id, r)
	if err != nil {
		s.Fatalf("exec %q: %v", r.Command, err)
	}
	return res
}

func (s *suite) exec(id, command string) sos.ExecResult {
	s.Helper()
	return s.do(id, sos.ExecRequest{Command: command})
}

// want runs a session command and compares output and exit code.
func (s *suite) want(id, command, output string, code int) {
	s.Helper()
	if got := s.exec(id, command); got.Output != output || got.ExitCode != code {
		s.Errorf("%q gave %q with %d, want %q with %d", command, got.Output, got.ExitCode, output, code)
	}
}

// fails checks the code of an error, and its message unless that is empty.
func (s *suite) fails(what string, err error, code sos.Code, message string) {
	s.Helper()
	if sos.ErrorCode(err) != code || message != "" && sos.ErrorMessage(err) != message {
		s.Errorf("%s: got %q (%s), want %q (%s)", what, sos.ErrorMessage(err), sos.ErrorCode(err), message, code)
	}
}

// soon waits for a condition.
func (s *suite) soon(what string, cond func() bool) {
	s.Helper()
	for s.ctx.Err() == nil {
		if cond() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.Fatalf("never: %s", what)
}

// running waits until the newest process runs, and gives it.
func (s *suite) running(id string) (p sos.Process) {
	s.Helper()
	s.soon("a command runs", func() bool {
		l, err := s.Service.ListProcesses(s.ctx, id, sos.ProcessFilter{Statuses: []sos.ProcessStatus{sos.ProcessRunning}})
		if err != nil {
			s.Fatal(err)
		}
		if len(l) == 0 {
			return false
		}
		p = l[len(l)-1]
		return p.StartedAt != nil
	})
	return p
}
