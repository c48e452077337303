package fake

import (
	"net"
	"sync"

	"github.com/seaofsimulation/sos"
	sosguest "github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

const protocol = sosguest.Protocol

// conn is one connection of a host. What is sent waits in a queue, so that the
// guest never waits for a host that reads slowly.
type conn struct {
	g  *guest
	nc net.Conn

	mu     sync.Mutex
	queued []byte
	last   bool // close after what is queued
	wake   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newConn(g *guest, nc net.Conn) *conn {
	return &conn{g: g, nc: nc, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (c *conn) close() {
	c.once.Do(func() { close(c.closed); c.nc.Close() })
}

func (c *conn) send(call uint64, m wire.Message) {
	c.mu.Lock()
	c.queued = wire.Append(c.queued, call, m)
	c.mu.Unlock()
	c.poke()
}

// finish closes the connection behind what is queued.
func (c *conn) finish() {
	c.mu.Lock()
	c.last = true
	c.mu.Unlock()
	c.poke()
}

func (c *conn) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *conn) write() {
	defer c.close()
	for {
		select {
		case <-c.closed:
			return
		case <-c.wake:
		}
		c.mu.Lock()
		b, last := c.queued, c.last
		c.queued = nil
		c.mu.Unlock()
		if len(b) > 0 {
			if _, err := c.nc.Write(b); err != nil {
				return
			}
		}
		if last {
			return
		}
	}
}

func (c *conn) read() {
	defer c.g.forget(c)
	defer c.close()
	r := wire.NewReader(c.nc, wire.MaxRequest)
	for {
		f, err := r.Next()
		if err != nil {
			return
		}
		m, err := wire.Decode(f)
		if err != nil {
			return
		}
		c.handle(f.Call, m)
	}
}

// handle answers one frame.
func (c *conn) handle(call uint64, m wire.Message) {
	g := c.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hang || g.dead {
		return
	}
	switch m := m.(type) {
	case *wire.Hello:
		g.hello(c, call, "fake")
	case *wire.Ping:
		c.send(call, &wire.Pong{})
	case *wire.Start:
		g.start(m.Command)
		c.send(call, &wire.Reply{})
	case *wire.OpenSession:
		g.openSession(m.SessionSpec)
		c.send(call, &wire.Reply{Value: 100})
	case *wire.RunSession:
		c.reply(call, g.runSession(m.SessionCommand))
	case *wire.Interrupt:
		c.reply(call, g.interrupt(m.Session))
	case *wire.CloseSession:
		g.closeSession(m.Session)
		c.send(call, &wire.Reply{})
	case *wire.Signal:
		g.signal(m.ID, m.Number)
		c.send(call, &wire.Reply{})
	case *wire.Cancel:
		g.cancelProc(m.ID, m.Reason)
		c.send(call, &wire.Reply{})
	case *wire.Resume:
		g.resume(m.ID, m.Offsets)
	case *wire.Release:
		g.release(m.ID)
	case *wire.Shutdown:
		g.work.Go(func() { g.shutdown(c, call) })
	case *wire.Ack: // nothing is dropped before Release
	default:
		c.send(call, &wire.Reply{Code: sos.CodeUnsupported, Message: "the fake guest does not know this request"})
	}
}

func (c *conn) reply(call uint64, e *sos.Error) {
	if e == nil {
		c.send(call, &wire.Reply{})
		return
	}
	c.send(call, &wire.Reply{Code: e.Code, Message: e.Message})
}
