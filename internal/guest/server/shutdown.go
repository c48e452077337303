package server

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/guest/wire"
)

const (
	killAllTime = 2 * time.Second
	flushTime   = 10 * time.Second
)

// shutdown ends everything but the guest: TERM to all, and the shells of sessions
// at once, for an interactive bash ignores TERM; after grace KILL. It answers when
// the host was told of every end and the filesystem is synced. The guest then
// starts nothing any more.
func (g *Guest) shutdown(grace time.Duration) *wire.Reply {
	g.mu.Lock()
	g.stopping = true
	var open []*session
	for _, s := range g.sessions {
		if s.ended == nil {
			open = append(open, s)
		}
	}
	g.mu.Unlock()
	signalAll(syscall.SIGTERM)
	signalAll(syscall.SIGCONT)
	for _, s := range open {
		go g.closeSession(s.name)
	}
	waitAlone(grace)
	for begun := time.Now(); time.Since(begun) < killAllTime; {
		signalAll(syscall.SIGKILL)
		if waitAlone(20 * time.Millisecond) {
			break
		}
	}
	g.flushed()
	if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		unix.Syncfs(fd)
		unix.Close(fd)
	}
	return &wire.Reply{}
}

// signalAll signals every process of the sandbox but the guest. An init does it in
// one call; where the guest is none (tests) it walks its own descendants.
func signalAll(sig syscall.Signal) {
	if os.Getpid() == 1 {
		syscall.Kill(-1, sig)
		return
	}
	for _, pid := range below(os.Getpid()) {
		syscall.Kill(pid, sig)
	}
}

func below(pid int) (list []int) {
	for _, c := range children(pid) {
		list = append(list, c)
		list = append(list, below(c)...)
	}
	return list
}

// waitAlone waits until no other process lives, at most for d.
func waitAlone(d time.Duration) bool {
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		if alone() {
			return true
		}
		if time.Since(begun) >= d {
			return false
		}
	}
}

func alone() bool {
	self := os.Getpid()
	pids := numbers("/proc")
	if self != 1 {
		pids = below(self)
	}
	for _, pid := range pids {
		if pid == self {
			continue
		}
		if s, ok := readStat(pid); ok && !s.dead() {
			return false
		}
	}
	return true
}

// flushed waits until the host was told of every end. Without a host, or with one
// that does not take it, it gives up after flushTime: the ends are kept.
func (g *Guest) flushed() {
	for begun := time.Now(); time.Since(begun) < flushTime; time.Sleep(2 * time.Millisecond) {
		g.mu.Lock()
		done := g.conn != nil
		for _, p := range g.procs {
			done = done && p.saidDrained
		}
		for _, s := range g.sessions {
			done = done && s.ended != nil
		}
		g.mu.Unlock()
		if done {
			return
		}
	}
}
