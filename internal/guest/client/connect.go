package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// faultError is a breach of the protocol: the connection is dropped and made again.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }
func (e *faultError) Unwrap() error { return e.err }

func fault(format string, args ...any) error {
	return &faultError{fmt.Errorf(format, args...)}
}

// maxHeld bounds the processes that a guest may claim to hold.
const maxHeld = 1 << 16

// connect makes one connection and serves it to its end, which is an error always.
func (c *Client) connect(ctx context.Context) error {
	dialCtx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	conn, err := c.cfg.Dial(dialCtx)
	cancel()
	if err != nil {
		return err
	}
	l := newLink(conn)
	defer l.close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	r := wire.NewReader(conn, wire.MaxAnswer)
	l.deadline(handshakeTimeout)
	held, err := c.hello(l, r)
	if err != nil {
		return err
	}
	c.resume(l, held)
	l.deadline(0)
	c.attach(l)
	defer c.detach()
	return c.receive(l, r)
}

// hello says who we are and reads what the guest holds.
func (c *Client) hello(l *link, r *wire.Reader) ([]guest.ProcessInfo, error) {
	l.send(0, &wire.Hello{Protocol: guest.Protocol, MinProtocol: guest.MinProtocol, Build: c.cfg.Build, Client: c.id})
	m, err := next(r)
	if err != nil {
		return nil, err
	}
	reply, ok := m.(*wire.HelloReply)
	if refusal, no := m.(*wire.Reply); no && refusal.Code == sos.CodeUnsupported {
		return nil, sos.Errorf(sos.CodeUnsupported, "the sandbox's guest refuses: %s", cleanText(refusal.Message))
	}
	if !ok || reply.Instance == "" || reply.Processes > maxHeld {
		return nil, fault("no proper answer to hello")
	}
	if reply.Protocol < guest.MinProtocol || reply.Protocol > guest.Protocol {
		return nil, sos.Errorf(sos.CodeUnsupported, "the sandbox's guest speaks protocol %d, this server %d to %d",
			reply.Protocol, guest.MinProtocol, guest.Protocol)
	}
	if err := c.checkInstance(reply.Instance); err != nil {
		return nil, err
	}
	var held []guest.ProcessInfo
	for range reply.Processes {
		m, err := next(r)
		if err != nil {
			return nil, err
		}
		h, ok := m.(*wire.Held)
		if !ok || h.ID == "" {
			return nil, fault("not the processes that hello announced")
		}
		held = append(held, h.ProcessInfo)
	}
	return held, nil
}

func next(r *wire.Reader) (wire.Message, error) {
	f, err := r.Next()
	if err != nil {
		return nil, readError(err)
	}
	m, err := wire.Decode(f)
	if err != nil {
		return nil, fault("frame of type %d: %w", f.Type, err)
	}
	return m, nil
}

// readError tells malformed frames from broken connections.
func readError(err error) error {
	if errors.Is(err, wire.ErrShort) || errors.Is(err, wire.ErrTooLong) {
		return &faultError{err}
	}
	return err
}

func (c *Client) checkInstance(instance string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.instance == "" {
		c.instance = instance
	}
	if c.instance != instance {
		return sos.Errorf(sos.CodeSandboxLost, "another guest answers: the sandbox was started anew")
	}
	return nil
}

// resume settles for each process that the guest holds from where it sends, and
// forgets those that it does not hold.
func (c *Client) resume(l *link, held []guest.ProcessInfo) {
	seen := make(map[string]bool, len(held))
	for _, info := range held {
		if seen[info.ID] {
			continue
		}
		seen[info.ID] = true
		c.resumeOne(l, info)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.procs {
		if seen[id] || c.calls[p.call] != nil {
			continue
		}
		c.cfg.Log.Warn("guest does not hold a process any more", "process", id)
		delete(c.procs, id)
	}
}

func (c *Client) resumeOne(l *link, info guest.ProcessInfo) {
	p, done := c.recall(info.ID)
	if done {
		l.release(info.ID)
		return
	}
	if !info.Started.IsZero() {
		info.Started = p.clamp(info.Started)
	}
	offsets, keep := c.cfg.Sink.Resume(info)
	if !keep {
		c.forget(l, info.ID)
		return
	}
	p.expected = map[sos.Stream]int64{}
	for s, n := range offsets {
		p.expected[s] = max(n, 0)
	}
	l.send(0, &wire.Resume{ID: info.ID, Offsets: p.expected})
	c.mu.Lock()
	c.procs[info.ID] = p
	k := c.calls[p.call] // the guest has it, so the call that started it has worked
	delete(c.calls, p.call)
	c.mu.Unlock()
	if k != nil {
		k.finish(0, nil)
	}
}

// recall gives what is known of a process that the guest holds. done: the sink has
// all of it, the guest has only not heard that yet.
func (c *Client) recall(id string) (p *proc, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.procs[id]; p != nil {
		return p, false
	}
	return &proc{}, c.released.Has(id)
}

// forget lets go of a process, here and in the guest.
func (c *Client) forget(l *link, id string) {
	c.mu.Lock()
	delete(c.procs, id)
	c.released.Add(id)
	c.mu.Unlock()
	l.release(id)
}

// attach makes l the connection of calls and makes those in flight again, in
// their order.
func (c *Client) attach(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
	ids := make([]uint64, 0, len(c.calls))
	for id := range c.calls {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		l.send(id, c.calls[id].msg)
	}
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}

func (c *Client) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = nil
}
