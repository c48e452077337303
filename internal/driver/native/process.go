package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// maxSpawnerLog is the size at which the spawner's log is begun anew.
const maxSpawnerLog = 1 << 20

// start runs the program in a session of its own, so that no signal for the
// server's terminal or group reaches it. It inherits nothing but its log.
func (s *supervisor) start() error {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if st, err := os.Stat(s.logFile()); err == nil && st.Size() > maxSpawnerLog {
		flags |= os.O_TRUNC
	}
	log, err := os.OpenFile(s.logFile(), flags, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	s.childEnded() // the one before, if it was ours
	p, err := os.StartProcess(s.program, s.arguments(), &os.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Files: []*os.File{null, log, log},
		Sys:   &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	if err := leaveUnit(p.Pid); err != nil {
		// In a container this may be forbidden, and nobody there stops units.
		s.log.Info("the spawner stays in the server's cgroup", "op", "spawner", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child = p.Pid
	return p.Release()
}

// childEnded collects the spawner that this process started, when it has ended.
func (s *supervisor) childEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == 0 {
		return false
	}
	pid, err := unix.Wait4(s.child, nil, unix.WNOHANG, nil)
	if err == nil && pid == 0 {
		return false
	}
	s.child = 0
	return true
}

// lastWords is the end of the spawner's log.
func (s *supervisor) lastWords() string {
	f, err := os.Open(s.logFile())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 1024 {
		f.Seek(-1024, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, 1024))
	return strings.TrimSpace(string(b))
}

// retire ends a spawner: it is asked, and killed when it does not go. Guests live
// on in both cases. c is closed.
func (s *supervisor) retire(ctx context.Context, c *spawn.Client) error {
	pidfd, err := s.peer(ctx)
	if err != nil {
		_ = c.Close()
		return nil // nobody listens any more
	}
	defer unix.Close(pidfd)
	qctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	err = c.Quit(qctx)
	_ = c.Close()
	if err == nil || errors.Is(err, spawn.ErrDisconnected) {
		err = waitEnd(qctx, pidfd)
	}
	if err == nil {
		return nil
	}
	s.log.Warn("the spawner does not go when asked: killing it", "op", "spawner", "err", err)
	return killEnd(ctx, pidfd)
}

// peer opens a pidfd of the process that listens on the spawner's socket.
func (s *supervisor) peer(ctx context.Context) (int, error) {
	conn, err := dialUnix(ctx, "unixpacket", s.socket())
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	pidfd := -1
	cerr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			// The connection is open, so the socket lives, and its process with it: it
			// is the only one that has it.
			pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
		}
	})
	return pidfd, errors.Join(cerr, err)
}

// killEnd kills a process and waits until it has ended.
func killEnd(ctx context.Context, pidfd int) error {
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill: %w", err)
	}
	return waitEnd(ctx, pidfd)
}

// waitEnd waits until the process has ended, with ctx.
func waitEnd(ctx context.Context, pidfd int) error {
	const step = 20 * time.Millisecond
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(step.Milliseconds()))
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait for a process: %w", err)
		}
		if n > 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("wait for a process: %w", err)
		}
	}
}

// arguments tell the spawner where it works.
func (s *supervisor) arguments() []string {
	return []string{"sos-spawner", "-run", s.dirs.run, "-instance", s.instance, "-build", s.build(), "-keep", s.dirs.data}
}

// build names the build of the program that a spawner has to be: that of the file.
func (s *supervisor) build() string { return filepath.Base(s.program) }
