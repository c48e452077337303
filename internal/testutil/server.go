package testutil

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Binary gives the absolute path of the program under test: $SOS_BIN, else what
// make build makes, built once per test binary.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("the program under test: %v", err)
	}
	return path
}

var binary = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("SOS_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("make", "-s", "-C", root, "build").CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w\n%s", err, out)
	}
	return filepath.Join(root, "bin", "sos"), nil
})

// moduleRoot is the directory of the module that the test belongs to.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the test")
}

// ServerConfig says how to run a server.
type ServerConfig struct {
	Bin  string   // the program
	Data string   // its data directory; its stderr is added to the file Data + ".log"
	Args []string // further arguments of serve
	// Under is a program with arguments that becomes the server, such as
	// "setpriv", "--reuid", "1234"; the server's command line is added to it.
	Under []string
}

// Server is one running `sos serve`.
type Server struct {
	ServerConfig
	URL      string // the first address that it names
	Instance string
	Healthy  bool // it is ready, not only answering

	cmd   *exec.Cmd
	log   int64 // where its part of the log begins
	ended chan error
}

// StartServer starts a server on a free port and waits until it says that it is
// ready, or that it answers although the host cannot run sandboxes.
func StartServer(cfg ServerConfig) (*Server, error) {
	s := &Server{ServerConfig: cfg, ended: make(chan error, 1)}
	log, err := os.OpenFile(cfg.Data+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if fi, err := log.Stat(); err == nil {
		s.log = fi.Size()
	}
	line := append(append([]string{}, cfg.Under...), cfg.Bin, "serve", "--port", "0", "--data-dir", cfg.Data)
	line = append(line, cfg.Args...)
	s.cmd = exec.Command(line[0], line[1:]...)
	s.cmd.Stderr = log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.ended <- s.cmd.Wait() }()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if s.announced() {
			inst, err := os.ReadFile(filepath.Join(cfg.Data, "instance"))
			s.Instance = strings.TrimSpace(string(inst))
			return s, err
		}
		select {
		case err := <-s.ended:
			s.ended <- err
			return s, fmt.Errorf("the server ended: %w\n%s", err, s.Log())
		default:
		}
		if time.Now().After(deadline) {
			return s, fmt.Errorf("the server is not ready:\n%s", s.Log())
		}
	}
}

// announced reads what the server has said so far.
func (s *Server) announced() bool {
	for line := range strings.Lines(s.Log()) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		if rest, ok := strings.CutPrefix(line, "sos is ready on "); ok {
			s.URL, s.Healthy = strings.Fields(rest)[0], true
			return true
		}
		if rest, ok := strings.CutPrefix(line, "sos answers, but this host cannot run sandboxes, on "); ok {
			s.URL = strings.Fields(rest)[0]
			return true
		}
	}
	return false
}

// Log is what this server has written to stderr.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.Data + ".log")
	if err != nil || int64(len(text)) < s.log {
		return fmt.Sprintf("no log: %v", err)
	}
	return string(text[s.log:])
}

// Pid is the server's process.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Signal sends a signal to the server; one that has ended already is no error.
func (s *Server) Signal(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop sends a signal and waits for the end, which it gives as exec.Cmd.Wait
// does. It may be called again.
func (s *Server) Stop(sig syscall.Signal) error {
	if err := s.Signal(sig); err != nil {
		return err
	}
	select {
	case err := <-s.ended:
		s.ended <- err
		return err
	case <-time.After(2 * time.Minute):
		return fmt.Errorf("the server does not end:\n%s", s.Log())
	}
}

// TearDown ends server and sandboxes, deletes the data directory, and demands
// that nothing of them is left on the host.
func (s *Server) TearDown(fail func(string, ...any)) {
	if err := s.Stop(syscall.SIGKILL); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			fail("kill the server: %v", err)
		}
	}
	ctx, done := context.WithTimeout(context.Background(), 3*time.Minute)
	defer done()
	if out, err := exec.CommandContext(ctx, s.Bin, "down", "--data-dir", s.Data, "--purge").CombinedOutput(); err != nil {
		if _, e := os.Stat(s.Data); e == nil {
			fail("sos down: %v\n%s", err, out)
		}
	}
	if err := Leaks(ctx, s.Instance, s.Data); err != nil {
		fail("left over: %v", err)
	}
}

// Leaks says what an instance has left on the host, or nil.
func Leaks(ctx context.Context, instance, data string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(root, "scripts", "leaks.sh"), instance, data).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
