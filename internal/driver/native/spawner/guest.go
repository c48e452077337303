package spawner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// killPatience bounds the waiting for processes that were killed.
const killPatience = 20 * time.Second

// guest is one sandbox: a process that runs, or how it ended.
type guest struct {
	id      string
	runDir  string
	record  spawn.Record
	group   cgroup.Group
	foreign bool

	pidfd  int      // kept while it runs
	poll   *os.File // the same descriptor, for waiting
	log    *logPump // nil: its log is lost
	killed atomic.Bool

	done chan struct{} // closed when it has ended and is cleaned up
	exit spawn.Exit    // then set
}

func (g *guest) running() bool {
	select {
	case <-g.done:
		return false
	default:
		return true
	}
}

func (g *guest) info() spawn.Guest {
	i := spawn.Guest{ID: g.id, Pid: g.record.Pid, Running: g.running(), Foreign: g.foreign}
	if !i.Running {
		e := g.exit
		i.Exit = &e
	}
	return i
}

// ended is a guest whose end is known already.
func ended(id, runDir string, r spawn.Record, e spawn.Exit) *guest {
	g := &guest{id: id, runDir: runDir, record: r, exit: e, pidfd: -1, done: make(chan struct{})}
	close(g.done)
	return g
}

// watch starts the goroutine that waits for the guest's end. It owns pidfd.
func (s *Spawner) watch(ctx context.Context, g *guest) error {
	if err := unix.SetNonblock(g.pidfd, true); err != nil {
		return fmt.Errorf("watch %s: %w", g.id, err)
	}
	// The poller wants a descriptor of its own; the process is the same.
	dup, err := unix.FcntlInt(uintptr(g.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("watch %s: %w", g.id, err)
	}
	g.poll = os.NewFile(uintptr(dup), "pidfd of "+g.id)
	s.watchers.Go(func() {
		defer g.poll.Close()
		stop := context.AfterFunc(ctx, func() { _ = g.poll.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
		if err := waitReadable(g.poll); err != nil {
			if ctx.Err() == nil {
				s.cfg.Log.Error("wait for a guest", "sandbox", g.id, "err", err)
			}
			g.log.stop()
			return // the spawner ends and the guest lives on
		}
		s.end(g)
	})
	return nil
}

// waitReadable waits until a pidfd says that its process has ended.
func waitReadable(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var bad error
	err = raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		if err != nil && err != unix.EINTR {
			bad = err
			return true
		}
		return n > 0
	})
	return errors.Join(err, bad)
}

// busyPatience is how long a group may look busy when all of it has ended.
const busyPatience = 10 * time.Millisecond

// removeGroup removes the group of a guest that has ended. Its pid namespace died
// with it, so there is hardly ever anything in the group to be killed first.
func removeGroup(ctx context.Context, g cgroup.Group) error {
	quick, cancel := context.WithTimeout(ctx, busyPatience)
	defer cancel()
	if g.Remove(quick) == nil {
		return nil
	}
	return errors.Join(g.Kill(ctx), g.Remove(ctx))
}

// end collects a guest that has ended, gives back what it had, and writes how it
// ended. The spawner may be ending too: this is not cut short.
func (s *Spawner) end(g *guest) {
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	log := s.cfg.Log.With("sandbox", g.id)
	e := spawn.Exit{When: time.Now()}
	e.Known, e.Status, e.Signal = collect(ctx, g)
	e.Killed = g.killed.Load()
	// Only a process that was killed can be a victim; the counter is of the guest's
	// own group, in which nothing else is.
	if e.Signal == int(unix.SIGKILL) && !e.Killed {
		st, err := g.group.Stats()
		if err != nil {
			log.Warn("read the counters of a guest", "err", err)
		}
		e.OOM = st.GuestOOMKills > 0
	}
	if err := removeGroup(ctx, g.group); err != nil {
		log.Error("clean up the cgroups of a guest", "err", err)
	}
	if err := os.Remove(filepath.Join(g.runDir, spawn.GuestSock)); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Error("remove the socket of a guest", "err", err)
	}
	e.Log = g.log.finish()
	if err := writeExit(g.runDir, e); err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Error("write how a guest ended", "err", err)
	}
	log.Info("guest ended", "known", e.Known, "status", e.Status, "signal", e.Signal, "oom", e.OOM, "killed", e.Killed)
	s.mu.Lock() // Create reads pidfd under it
	g.exit = e
	_ = unix.Close(g.pidfd)
	g.pidfd = -1
	s.mu.Unlock()
	close(g.done)
}
