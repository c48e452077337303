// Package e2e runs scripts over the real program: real server, real sandboxes.
// Scripts in testdata/shared have one server with an image in it; those in
// testdata/own start servers of their own.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/seaofsimulation/sos/internal/testutil"
)

// binDir holds the program under test: $SOS_BIN, else what make build makes.
func binDir(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("SOS_BIN")
	if bin == "" {
		out, err := exec.Command("make", "-s", "-C", "../..", "build").CombinedOutput()
		if err != nil {
			t.Fatalf("make build: %v\n%s", err, out)
		}
		bin = "../../bin/sos"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(bin)
}

func params(t *testing.T, dir string, setup func(*testscript.Env) error) testscript.Params {
	bin := binDir(t)
	image := testutil.Image(t)
	return testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("IMAGE", image)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("DATA", filepath.Join(e.WorkDir, "data"))
			e.Values[srvKey{}] = new(*srv)
			return setup(e)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": cmdServer, "signal": cmdSignal, "capture": cmdCapture,
			"code": cmdCode, "gone": cmdGone, "alive": cmdAlive,
		},
	}
}

func TestShared(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	bin := filepath.Join(binDir(t), "sos")
	s, err := startServer(bin, data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.tearDown(t.Errorf) })
	cmd := exec.Command(bin, "image", "import", testutil.Image(t), "--name", "debian:bookworm", "-q", "--server", s.url)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	p := params(t, "testdata/shared", func(e *testscript.Env) error {
		e.Setenv("SOS_SERVER", s.url)
		return nil
	})
	// Scripts run in parallel; the group waits for them before the server ends.
	t.Run("scripts", func(t *testing.T) { testscript.Run(t, p) })
}

func TestOwn(t *testing.T) {
	testscript.Run(t, params(t, "testdata/own", func(*testscript.Env) error { return nil }))
}

// srvKey is where a script keeps its server.
type srvKey struct{}

func current(ts *testscript.TestScript) **srv { return ts.Value(srvKey{}).(**srv) }

// srv is one running `sos serve`.
type srv struct {
	bin, data, url, inst string
	cmd                  *exec.Cmd
	log                  string // file of its stderr
	ended                chan error
}

// startServer starts a server on a free port and waits until it says that it is
// ready.
func startServer(bin, data string, args ...string) (*srv, error) {
	s := &srv{bin: bin, data: data, log: data + ".log", ended: make(chan error, 1)}
	logFile, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	s.cmd = exec.Command(bin, append([]string{"serve", "--port", "0", "--data-dir", data}, args...)...)
	s.cmd.Stderr = logFile
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.ended <- s.cmd.Wait() }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(s.log)
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "sos is ready on "); ok {
				s.url = strings.Fields(rest)[0]
				inst, err := os.ReadFile(filepath.Join(data, "instance"))
				s.inst = strings.TrimSpace(string(inst))
				return s, err
			}
		}
		select {
		case err := <-s.ended:
			return nil, fmt.Errorf("the server ended: %w\n%s", err, text)
		default:
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the server is not ready:\n%s", text)
		}
	}
}

// stop sends a signal and waits for the end.
func (s *srv) stop(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-s.ended:
		s.ended <- nil
		return err
	case <-time.After(time.Minute):
		text, _ := os.ReadFile(s.log)
		return fmt.Errorf("the server does not end:\n%s", text)
	}
}

// tearDown ends server and sandboxes, and demands that nothing is left.
func (s *srv) tearDown(fail func(string, ...any)) {
	if err := s.stop(syscall.SIGKILL); err != nil && !isKilled(err) {
		fail("kill the server: %v", err)
	}
	ctx, done := context.WithTimeout(context.Background(), 3*time.Minute)
	defer done()
	if out, err := exec.CommandContext(ctx, s.bin, "down", "--data-dir", s.data, "--purge").CombinedOutput(); err != nil {
		if _, e := os.Stat(s.data); e == nil {
			fail("sos down: %v\n%s", err, out)
		}
	}
	if out, err := exec.CommandContext(ctx, "../../scripts/leaks.sh", s.inst, s.data).CombinedOutput(); err != nil {
		fail("left over: %v\n%s", err, out)
	}
}

func isKilled(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

// cmdServer: server [ARGS] starts a server on $DATA and sets SOS_SERVER and INST.
func cmdServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("server cannot be negated")
	}
	bin, err := exec.LookPath(filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "sos"))
	ts.Check(err)
	s, err := startServer(bin, ts.Getenv("DATA"), args...)
	ts.Check(err)
	if *current(ts) == nil {
		ts.Defer(func() { (*current(ts)).tearDown(ts.Fatalf) })
	}
	*current(ts) = s
	ts.Setenv("SOS_SERVER", s.url)
	ts.Setenv("INST", s.inst)
}

// cmdSignal: signal NAME CODE sends a signal to the server, waits for its end and
// demands the exit code. Its stderr becomes "stderr".
func cmdSignal(ts *testscript.TestScript, _ bool, args []string) {
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}[args[0]]
	s := *current(ts)
	err := s.stop(sig)
	text, readErr := os.ReadFile(s.log)
	ts.Check(readErr)
	fmt.Fprint(ts.Stderr(), string(text))
	if sig == syscall.SIGKILL && isKilled(err) {
		return
	}
	if got := exitCode(err); strconv.Itoa(got) != args[1] {
		ts.Fatalf("exit code %d of the server, want %s: %v", got, args[1], err)
	}
}

// cmdCapture: capture NAME puts the trimmed stdout of the last command into a
// variable.
func cmdCapture(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// cmdCode: code N PROGRAM ARGS runs it and demands the exit code.
func cmdCode(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	if got := exitCode(err); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s (%v)\nstdout: %s\nstderr: %s", got, args[0], err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// cmdGone: nothing of the instance is on the host.
func cmdGone(ts *testscript.TestScript, _ bool, _ []string) {
	if out, err := exec.Command("../../scripts/leaks.sh", ts.Getenv("INST"), ts.Getenv("DATA")).CombinedOutput(); err != nil {
		ts.Fatalf("%v\n%s", err, out)
	}
}

// cmdAlive: there are processes of the instance's sandboxes ("! alive": none).
func cmdAlive(ts *testscript.TestScript, neg bool, _ []string) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	ts.Check(err)
	found := false
	for _, g := range groups {
		text, _ := os.ReadFile(g) // the process may have ended
		found = found || strings.Contains(string(text), "/sos-"+ts.Getenv("INST")+"/")
	}
	if found == neg {
		ts.Fatalf("processes of sandboxes found: %v", found)
	}
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}
