package fake

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// guest is one run of a scripted guest. It holds processes and their output
// until the host releases them, over any number of connections; the newest one
// that said hello is served.
type guest struct {
	instance string
	files    *files
	born     time.Time
	ctx      context.Context // ends with the guest
	cancel   context.CancelFunc
	done     chan struct{} // closed when exit is valid
	exit     driver.Exit
	work     sync.WaitGroup // connections and processes

	mu       sync.Mutex
	dead     bool
	hang     bool
	thawed   chan struct{} // closed while nothing is frozen
	conns    map[*conn]struct{}
	current  *conn
	procs    map[string]*proc
	order    []*proc
	sessions map[string]*session
	ended    map[string]sos.Exit // sessions whose shell is gone
	ooms     int64
}

func newGuest(instance string, f *files) *guest {
	ctx, cancel := context.WithCancel(context.Background())
	g := &guest{
		instance: instance, files: f, born: time.Now(), ctx: ctx, cancel: cancel,
		done: make(chan struct{}), thawed: make(chan struct{}), conns: map[*conn]struct{}{},
		procs: map[string]*proc{}, sessions: map[string]*session{}, ended: map[string]sos.Exit{},
	}
	close(g.thawed)
	return g
}

func (g *guest) alive() bool {
	select {
	case <-g.done:
		return false
	default:
		return true
	}
}

// end kills the guest with all that runs in it; the first end counts. It returns
// when nothing runs any more.
func (g *guest) end(e driver.Exit) {
	g.kill(e)
	g.work.Wait()
}

// kill is end for those that run in the guest themselves: it does not wait.
func (g *guest) kill(e driver.Exit) {
	g.mu.Lock()
	if g.dead {
		g.mu.Unlock()
		return
	}
	g.dead = true
	g.exit = e
	g.mu.Unlock()
	g.cancel()
	g.disconnect()
	close(g.done)
}

// serve serves a connection; false when the guest is dead.
func (g *guest) serve(nc net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return false
	}
	c := newConn(g, nc)
	g.conns[c] = struct{}{}
	g.work.Go(c.write)
	g.work.Go(c.read)
	return true
}

func (g *guest) disconnect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.close()
	}
	clear(g.conns)
	g.current = nil
}

func (g *guest) forget(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
	if g.current == c {
		g.current = nil
	}
}

func (g *guest) hangs(hang bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hang = hang
}

func (g *guest) freeze(frozen bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := true
	select {
	case <-g.thawed:
		is = false
	default:
	}
	switch {
	case frozen && !is:
		g.thawed = make(chan struct{})
	case !frozen && is:
		close(g.thawed)
	}
}

// gate is passed by processes while they are not frozen.
func (g *guest) gate() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.thawed
}

func (g *guest) running() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.procs {
		if !p.exited {
			n++
		}
	}
	return n
}

func (g *guest) oomKills() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ooms
}

// hello makes c the served connection and tells it what the guest holds. g.mu is
// held.
func (g *guest) hello(c *conn, call uint64, build string) {
	if old := g.current; old != nil && old != c {
		old.send(0, &wire.Superseded{})
		old.finish()
	}
	g.current = c
	c.send(call, &wire.HelloReply{Protocol: protocol, Build: build, Instance: g.instance, Processes: len(g.order)})
	for _, p := range g.order {
		p.live = false
		c.send(0, &wire.Held{ProcessInfo: p.info()})
	}
	for name, e := range g.ended {
		c.send(0, &wire.SessionEnded{Session: name, Exit: e})
	}
}

// send goes to the served connection, when there is one. g.mu is held.
func (g *guest) send(m wire.Message) {
	if g.current != nil {
		g.current.send(0, m)
	}
}
