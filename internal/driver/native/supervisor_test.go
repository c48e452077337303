package native

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// fakeSpawner is what this test binary does when it runs under a name that begins
// with "fake-": a spawner that knows no guests. The rest of the name says how it
// behaves.
func fakeSpawner(mode string) int {
	f := flag.NewFlagSet("fake", flag.ContinueOnError)
	run, build := f.String("run", "", ""), f.String("build", "", "")
	f.String("instance", "", "")
	f.String("keep", "", "")
	if f.Parse(os.Args[1:]) != nil || mode == "dead" {
		os.Stderr.WriteString("these are my last words")
		return 1
	}
	if err := os.Chdir(*run); err != nil {
		return 1
	}
	os.Remove(spawn.Socket)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: spawn.Socket})
	if err != nil {
		return 1
	}
	if mode == "old" || mode == "stubborn" {
		*build = "another build"
	}
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return 1
		}
		go func() {
			buf := make([]byte, spawn.MaxMessage+1)
			for {
				var r spawn.Request
				if _, err := spawn.Receive(c, buf, &r); err != nil {
					return
				}
				switch {
				case mode == "hang":
				case r.Op == spawn.OpHello:
					_ = spawn.Send(c, spawn.Reply{Seq: r.Seq, Hello: &spawn.Hello{Protocol: spawn.Protocol, Build: *build, Pid: os.Getpid()}}, -1)
				case r.Op == spawn.OpQuit && mode != "stubborn":
					_ = spawn.Send(c, spawn.Reply{Seq: r.Seq}, -1)
					os.Exit(0)
				}
			}
		}()
	}
}

// fake makes a supervisor whose program is this binary in a mode.
func fake(t *testing.T, run, mode string) *supervisor {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "fake-"+mode)
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &supervisor{dirs: layout{run: run}, log: slog.New(slog.DiscardHandler), instance: "aaaaaaaa", program: path}
	t.Cleanup(func() {
		ctx, cancel := contextFor(t)
		defer cancel()
		if fd, err := s.peer(ctx); err == nil {
			killEnd(ctx, fd)
			unix.Close(fd)
		}
		s.close()
	})
	return s
}

func pidOf(t *testing.T, s *supervisor) (pid int) {
	t.Helper()
	err := s.call(t.Context(), func(c *spawn.Client) error {
		h, err := c.Hello(t.Context())
		pid = h.Pid
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestSupervisorKeepsTheSpawnerOfItsBuild(t *testing.T) {
	run := t.TempDir()
	s := fake(t, run, "good")
	first := pidOf(t, s)
	s.close()
	again := &supervisor{dirs: s.dirs, log: s.log, instance: s.instance, program: s.program} // a new server
	defer again.close()
	if pid := pidOf(t, again); pid != first {
		t.Errorf("spawner %d was replaced by %d for nothing", first, pid)
	}
}

func TestSupervisorReplaces(t *testing.T) {
	for _, mode := range []string{"old", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			run := t.TempDir()
			old := fake(t, run, mode)
			if _, err := old.client(t.Context()); err != nil {
				t.Fatal(err)
			}
			oldPid := old.child
			s := fake(t, run, "good")
			if pid := pidOf(t, s); pid == oldPid {
				t.Error("a spawner of another build was kept")
			}
			if !old.childEnded() {
				t.Error("it lives on")
			}
		})
	}
}

func TestSupervisorStartsAnotherForOneThatDied(t *testing.T) {
	s := fake(t, t.TempDir(), "good")
	first := pidOf(t, s)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if second := pidOf(t, s); second == first {
		t.Errorf("a dead spawner answers")
	}
	if s.childEnded() {
		t.Error("the living spawner is taken for the dead one")
	}
}

func TestSupervisorTellsWhyNoneStarts(t *testing.T) {
	s := fake(t, t.TempDir(), "dead")
	_, err := s.client(t.Context())
	if err == nil || !strings.Contains(err.Error(), "these are my last words") {
		t.Errorf("the error is %v", err)
	}
	s = fake(t, t.TempDir(), "hang")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		eventually(t, "it listens", func() bool { return exists(s.socket()) })
		cancel(nil)
	}()
	if _, err := s.client(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a spawner that hangs gives %v", err)
	}
}
