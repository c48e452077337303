package server

import (
	"strings"
	"syscall"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// calls makes a repeated call of one client the same call: its reply is kept for a
// while, and while it is under way a repetition does nothing.
type calls struct {
	client  string
	replies map[uint64]wire.Message // nil: under way
	done    []uint64                // in the order of answering
}

// keptReplies is more than a host has in flight.
const keptReplies = 512

func (c *calls) begin(client string) {
	if c.client != client || c.replies == nil {
		*c = calls{client: client, replies: map[uint64]wire.Message{}}
	}
}

// handle does one request. What takes time goes on elsewhere; the order of
// requests is kept where it matters: Start, RunSession, Cancel.
func (g *Guest) handle(call uint64, m wire.Message) {
	if g.control(m) {
		return
	}
	g.mu.Lock()
	reply, known := g.calls.replies[call]
	if !known {
		g.calls.replies[call] = nil
	}
	client := g.calls.client
	if reply != nil && g.conn != nil {
		g.conn.queue(call, reply)
	}
	g.mu.Unlock()
	if known {
		return
	}
	answer := func(reply wire.Message) { g.answer(client, call, reply, false) }
	switch m := m.(type) {
	case *wire.Ping:
		answer(&wire.Pong{})
	case *wire.Start:
		r := g.startProcess(m.Command)
		g.answer(client, call, r, r.Code == "")
	case *wire.RunSession:
		r := g.runSession(m.SessionCommand)
		g.answer(client, call, r, r.Code == "")
	case *wire.Signal:
		answer(g.signal(m))
	case *wire.Cancel:
		go func() { answer(g.cancelByID(m)) }()
	case *wire.Interrupt:
		s, p := g.current(m.Session) // now: a later command is not meant
		go func() { answer(interrupt(s, p)) }()
	case *wire.OpenSession:
		go func() { answer(g.openSession(m.SessionSpec)) }()
	case *wire.CloseSession:
		go func() { answer(g.closeSession(m.Session)) }()
	case *wire.Shutdown:
		go func() { answer(g.shutdown(m.Grace)) }()
	default:
		answer(refuse(sos.CodeUnsupported, "this guest does not know the request"))
	}
}

// control does what has no reply.
func (g *Guest) control(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.Ack:
		g.ack(m)
	case *wire.Resume:
		g.resume(m)
	case *wire.Release:
		g.release(m.ID)
	default:
		return false
	}
	return true
}

func refuse(code sos.Code, message string) *wire.Reply {
	return &wire.Reply{Code: code, Message: message[:min(len(message), wire.MaxMessage)]}
}

// answer keeps and sends a reply, if the client that asked is still the one. soon:
// it may wait for company.
func (g *Guest) answer(client string, call uint64, reply wire.Message, soon bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := &g.calls
	if k.client != client {
		return
	}
	k.replies[call] = reply
	k.done = append(k.done, call)
	if len(k.done) > keptReplies {
		delete(k.replies, k.done[0])
		k.done = k.done[1:]
	}
	switch {
	case g.conn == nil:
	case soon:
		g.conn.queueSoon(call, reply)
	default:
		g.conn.queue(call, reply)
	}
}

func (g *Guest) ack(m *wire.Ack) {
	g.mu.Lock()
	p := g.procs[m.ID]
	var wake *session
	if p != nil {
		for _, s := range p.streams {
			if s.kind == m.Stream && g.acked(s, m.Offset) {
				s.poke()
				wake = g.sessions[p.session]
			}
		}
	}
	g.mu.Unlock()
	if wake != nil {
		wake.wake()
	}
}

func (g *Guest) resume(m *wire.Resume) {
	g.mu.Lock()
	p := g.procs[m.ID]
	var wake *session
	if p != nil {
		for _, s := range p.streams {
			if g.acked(s, min(m.Offsets[s.kind], s.ring.end)) {
				s.poke()
				wake = g.sessions[p.session]
			}
			s.sent = s.ring.base
		}
		p.resumed = true
		p.saidStarted, p.saidExited, p.saidDrained = false, false, false
		g.dirty(p)
	}
	g.mu.Unlock()
	if wake != nil {
		wake.wake()
	}
}

func (g *Guest) startProcess(cmd guest.Command) *wire.Reply {
	if why := checkCommand(cmd); why != "" {
		return refuse(sos.CodeInvalid, why)
	}
	kinds := []sos.Stream{sos.StreamOut}
	if cmd.Split {
		kinds = []sos.Stream{sos.StreamStdout, sos.StreamStderr}
	}
	if g.isStopping() {
		return refuse(sos.CodeSandboxStopped, "the sandbox is stopping")
	}
	p := newProcess(g, cmd.ID, "", kinds...)
	if g.admit(p) {
		go p.run(cmd)
	}
	return &wire.Reply{}
}

// checkCommand says why a command cannot be started, whatever the sandbox holds.
func checkCommand(cmd guest.Command) string {
	switch {
	case cmd.ID == "":
		return "the command has no id"
	case len(cmd.Argv) == 0:
		return "the command has no program"
	case strings.Contains(cmd.Cwd, "\x00"):
		return "the working directory holds a NUL byte"
	}
	for _, a := range cmd.Argv {
		if strings.Contains(a, "\x00") {
			return "an argument holds a NUL byte"
		}
	}
	for _, e := range cmd.Env {
		if strings.Contains(e, "\x00") {
			return "an environment variable holds a NUL byte"
		}
		if strings.IndexByte(e, '=') < 1 {
			return "an environment variable has no name or no \"=\""
		}
	}
	return ""
}

func (g *Guest) process(id string) *process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.procs[id]
}

func (g *Guest) isStopping() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopping
}

func (g *Guest) signal(m *wire.Signal) *wire.Reply {
	p := g.process(m.ID)
	if p == nil {
		return refuse(sos.CodeNotFound, "no such process")
	}
	if p.session != "" {
		return refuse(sos.CodeUnsupported, "a session command cannot be signalled: interrupt the session")
	}
	if m.Number < 0 || m.Number > 64 {
		return refuse(sos.CodeInvalid, "no such signal")
	}
	g.mu.Lock()
	c := p.child
	g.mu.Unlock()
	if c == nil || !g.reap.signal(c, syscall.Signal(m.Number), true) {
		return refuse(sos.CodeNotFound, "the process does not run")
	}
	return &wire.Reply{}
}

func (g *Guest) cancelByID(m *wire.Cancel) *wire.Reply {
	if p := g.process(m.ID); p != nil {
		g.cancel(p, killRequest{reason: m.Reason, grace: m.Grace})
	}
	return &wire.Reply{}
}
