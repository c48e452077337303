package cli

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/seaofsimulation/sos"
)

const sessionHead = "Starting interactive session with image: debian\nSandbox created with ID: " + id + "\nStarting sandbox...\n" +
	"Sandbox started successfully\nEntering interactive session. Type 'exit' to quit.\nSession ID: " + id + "\n" +
	"==================================================\n"

const sessionTail = "Stopping and removing sandbox...\nSandbox session ended\n"

func TestSessionPiped(t *testing.T) {
	s := &service{results: map[string]sos.ExecResult{"echo a": {Output: "a"}, "false": {ExitCode: 1}}}
	in := strings.NewReader("  echo a \n\nfalse\nEXIT\necho never\n")
	check(t, s.run(false, in, "session", "-i", "debian"), 0, sessionHead+"a\n"+sessionTail, "(exit code: 1)\n")
	if len(s.execs) != 2 || len(s.stopped) != 1 || !s.stopped[0].Remove {
		t.Errorf("execs %v, stops %v", s.execs, s.stopped)
	}
}

func TestSessionEndOfInput(t *testing.T) {
	s := &service{results: map[string]sos.ExecResult{"last line": {Output: "ran"}}}
	check(t, s.run(false, strings.NewReader("last line"), "session", "-i", "debian"), 0, sessionHead+"ran\n"+sessionTail, "")
}

func TestSessionKeep(t *testing.T) {
	s := &service{}
	got := s.run(false, strings.NewReader("quit\n"), "session", "-i", "debian", "--keep")
	if got.code != 0 || len(s.stopped) != 0 || !strings.HasSuffix(got.out, "Sandbox "+id+" is kept. Use 'sos sandbox stop -r "+id+"' to remove it\n") {
		t.Errorf("%+v, stops %v", got, s.stopped)
	}
}

func TestSessionShellExit(t *testing.T) {
	s := &service{results: map[string]sos.ExecResult{"exit 3": {ExitCode: 3, Exited: true}}}
	check(t, s.run(false, strings.NewReader("exit 3\necho never\n"), "session", "-i", "debian"), 3,
		sessionHead+sessionTail, "(exit code: 3)\nThe session has ended.\n")
	if len(s.execs) != 1 || len(s.stopped) != 1 {
		t.Errorf("execs %v, stops %v", s.execs, s.stopped)
	}
}

func TestSessionFailedStartRemoves(t *testing.T) {
	s := &service{startErr: &sos.Error{Code: sos.CodeSetupFailed, Message: "Setup commands failed: x"}}
	got := s.run(false, nil, "session", "-i", "debian", "--keep")
	if got.code != 1 || len(s.stopped) != 1 || !s.stopped[0].Remove || !strings.Contains(got.err, "✗ Failed to start sandbox: Setup commands failed: x") {
		t.Errorf("%+v, stops %v", got, s.stopped)
	}
}

func TestSessionSignalAtPrompt(t *testing.T) {
	s := &service{}
	in := readFunc(func([]byte) (int, error) {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return 0, err
		}
		select {} // nothing more comes; the signal has to end it
	})
	got := s.run(false, in, "session", "-i", "debian")
	if got.code != 143 || len(s.stopped) != 1 || !s.stopped[0].Remove {
		t.Errorf("%+v, stops %v", got, s.stopped)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestHistoryFile(t *testing.T) {
	dir := t.TempDir()
	r := &repl{cli: &cli{IO: IO{Getenv: func(k string) string { return map[string]string{"XDG_STATE_HOME": dir}[k] }}}}
	path := r.historyFile("../../etc/x:latest")
	if want := dir + "/sos/history/image-.._.._etc_x_latest"; path != want {
		t.Fatalf("%s, want %s", path, want)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
}

var _ io.Reader = readFunc(nil)
