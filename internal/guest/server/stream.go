package server

import (
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// stream is one output of a process: read into a ring as long as that has place,
// kept until the host has acknowledged it. Its fields are under Guest.mu.
type stream struct {
	p    *process
	kind sos.Stream
	ring ring
	sent int64         // what this connection was sent
	mark int64         // the end when the process's end was recorded
	eof  bool          // nothing more comes
	busy bool          // used since the last sweep
	big  bool          // its pipe was enlarged
	wake chan struct{} // buffered 1: there is place again
}

func newStream(p *process, kind sos.Stream) *stream {
	return &stream{p: p, kind: kind, wake: make(chan struct{}, 1)}
}

func (s *stream) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// grow makes place for n more bytes, or for as many as window and budget allow.
func (g *Guest) grow(s *stream, n int) {
	have, want := len(s.ring.buf), fits(s.ring.used()+n)
	for want > have && want > minRing && g.memory+want-charged(have) > totalBudget {
		want /= 4
	}
	if want <= have {
		return
	}
	g.resize(s, want)
	g.sweep()
}

func (g *Guest) resize(s *stream, size int) {
	g.memory += charged(size) - charged(len(s.ring.buf))
	g.burst = g.burst || g.memory > 0
	s.ring.resize(size)
}

func charged(size int) int {
	if size <= minRing {
		return 0
	}
	return size
}

// shrink gives back the ring of a stream that has nothing to keep.
func (g *Guest) shrink(s *stream) {
	if s.p.forgotten {
		s.ring.base = s.ring.end
	}
	if s.ring.used() == 0 {
		g.memory -= charged(len(s.ring.buf))
		s.ring.buf = nil
	}
}

// bigPipe is tried once a pipe was found full. It is not the default, because all
// pipes of a user share a small limit.
const (
	defaultPipe = 64 << 10
	bigPipe     = 1 << 20
)

// sweepEvery is how long a ring may lie idle.
const sweepEvery = time.Second

// sweep gives back idle rings as long as there are any.
func (g *Guest) sweep() {
	if g.sweeping {
		return
	}
	g.sweeping = true
	time.AfterFunc(sweepEvery, func() {
		g.mu.Lock()
		left := false
		for _, p := range g.procs {
			for _, s := range p.streams {
				if !s.busy {
					g.shrink(s)
				}
				s.busy = false
				left = left || s.ring.buf != nil
			}
		}
		g.sweeping = false
		if left || g.memory > 0 {
			g.sweep()
		}
		idle := g.burst && g.memory == 0
		g.burst = g.burst && !idle
		g.mu.Unlock()
		if idle {
			debug.FreeOSMemory() // a burst is over: do not hold its memory for minutes
		}
	})
}

// copyFrom reads a pipe or FIFO to its end. f is in non-blocking mode; it is
// closed at the end.
func (g *Guest) copyFrom(s *stream, f *os.File) {
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for {
		var got int
		full := false
		err := raw.Read(func(fd uintptr) bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			for {
				room := g.place(s)
				if full = len(room) == 0; full {
					return true
				}
				n, err := unix.Read(int(fd), room)
				if err == unix.EINTR {
					continue
				}
				if err == unix.EAGAIN {
					return false
				}
				if got = n; n > 0 {
					g.took(s, room[:n])
				}
				if n >= defaultPipe && !s.big {
					s.big = true
					unix.FcntlInt(fd, unix.F_SETPIPE_SZ, bigPipe) // refused at the user's limit
				}
				return true
			}
		})
		if full {
			<-s.wake // an ack, a release
			continue
		}
		if err != nil || got <= 0 {
			return
		}
		s.p.moved()
	}
}

// place is where the next bytes go: the ring, or scratch while there is none or
// they are not wanted.
func (g *Guest) place(s *stream) []byte {
	if s.p.forgotten || s.ring.buf == nil {
		return g.scratch
	}
	if s.ring.used() == len(s.ring.buf) {
		g.grow(s, 1)
	}
	return s.ring.room()
}

// took enters what was read.
func (g *Guest) took(s *stream, p []byte) {
	s.busy = true
	switch {
	case s.p.forgotten:
	case s.ring.buf == nil:
		g.grow(s, len(p))
		for len(s.ring.buf) < len(p) { // the budget is used up; it is only 64 KiB
			g.resize(s, 4*len(s.ring.buf))
		}
		s.ring.add(p)
	default:
		s.ring.end += int64(len(p))
	}
	g.dirty(s.p)
}

// acked frees what the host has. It says whether there is place where none was.
func (g *Guest) acked(s *stream, offset int64) bool {
	if offset <= s.ring.base || offset > s.ring.end {
		return false
	}
	full := s.ring.used() >= guest.MaxWindow || s.ring.used() == len(s.ring.buf)
	s.ring.base = offset
	s.sent = max(s.sent, offset)
	return full
}

// sessionOutput is the stream of a session command as its shell sees it.
type sessionOutput struct {
	g *Guest
	s *stream
}

func (o sessionOutput) Space() int {
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	if o.s.p.forgotten {
		return len(o.g.scratch)
	}
	o.g.grow(o.s, len(o.g.scratch))
	return len(o.s.ring.buf) - o.s.ring.used()
}

func (o sessionOutput) Write(p []byte) {
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	o.s.busy = true
	if o.s.p.forgotten {
		return
	}
	if len(o.s.ring.buf)-o.s.ring.used() < len(p) { // given back since Space
		o.g.grow(o.s, len(p))
	}
	o.s.ring.add(p)
	o.g.dirty(o.s.p)
}
