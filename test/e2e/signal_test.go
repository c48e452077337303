package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/seaofsimulation/sos/internal/testutil"
)

// cli runs the program against a server and demands success.
func (s *srv) cli(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(s.bin, args...)
	cmd.Env = append(os.Environ(), "SOS_SERVER="+s.url)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sos %q: %v\n%s%s", args, err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// started gives a started sandbox.
func (s *srv) started(t *testing.T) string {
	t.Helper()
	id := s.cli(t, "sandbox", "create", "-q", "-i", "debian:bookworm")
	s.cli(t, "sandbox", "start", "-q", id)
	return id
}

// TestInterruptedExec: Ctrl-C ends the command in the sandbox, not the session.
func TestInterruptedExec(t *testing.T) {
	s := serverWithImage(t)
	id := s.started(t)
	s.cli(t, "sandbox", "exec", id, "shell=kept")
	cmd := exec.Command(s.bin, "sandbox", "--server", s.url, "exec", id, "echo begun; sleep 1000; echo never")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the sleep in the sandbox", func() bool {
		return s.cli(t, "sandbox", "exec", "-q", "-s", id, "pgrep -x sleep || true") != ""
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(cmd.Wait()); code != 130 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(out.String(), "\nbegun\n") || strings.Contains(out.String(), "\nnever\n") || stderr.String() != "Command was interrupted\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), stderr.String())
	}
	if got := s.cli(t, "sandbox", "exec", "-q", id, `echo "$shell"`); got != "kept" {
		t.Errorf("the session has %q", got)
	}
}

// TestSecondInterrupt leaves a server at once that waits for a process which takes
// no hint.
func TestSecondInterrupt(t *testing.T) {
	data := t.TempDir() + "/data"
	s, err := startServer(binDir(t)+"/sos", data, "--stop-grace", "10m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.tearDown(t.Errorf) })
	s.cli(t, "image", "import", "-q", testutil.Image(t), "--name", "debian:bookworm")
	id := s.started(t)
	s.cli(t, "sandbox", "exec", id, `(trap "" TERM; exec sleep 1000) >/dev/null 2>&1 &`)
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the server to say that it stops", func() bool {
		text, err := os.ReadFile(s.log)
		return err == nil && strings.Contains(string(text), "sos is stopping; 1 sandbox is being stopped")
	})
	err = s.stop(syscall.SIGINT)
	text, readErr := os.ReadFile(s.log)
	if code := exitCode(err); code != 130 || readErr != nil || strings.Contains(string(text), "sos has stopped") {
		t.Errorf("exit code %d, %v\n%s", code, readErr, text)
	}
}
