package server

import (
	"time"

	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// batch is how much one write holds at least while there is more.
const batch = 256 << 10

// write sends what there is until the connection ends.
func (c *conn) write() {
	var buf []byte
	for {
		c.g.mu.Lock()
		buf = c.collect(buf[:0])
		over := c.closed || c.last && len(c.control) == 0 && len(buf) == 0
		c.g.mu.Unlock()
		switch {
		case over:
			c.f.Close() // the reader ends too
			return
		case len(buf) == 0:
			buf = c.idle(buf)
			continue
		}
		if _, err := c.f.Write(buf); err != nil {
			c.f.Close()
			return
		}
	}
}

// idle waits for something to send; a large buffer is not kept for long.
func (c *conn) idle(buf []byte) []byte {
	if cap(buf) > 16<<10 {
		t := time.NewTimer(sweepEvery)
		defer t.Stop()
		select {
		case <-c.wake:
			return buf
		case <-t.C:
		}
	}
	<-c.wake
	return nil
}

// collect takes the control frames and then something of each process in turn.
func (c *conn) collect(buf []byte) []byte {
	if c.soon != nil {
		c.soon.Stop()
		c.soon = nil
	}
	buf = append(buf, c.control...)
	if c.control = c.control[:0]; cap(c.control) > 16<<10 {
		c.control = nil
	}
	if c.last {
		c.ready = nil
	}
	for len(buf) < batch && len(c.ready) > 0 {
		p := c.ready[0]
		c.ready = c.ready[1:]
		p.queued = false
		more := false
		if buf, more = p.fill(buf); more {
			p.queued = true
			c.ready = append(c.ready, p)
		}
	}
	if len(c.ready) == 0 {
		c.ready = nil
	}
	return buf
}

// dirty says that a process has something to send.
func (g *Guest) dirty(p *process) {
	if g.enqueue(p) {
		g.conn.poke()
	}
}

// hasStarted says that a process has only its start to tell, which may wait.
func (g *Guest) hasStarted(p *process) {
	if g.enqueue(p) {
		g.conn.pokeSoon()
	}
}

// enqueue puts a process among those that have something to send; false: nobody
// is to hear of it now.
func (g *Guest) enqueue(p *process) bool {
	c := g.conn
	if c == nil || !p.resumed || p.forgotten {
		return false
	}
	if !p.queued {
		p.queued = true
		c.ready = append(c.ready, p)
	}
	return true
}

// fill adds what the connection was not told yet, at most one frame of each
// stream, in the order that the host relies on: start, output, end, output of
// survivors, drained. It says whether there is more.
func (p *process) fill(buf []byte) (out []byte, more bool) {
	if p.forgotten {
		return buf, false
	}
	if !p.startedAt.IsZero() && !p.saidStarted {
		p.saidStarted = true
		buf = wire.Append(buf, 0, &wire.Started{ID: p.id, At: p.startedAt})
	}
	all, left := true, false // up to the end of the process; at all
	for _, s := range p.streams {
		end := s.ring.end
		if p.exit != nil && !p.saidExited {
			end = max(s.mark, s.sent)
		}
		if n := min(end-s.sent, wire.MaxOutput); n > 0 {
			var room []byte
			buf, room = wire.AppendOutput(buf, p.id, wire.Output{Stream: s.kind, Offset: s.sent}, int(n))
			s.ring.copyTo(room, s.sent)
			s.sent += n
		}
		all = all && s.sent >= s.mark
		left = left || s.sent < s.ring.end
	}
	if p.exit == nil {
		return buf, left
	}
	if all && !p.saidExited {
		p.saidExited = true
		buf = wire.Append(buf, 0, &wire.Exited{ID: p.id, Exit: *p.exit, At: p.endedAt})
	}
	if p.drained && !left && p.saidExited && !p.saidDrained {
		p.saidDrained = true
		buf = wire.Append(buf, 0, &wire.Drained{ID: p.id})
	}
	return buf, left
}
