package client

import (
	"math"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

const (
	// maxJunk is how many frames may be about nothing we know within junkTime.
	maxJunk  = 10_000
	junkTime = 10 * time.Second
	// ackEvery is the output after which an ack goes even while more is there to
	// read: the guest's window must not run dry.
	ackEvery = 256 << 10
)

// receiver serves the frames of one connection, in their order.
type receiver struct {
	c     *Client
	l     *link
	owing int // bytes not yet acknowledged

	junk      int
	junkSince time.Time
}

func (c *Client) receive(l *link, r *wire.Reader) error {
	rc := &receiver{c: c, l: l}
	for {
		if r.Buffered() == 0 || rc.owing >= ackEvery {
			l.flushAcks()
			rc.owing = 0
		}
		f, err := r.Next()
		if err != nil {
			return readError(err)
		}
		if err := rc.frame(f); err != nil {
			return err
		}
		if rc.junk > maxJunk {
			return fault("%d frames about nothing within %v", rc.junk, junkTime)
		}
	}
}

// waste counts a frame that gives us nothing.
func (rc *receiver) waste() {
	if now := time.Now(); now.Sub(rc.junkSince) > junkTime {
		rc.junk, rc.junkSince = 0, now
	}
	rc.junk++
}

func (rc *receiver) frame(f wire.Frame) error {
	m, err := wire.Decode(f)
	if err != nil {
		return fault("frame of type %d: %w", f.Type, err)
	}
	switch m := m.(type) {
	case *wire.Output:
		return rc.output(m)
	case *wire.Reply:
		rc.reply(f.Call, m)
	case *wire.Pong:
		rc.reply(f.Call, &wire.Reply{})
	case *wire.Started:
		rc.started(m)
	case *wire.Exited:
		return rc.exited(m)
	case *wire.Drained:
		return rc.drained(m)
	case *wire.SessionEnded:
		return rc.sessionEnded(m)
	case *wire.Superseded:
		return sos.Errorf(sos.CodeUnavailable, "another host took over the guest")
	default:
		return fault("frame of type %d is not a guest's", f.Type)
	}
	return nil
}

func (rc *receiver) reply(id uint64, m *wire.Reply) {
	k := rc.c.take(id)
	if k == nil {
		rc.waste()
		return
	}
	if m.Code == "" {
		k.finish(m.Value, nil)
		return
	}
	if k.proc != "" { // refused: nothing will come of it
		rc.c.mu.Lock()
		delete(rc.c.procs, k.proc)
		rc.c.mu.Unlock()
	}
	k.finish(0, &sos.Error{Code: m.Code, Message: cleanText(m.Message)})
}

func (rc *receiver) started(m *wire.Started) {
	p := rc.c.lookup(m.ID)
	if p == nil || p.started || p.exited {
		rc.waste()
		return
	}
	p.started = true
	at := p.clamp(m.At)
	p.since = at
	rc.c.cfg.Sink.Started(m.ID, at)
}

func (rc *receiver) output(m *wire.Output) error {
	p := rc.c.lookup(m.ID)
	if p == nil || len(m.Data) == 0 {
		rc.waste()
		return nil
	}
	want := p.expected[m.Stream]
	if m.Offset > want {
		return fault("output of %s %s jumps from %d to %d", m.ID, m.Stream, want, m.Offset)
	}
	skip := want - m.Offset
	if skip >= int64(len(m.Data)) { // all of it known
		rc.waste()
		rc.l.ack(m.ID, m.Stream, want)
		return nil
	}
	data := m.Data[skip:]
	if want > math.MaxInt64-int64(len(data)) {
		return fault("output of %s %s has no end", m.ID, m.Stream)
	}
	rc.c.cfg.Sink.Output(m.ID, m.Stream, want, data)
	want += int64(len(data))
	p.expected[m.Stream] = want
	rc.l.ack(m.ID, m.Stream, want)
	rc.owing += len(data)
	return nil
}

func (rc *receiver) exited(m *wire.Exited) error {
	p := rc.c.lookup(m.ID)
	if p == nil || p.exited {
		rc.waste()
		return nil
	}
	e, ok := cleanExit(m.Exit)
	if !ok {
		return fault("end of %s makes no sense", m.ID)
	}
	p.exited = true
	rc.c.cfg.Sink.Exited(m.ID, e, p.clamp(m.At))
	return nil
}

func (rc *receiver) drained(m *wire.Drained) error {
	p := rc.c.lookup(m.ID)
	if p == nil {
		rc.waste()
		return nil
	}
	if !p.exited {
		return fault("%s is drained before its end", m.ID)
	}
	rc.c.cfg.Sink.Drained(m.ID)
	rc.c.forget(rc.l, m.ID)
	return nil
}

func (rc *receiver) sessionEnded(m *wire.SessionEnded) error {
	if rc.waste(); m.Session == "" { // any number of them is as bad as junk
		return nil
	}
	e, ok := cleanExit(m.Exit)
	if !ok {
		return fault("end of session makes no sense")
	}
	rc.c.cfg.Sink.SessionEnded(m.Session, e)
	return nil
}
