package fake

import (
	"context"
	"time"

	"github.com/seaofsimulation/sos"
	sosguest "github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// proc is one command of the guest. Its fields are under guest.mu.
type proc struct {
	id, session string
	split       bool
	streams     map[sos.Stream][]byte
	sent        map[sos.Stream]int64 // on the served connection
	live        bool                 // the served connection wants it
	started     time.Time            // zero: queued
	told        bool                 // Started was sent on some connection
	exited      bool
	exit        sos.Exit
	at          time.Time
	ctx         context.Context
	cancel      context.CancelFunc
	why         sos.EndReason // set before cancel
	sig         int           // signal that ended it
	finished    chan struct{}
}

func (g *guest) newProc(id, session string, split bool) *proc {
	p := &proc{
		id: id, session: session, split: split, live: g.current != nil, finished: make(chan struct{}),
		streams: map[sos.Stream][]byte{}, sent: map[sos.Stream]int64{},
	}
	p.ctx, p.cancel = context.WithCancel(g.ctx)
	names := []sos.Stream{sos.StreamOut}
	if split {
		names = []sos.Stream{sos.StreamStdout, sos.StreamStderr}
	}
	for _, s := range names {
		p.streams[s] = nil
	}
	g.procs[id] = p
	g.order = append(g.order, p)
	return p
}

func (p *proc) info() sosguest.ProcessInfo {
	i := sosguest.ProcessInfo{ID: p.id, Session: p.session, Started: p.started, Exited: p.exited,
		Offsets: map[sos.Stream]int64{}, Ends: map[sos.Stream]int64{}}
	for s, b := range p.streams {
		i.Offsets[s], i.Ends[s] = 0, int64(len(b))
	}
	return i
}

// start begins a standalone command; a known id is the same process. g.mu is held.
func (g *guest) start(c sosguest.Command) {
	if g.procs[c.ID] != nil {
		return
	}
	p := g.newProc(c.ID, "", c.Split)
	text := ""
	if n := len(c.Argv); n > 0 {
		text = c.Argv[n-1]
		if n != 3 || c.Argv[1] != "-c" {
			text = join(c.Argv)
		}
	}
	sh := newShell(c.Cwd, c.Env)
	g.work.Go(func() { g.run(p, sh, text, c.Stdin, c.Timeout) })
}

// run runs a text to its end, and says whether the shell ended with it.
func (g *guest) run(p *proc, sh *shell, text string, stdin []byte, timeout time.Duration) (ended bool) {
	defer close(p.finished)
	defer p.cancel()
	g.mu.Lock()
	p.started = time.Now()
	g.pump(p)
	g.mu.Unlock()
	if timeout > 0 {
		t := time.AfterFunc(timeout, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.stopProc(p, sos.EndTimeout, 9)
		})
		defer t.Stop()
	}
	code, ended := sh.run(&task{g: g, p: p, stdin: stdin}, text)
	g.mu.Lock()
	defer g.mu.Unlock()
	e := sos.Exit{ExitCode: &code, Reason: sos.EndExit, ShellEnded: p.session != "" && ended}
	if p.why != "" {
		*e.ExitCode = 128 + p.sig
		e.Reason, e.Signal, e.ShellEnded = p.why, signalName(p.sig), false
		e.OOMKilled = p.why == sos.EndOOM
	}
	g.finish(p, e)
	return ended && p.why == ""
}

// finish records the end of p and tells of it. g.mu is held.
func (g *guest) finish(p *proc, e sos.Exit) {
	p.exited, p.exit, p.at = true, e, time.Now()
	g.pump(p)
}

// stopProc ends a process for a reason; the first one counts. g.mu is held.
func (g *guest) stopProc(p *proc, why sos.EndReason, sig int) {
	if p.exited || p.why != "" {
		return
	}
	p.why, p.sig = why, sig
	p.cancel()
}

func (g *guest) signal(id string, sig int) {
	if p := g.procs[id]; p != nil && !p.started.IsZero() {
		g.stopProc(p, sos.EndSignal, sig)
	}
}

func (g *guest) cancelProc(id string, why sos.EndReason) {
	if p := g.procs[id]; p != nil {
		g.stopProc(p, why, 15)
	}
}

func (g *guest) resume(id string, offsets map[sos.Stream]int64) {
	p := g.procs[id]
	if p == nil {
		return
	}
	p.live, p.told = true, false
	for s, n := range offsets {
		p.sent[s] = n
	}
	g.pump(p)
}

func (g *guest) release(id string) {
	p := g.procs[id]
	if p == nil || !p.exited {
		return
	}
	delete(g.procs, id)
	for i, o := range g.order {
		if o == p {
			g.order = append(g.order[:i:i], g.order[i+1:]...)
		}
	}
}

// pump sends what the served connection does not have of p yet. g.mu is held.
func (g *guest) pump(p *proc) {
	if !p.live || g.current == nil || g.hang || g.dead {
		return
	}
	if !p.told && !p.started.IsZero() {
		p.told = true
		g.send(&wire.Started{ID: p.id, At: p.started})
	}
	for s, b := range p.streams {
		for n := p.sent[s]; n < int64(len(b)); n = p.sent[s] {
			end := min(int64(len(b)), n+wire.MaxOutput)
			g.send(&wire.Output{ID: p.id, Stream: s, Offset: n, Data: b[n:end]})
			p.sent[s] = end
		}
	}
	if p.exited {
		p.live = false
		g.send(&wire.Exited{ID: p.id, Exit: p.exit, At: p.at})
		g.send(&wire.Drained{ID: p.id})
	}
}

// shutdown ends every process and answers when all have ended.
func (g *guest) shutdown(c *conn, call uint64) {
	g.mu.Lock()
	all := append([]*proc(nil), g.order...)
	for _, p := range all {
		g.stopProc(p, sos.EndSandboxStopped, 15)
	}
	g.mu.Unlock()
	for _, p := range all {
		select {
		case <-p.finished:
		case <-g.ctx.Done():
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.send(call, &wire.Reply{})
}
