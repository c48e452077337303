package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seaofsimulation/sos"
)

// service answers from fields and remembers what it was asked.
type service struct {
	sos.Service
	created   sos.SandboxSpec
	stopped   []sos.StopRequest
	execs     []sos.ExecRequest
	list      []sos.Sandbox
	result    sos.ExecResult
	results   map[string]sos.ExecResult
	err       error
	startErr  error
	traj      sos.Trajectory
	interrupt func()
	exec      func(ctx context.Context) (sos.ExecResult, error)
}

func (s *service) CreateSandbox(_ context.Context, spec sos.SandboxSpec) (sos.Sandbox, error) {
	s.created = spec
	return sos.Sandbox{ID: "sb-aaaabbbbccccdddd", SandboxSpec: spec}, s.err
}

func (s *service) ListSandboxes(context.Context, sos.SandboxFilter) ([]sos.Sandbox, error) {
	return s.list, s.err
}

func (s *service) StartSandbox(_ context.Context, ref string) (sos.Sandbox, error) {
	return sos.Sandbox{ID: ref, Status: sos.StatusStarted}, errors.Join(s.err, s.startErr)
}

func (s *service) StopSandbox(_ context.Context, ref string, r sos.StopRequest) (sos.Sandbox, error) {
	s.stopped = append(s.stopped, r)
	return sos.Sandbox{ID: ref}, s.err
}

func (s *service) Exec(ctx context.Context, _ string, r sos.ExecRequest) (sos.ExecResult, error) {
	s.execs = append(s.execs, r)
	if s.exec != nil {
		return s.exec(ctx)
	}
	if res, ok := s.results[r.Command]; ok {
		return res, nil
	}
	return s.result, s.err
}

func (s *service) InterruptSession(context.Context, string, string) error {
	s.interrupt()
	return nil
}

func (s *service) Trajectory(context.Context, string) (sos.Trajectory, error) { return s.traj, s.err }

type run struct {
	code     int
	out, err string
	server   string
}

func (s *service) run(tty bool, in io.Reader, args ...string) run {
	var out, errs bytes.Buffer
	var r run
	if in == nil {
		in = strings.NewReader("")
	}
	r.code = Main(args, IO{In: in, Out: &out, Err: &errs, OutTTY: tty,
		Getenv: func(k string) string { return map[string]string{"SOS_SERVER": "http://from-env", "PASSED": "on"}[k] },
		Dial:   func(url string) (sos.Service, error) { r.server = url; return s, nil },
	}, Build{Version: "1.2.3"})
	r.out, r.err = out.String(), errs.String()
	return r
}

func check(t *testing.T, got run, code int, out, err string) {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d (stderr %q)", got.code, code, got.err)
	}
	if d := cmp.Diff(out, got.out); d != "" {
		t.Errorf("stdout (-want +got):\n%s", d)
	}
	if d := cmp.Diff(err, got.err); d != "" {
		t.Errorf("stderr (-want +got):\n%s", d)
	}
}

const id = "sb-aaaabbbbccccdddd"

func TestCreateLines(t *testing.T) {
	s := &service{}
	check(t, s.run(true, nil, "sandbox", "create"), 0,
		"Creating sandbox with image: ubuntu:latest\n✓ Sandbox created with ID: "+id+"\n"+
			"  Use 'sos sandbox start "+id+"' to start it\n", "")
	got := s.run(false, nil, "sandbox", "create", "-i", "python:3.9", "-s", `echo "a"`, "-s", "b")
	check(t, got, 0, "Creating sandbox with image: python:3.9\nSetup commands: [\"echo \\\"a\\\"\", \"b\"]\n"+
		"Sandbox created with ID: "+id+"\n  Use 'sos sandbox start "+id+"' to start it\n", "")
	if field := strings.Fields(strings.Split(got.out, "\n")[2])[4]; field != id {
		t.Errorf("cut -d' ' -f5 gives %q", field)
	}
	check(t, s.run(true, nil, "sandbox", "create", "-q"), 0, id+"\n", "")
	s.run(false, nil, "sandbox", "create", "--cpu", "0.5", "--memory", "512Mi", "-e", "A=b=c", "-e", "PASSED", "--timeout", "90")
	want := sos.SandboxSpec{Image: "ubuntu:latest", SetupCommands: []string{}, Env: map[string]string{"A": "b=c", "PASSED": "on"},
		Limits: sos.Limits{CPU: 0.5, Memory: 512 << 20}, Timeout: sos.Duration(90 * time.Second)}
	if d := cmp.Diff(want, s.created); d != "" {
		t.Error(d)
	}
	s.err = &sos.Error{Code: sos.CodeInvalid, Message: "no"}
	check(t, s.run(true, nil, "sandbox", "create", "-q"), 1, "", "✗ Failed to create sandbox: no\n")
}

func TestListLines(t *testing.T) {
	s := &service{}
	check(t, s.run(true, nil, "sandbox", "list"), 0, "Listing all sandboxes...\nNo sandboxes found\n", "")
	check(t, s.run(true, nil, "sandbox", "list", "--json"), 0, "[]\n", "")
	s.list = []sos.Sandbox{
		{ID: id, SandboxSpec: sos.SandboxSpec{Image: "ubuntu:latest"}, Status: sos.StatusStarted},
		{ID: "x", SandboxSpec: sos.SandboxSpec{Image: "a\x1b[2Jb", SetupCommands: []string{"123456789012345678901234é", "cd /tmp"}}, Status: sos.StatusCreated},
	}
	check(t, s.run(false, nil, "sandbox", "list"), 0, "Listing all sandboxes...\n"+
		"ID                                   IMAGE                STATUS     SETUP\n"+strings.Repeat("-", 80)+"\n"+
		"sb-aaaabbbbccccdddd                  ubuntu:latest        started    none\n"+
		"x                                    a [2Jb               created    123456789012345678901234é ...\n", "")
	check(t, s.run(false, nil, "sandbox", "list", "-q"), 0, id+"\nx\n", "")
}

func TestStartAndStopLines(t *testing.T) {
	s := &service{}
	check(t, s.run(true, nil, "sandbox", "start", "X"), 0,
		"Starting sandbox: X\n✓ Sandbox X started successfully\n  Use 'sos sandbox exec X <command>' to run commands\n", "")
	check(t, s.run(false, nil, "sandbox", "stop", "X"), 0,
		"Stopping sandbox: X\nSandbox X stopped\n  Use 'sos sandbox trajectory X' to view command history\n", "")
	for _, args := range [][]string{{"-r", "X"}, {"X", "-r"}, {"-r", "true", "X"}, {"--remove", "true", "X"}, {"X", "--remove=true"}, {"-rtrue", "X"}} {
		check(t, s.run(false, nil, append([]string{"sandbox", "stop", "-q"}, args...)...), 0, "", "")
		if !s.stopped[len(s.stopped)-1].Remove {
			t.Errorf("%v: does not remove", args)
		}
	}
	for _, args := range [][]string{{"X"}, {"-r", "false", "X"}, {"X", "-r=false"}} {
		s.run(false, nil, append([]string{"sandbox", "stop"}, args...)...)
		if s.stopped[len(s.stopped)-1].Remove {
			t.Errorf("%v: removes", args)
		}
	}
	s.err = &sos.Error{Code: sos.CodeNotFound, Message: "Sandbox X not found", Fix: "list them"}
	check(t, s.run(false, nil, "sandbox", "stop", "X"), 1, "Stopping sandbox: X\n",
		"✗ Failed to stop sandbox: Sandbox X not found\n  Fix: list them\n")
}

func TestExecLinesAndCodes(t *testing.T) {
	s := &service{result: sos.ExecResult{Output: "hi"}}
	check(t, s.run(true, nil, "sandbox", "exec", "X", "echo hi"), 0, "Executing command in sandbox X: echo hi\nhi\n", "")
	check(t, s.run(true, nil, "sandbox", "exec", "-q", "X", "echo hi"), 0, "hi\n", "")
	s.result = sos.ExecResult{Output: "hi\n"}
	check(t, s.run(true, nil, "sandbox", "exec", "-q", "-s", "X", "echo hi"), 0, "hi\n", "")
	check(t, s.run(true, nil, "sandbox", "exec", "-s", "X", "echo hi"), 0, "Executing command in sandbox X: echo hi\nhi\n\n", "")
	s.result = sos.ExecResult{ExitCode: 3, Output: "x"}
	check(t, s.run(true, nil, "sandbox", "exec", "X", "c"), 3, "Executing command in sandbox X: c\nx\n", "Command failed with exit code: 3\n")
	for code, want := range map[int]int{-1: 255, 256 + 7: 7, 137: 137} {
		s.result = sos.ExecResult{ExitCode: code}
		if got := s.run(true, nil, "sandbox", "exec", "X", "c"); got.code != want {
			t.Errorf("exit code %d for %d, want %d", got.code, code, want)
		}
	}
	s.result = sos.ExecResult{ExitCode: -1, Reason: sos.EndSpawnFailed, Message: "no such directory"}
	check(t, s.run(true, nil, "sandbox", "exec", "X", "c"), 255, "Executing command in sandbox X: c\n", "Command failed with exit code: -1: no such directory\n")
	s.result = sos.ExecResult{ExitCode: -1, Reason: sos.EndSandboxStopped}
	check(t, s.run(true, nil, "sandbox", "exec", "X", "c"), 255, "Executing command in sandbox X: c\n", "Command failed with exit code: -1: sandbox_stopped\n")
	s.result = sos.ExecResult{ExitCode: 130, TimedOut: true, Output: "part"}
	check(t, s.run(true, nil, "sandbox", "exec", "--timeout", "2", "X", "c"), 124, "Executing command in sandbox X: c\npart\n", "Command timed out after 2s\n")
	if got := s.execs[len(s.execs)-1].Timeout; got != sos.Duration(2*time.Second) {
		t.Errorf("timeout %v", got)
	}
	s.err = &sos.Error{Code: sos.CodeNotStarted, Message: "Sandbox not started"}
	check(t, s.run(true, nil, "sandbox", "exec", "X", "c"), 1, "Executing command in sandbox X: c\n", "✗ Failed to execute command: Sandbox not started\n")
}

func TestExecStandaloneForms(t *testing.T) {
	for _, tc := range []struct {
		args       string
		standalone bool
		command    string
	}{
		{"exec X cmd", false, "cmd"},
		{"exec -s X cmd", true, "cmd"},
		{"exec X -s cmd", true, "cmd"},
		{"exec X cmd -s", true, "cmd"},
		{"exec -s true X cmd", true, "cmd"},
		{"exec -s false X cmd", false, "cmd"},
		{"exec --standalone X cmd", true, "cmd"},
		{"exec --standalone false X cmd", false, "cmd"},
		{"exec --standalone=false X cmd", false, "cmd"},
		{"exec -s=true X cmd", true, "cmd"},
		{"exec -strue X cmd", true, "cmd"},
		{"exec -s X true", true, "true"},
		{"exec X -s true", true, "true"},
		{"exec X -s true cmd", true, "cmd"},
		{"exec -s X -- true", true, "true"},
		{"exec X -- -s true", false, "-s true"},
		{"exec -sq X true", true, "true"},
		{"exec -e A=true -s X false", true, "false"},
		{"-s http://x exec -s X cmd", true, "cmd"},
		{"-s http://x exec X cmd", false, "cmd"},
		{"exec X -- ls -la", false, "ls -la"},
		{"exec X a 'b", false, `a ''\''b'`},
	} {
		s := &service{}
		got := s.run(false, nil, append([]string{"sandbox"}, strings.Fields(tc.args)...)...)
		if got.code != 0 || len(s.execs) != 1 {
			t.Errorf("%s: exit %d, %s", tc.args, got.code, got.err)
			continue
		}
		if s.execs[0].Standalone != tc.standalone || s.execs[0].Command != tc.command {
			t.Errorf("%s: standalone %v, command %q", tc.args, s.execs[0].Standalone, s.execs[0].Command)
		}
	}
}

func TestServerChoice(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"sandbox list", "http://from-env"},
		{"sandbox -s http://a list", "http://a"},
		{"sandbox --server http://a list", "http://a"},
		{"sandbox list --server http://b", "http://b"},
		{"sandbox -s http://a list --server http://b", "http://b"},
		{"session -s unix:///x", "unix:///x"},
	} {
		s := &service{}
		if got := s.run(false, nil, strings.Fields(tc.args)...); got.server != tc.want {
			t.Errorf("%s: %q, want %q (%s)", tc.args, got.server, tc.want, got.err)
		}
	}
}

func TestCompletion(t *testing.T) {
	s := &service{list: []sos.Sandbox{{ID: id, SandboxSpec: sos.SandboxSpec{Image: "debian", Name: "box"}, Status: sos.StatusStarted}}}
	got := s.run(false, nil, "__complete", "sandbox", "exec", "")
	if got.code != 0 || !strings.HasPrefix(got.out, id+"\tdebian, started\nbox\tdebian, started\n") {
		t.Errorf("%+v", got)
	}
}

func TestStdinOnlyWhenAsked(t *testing.T) {
	s := &service{}
	r, w, err := os.Pipe() // nobody writes: reading it would hang
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if got := s.run(false, r, "sandbox", "exec", "X", "cat"); got.code != 0 {
		t.Error(got)
	}
	s.run(false, strings.NewReader("b\na\n"), "sandbox", "exec", "-i", "X", "sort")
	if got := string(s.execs[1].Stdin); got != "b\na\n" {
		t.Errorf("stdin %q", got)
	}
}

func TestHelp(t *testing.T) {
	for _, tc := range []struct{ args, same string }{
		{"help", "--help"}, {"help sandbox", "sandbox --help"}, {"sandbox help", "sandbox --help"},
		{"help sandbox exec", "sandbox exec --help"}, {"sandbox help exec", "sandbox exec --help"},
	} {
		got, want := (&service{}).run(false, nil, strings.Fields(tc.args)...), (&service{}).run(false, nil, strings.Fields(tc.same)...)
		if got.code != 0 || got.err != "" || !strings.Contains(got.out, "Usage:") || got.out != want.out {
			t.Errorf("%s: exit %d, stderr %q, stdout %q, not that of %s", tc.args, got.code, got.err, got.out, tc.same)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"sandbx", "Did you mean 'sos sandbox'?"},
		{"sandbox strat X", "Did you mean 'sos sandbox start'?"},
		{"tui", `unknown command "tui" for "sos"`},
		{"sandbox create --imge x", "Did you mean '--image'?"},
		{"sandbox create extra", `unexpected argument "extra"`},
		{"sandbox start", "ID is missing"},
		{"sandbox exec X", "COMMAND is missing"},
		{"sandbox exec X ls -la", "Put -- before a command"},
		{"sandbox exec -s maybe", "COMMAND is missing"},
		{"sandbox create --memory lots", `"lots" is not a size`},
		{"sandbox create -i", "flag needs an argument"},
		{"--bogus", "unknown flag"},
		{"help sandbx", "Did you mean 'sos sandbox'?"},
		{"help sandbox strat", "Did you mean 'sos sandbox start'?"},
	} {
		got := (&service{}).run(false, nil, strings.Fields(tc.args)...)
		if got.code != 2 || !strings.Contains(got.err, tc.want) || got.out != "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %q", tc.args, got.code, got.out, got.err, tc.want)
		}
	}
	for _, args := range [][]string{{}, {"sandbox"}, {"image"}} {
		got := (&service{}).run(false, nil, args...)
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, "Usage:") {
			t.Errorf("%v: exit %d, stdout %q", args, got.code, got.out)
		}
	}
}

func TestNoReaderOfStdout(t *testing.T) {
	s := &service{}
	code := Main([]string{"sandbox", "list"}, IO{Out: failing{}, Err: io.Discard, Getenv: func(string) string { return "" },
		Dial: func(string) (sos.Service, error) { return s, nil }}, Build{})
	if code != 141 {
		t.Errorf("exit %d", code)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, &os.PathError{Op: "write", Err: syscall.EPIPE} }

func TestTrajectory(t *testing.T) {
	zero, seven := 0, 7
	s := &service{traj: sos.Trajectory{Sandbox: "X", Entries: []sos.TrajectoryEntry{
		{Index: 0, Process: sos.Process{Command: "cd /tmp", Exit: sos.Exit{ExitCode: &zero}, SinceStart: sos.Duration(1500 * time.Millisecond)}, HasResult: true},
		{Index: 1, Process: sos.Process{Command: "a\nb", Exit: sos.Exit{ExitCode: &seven}}, HasResult: true, Output: "<x>"},
		{Index: 2, Process: sos.Process{Command: "c"}},
	}}}
	check(t, s.run(false, nil, "sandbox", "trajectory", "-f", "X"), 0, "Viewing trajectory for sandbox: X\n"+
		"$ cd /tmp\n$ a\nb\n<x>\n$ c\nStatus: Command started but no result recorded\n\n", "")
	check(t, s.run(false, nil, "sandbox", "trajectory", "--json", "X"), 0, `{
  "command_count": 3,
  "sandbox_id": "X",
  "trajectory": [
    {
      "command": "cd /tmp",
      "index": 0,
      "result": {
        "exit_code": 0,
        "output": ""
      },
      "timestamp": 1.5
    },
    {
      "command": "a\nb",
      "index": 1,
      "result": {
        "exit_code": 7,
        "output": "<x>"
      },
      "timestamp": 0
    },
    {
      "command": "c",
      "index": 2,
      "timestamp": 0
    }
  ]
}
`, "")
}

func TestExecInterrupt(t *testing.T) {
	stop := make(chan struct{})
	s := &service{interrupt: func() { close(stop) }}
	s.exec = func(ctx context.Context) (sos.ExecResult, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			return sos.ExecResult{}, err
		}
		select {
		case <-stop:
			return sos.ExecResult{ExitCode: -1, Reason: sos.EndCancelled, Output: "so far"}, nil
		case <-ctx.Done():
			return sos.ExecResult{}, ctx.Err()
		}
	}
	check(t, s.run(false, nil, "sandbox", "exec", "X", "sleep 9"), 130,
		"Executing command in sandbox X: sleep 9\nso far\n", "Command was interrupted\n")
}
