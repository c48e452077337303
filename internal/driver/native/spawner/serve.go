package spawner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// replyTimeout bounds the sending of a reply to a client that does not read.
const replyTimeout = 5 * time.Second

// serve answers clients until ctx ends; then it waits for the creates under way.
func (s *Spawner) serve(ctx context.Context) error {
	path := filepath.Join(s.cfg.RunDir, spawn.Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the old socket: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	l.SetUnlinkOnClose(false) // the next spawner may have put its own there
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	pid := filepath.Join(s.cfg.RunDir, "spawner.pid")
	if err := writeFile(pid, []byte(strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return fmt.Errorf("write %s: %w", pid, err)
	}
	s.cfg.Log.Info("spawner is ready", "build", s.cfg.Build, "cgroup", s.tree.Version(), "overlay", s.host.overlay)

	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var conns sync.WaitGroup
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			s.drain()
			s.quit()
			conns.Wait()
			return err
		}
		if err := checkPeer(c); err != nil {
			s.cfg.Log.Warn("refused a client", "err", err)
			c.Close()
			continue
		}
		conns.Go(func() { s.serveConn(ctx, c) })
	}
}

// drain lets no create begin any more and waits for those that have.
func (s *Spawner) drain() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.creating.Wait()
}

// checkPeer lets only host root in, whatever the permissions on the way.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var bad error
	err = raw.Control(func(fd uintptr) {
		cred, bad = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, bad); err != nil {
		return err
	}
	if cred.Uid != 0 {
		return fmt.Errorf("user %d is not root", cred.Uid)
	}
	return nil
}

// serveConn answers one client; its calls run at once.
func (s *Spawner) serveConn(ctx context.Context, c *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		cancel()
		calls.Wait()
		stop()
		c.Close()
	}()
	var write sync.Mutex
	buf := make([]byte, spawn.MaxMessage+1)
	for {
		var req spawn.Request
		fd, err := spawn.Receive(c, buf, &req)
		if err != nil {
			return
		}
		if fd >= 0 {
			_ = unix.Close(fd) // nothing takes one
		}
		calls.Go(func() {
			reply, pidfd := s.answer(ctx, req)
			reply.Seq = req.Seq
			write.Lock()
			defer write.Unlock()
			_ = c.SetWriteDeadline(time.Now().Add(replyTimeout))
			err := spawn.Send(c, reply, pidfd)
			if pidfd >= 0 {
				_ = unix.Close(pidfd)
			}
			if err != nil {
				cancel() // half of a conversation is none
			}
			if req.Op == spawn.OpQuit && reply.Error == nil {
				s.quit()
			}
		})
	}
}
