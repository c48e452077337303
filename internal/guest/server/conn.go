package server

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// conn is one connection of a host. Its fields but f and wake are under Guest.mu.
type conn struct {
	g    *Guest
	f    io.ReadWriteCloser
	wake chan struct{} // buffered 1: there is something to send

	control []byte     // frames that go first: replies
	ready   []*process // those that have something to send
	last    bool       // control is the last that goes
	closed  bool
	soon    *time.Timer // pokes for what may wait a little; nil: nothing does
}

// lazyTime is how long the news that a command was taken and has started waits
// for company. A short command has ended by then, and all of it goes in one write
// and wakes the host once.
const lazyTime = 3 * time.Millisecond

// helloTime is how long a connection may take to say hello.
const helloTime = 10 * time.Second

// listen makes the inherited socket one that the runtime's poller waits on: no
// thread is spent on it, and package net is not needed.
func listen(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "listener"), nil
}

// accept serves connections for ever.
func (g *Guest) accept(listener *os.File) {
	raw, err := listener.SyscallConn()
	for err == nil {
		fd, no := -1, error(nil)
		err = raw.Read(func(l uintptr) bool {
			fd, _, no = unix.Accept4(int(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return no != unix.EAGAIN
		})
		if err != nil {
			break
		}
		if no != nil { // out of descriptors, or the host went away
			time.Sleep(time.Millisecond)
			continue
		}
		go g.serve(os.NewFile(uintptr(fd), "host"))
	}
	os.Stderr.WriteString("sos-guest: no more connections: " + err.Error() + "\n")
}

// serve handles one connection to its end.
func (g *Guest) serve(f io.ReadWriteCloser) {
	c := &conn{g: g, f: f, wake: make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.write()
	}()
	if d, ok := f.(interface{ SetReadDeadline(time.Time) error }); ok {
		d.SetReadDeadline(time.Now().Add(helloTime))
	}
	c.read()
	g.mu.Lock()
	if g.conn == c {
		g.conn = nil
	}
	c.closed = true
	c.poke()
	g.mu.Unlock()
	f.Close()
	<-done
}

// read takes requests until the stream ends or makes no sense.
func (c *conn) read() {
	r := wire.NewReader(c.f, wire.MaxRequest)
	greeted := false
	for {
		f, err := r.Next()
		if err != nil {
			return
		}
		m, err := wire.Decode(f)
		if err != nil {
			os.Stderr.WriteString("sos-guest: request: " + err.Error() + "\n")
			return
		}
		if hello, ok := m.(*wire.Hello); ok && !greeted {
			if greeted = c.hello(hello); !greeted {
				continue // told why; the host closes
			}
			if d, ok := c.f.(interface{ SetReadDeadline(time.Time) error }); ok {
				d.SetReadDeadline(time.Time{})
			}
			continue
		}
		if !greeted {
			return
		}
		c.g.handle(f.Call, m)
	}
}

// hello makes c the connection and tells what the guest holds.
func (c *conn) hello(h *wire.Hello) bool {
	g := c.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.MinProtocol > guest.Protocol || h.Protocol < guest.MinProtocol {
		c.queue(0, &wire.Reply{Code: sos.CodeUnsupported, Message: "this guest speaks another protocol"})
		return false
	}
	if old := g.conn; old != nil {
		old.queue(0, &wire.Superseded{})
		old.last = true
		time.AfterFunc(helloTime, func() { old.f.Close() }) // one that does not read
	}
	g.conn = c
	g.calls.begin(h.Client)
	c.queue(0, &wire.HelloReply{Protocol: min(h.Protocol, guest.Protocol), Build: g.cfg.Build,
		Instance: g.instance, Processes: len(g.procs)})
	for _, p := range g.procs {
		p.resumed, p.queued = false, false
		c.queue(0, &wire.Held{ProcessInfo: p.info()})
	}
	for _, s := range g.sessions {
		if s.ended != nil {
			c.queue(0, &wire.SessionEnded{Session: s.name, Exit: *s.ended})
		}
	}
	return true
}

// info is what a host is told of a process.
func (p *process) info() guest.ProcessInfo {
	i := guest.ProcessInfo{ID: p.id, Session: p.session, Started: p.startedAt, Exited: p.exit != nil,
		Offsets: map[sos.Stream]int64{}, Ends: map[sos.Stream]int64{}}
	for _, s := range p.streams {
		i.Offsets[s.kind], i.Ends[s.kind] = s.ring.base, s.ring.end
	}
	return i
}

// queue adds a frame that goes before all output. Called under Guest.mu.
func (c *conn) queue(call uint64, m wire.Message) {
	if c.last || c.closed {
		return
	}
	c.control = wire.Append(c.control, call, m)
	c.poke()
}

// queueSoon is queue for what the host need not know at once. Called under Guest.mu.
func (c *conn) queueSoon(call uint64, m wire.Message) {
	if c.last || c.closed {
		return
	}
	c.control = wire.Append(c.control, call, m)
	c.pokeSoon()
}

// pokeSoon pokes unless something else has by then. Called under Guest.mu.
func (c *conn) pokeSoon() {
	if c.soon == nil {
		c.soon = time.AfterFunc(lazyTime, c.poke)
	}
}

func (c *conn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
