package fake

import (
	"sort"

	"github.com/seaofsimulation/sos"
	sosguest "github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// session is a shell whose state persists and whose commands run one by one.
type session struct {
	name  string
	sh    *shell
	queue []queued // under guest.mu
	busy  *proc    // under guest.mu
	wake  chan struct{}
	gone  chan struct{} // closed when it takes no more commands
}

type queued struct {
	p   *proc
	cmd sosguest.SessionCommand
}

func sessionExited(name string) *sos.Error {
	return sos.Errorf(sos.CodeSessionExited, "session %s has exited", name)
}

// openSession is idempotent by name. g.mu is held, here and below.
func (g *guest) openSession(s sosguest.SessionSpec) {
	if g.sessions[s.Name] != nil {
		return
	}
	delete(g.ended, s.Name)
	se := &session{name: s.Name, sh: newShell(s.Cwd, s.Env), wake: make(chan struct{}, 1), gone: make(chan struct{})}
	g.sessions[s.Name] = se
	g.work.Go(func() { g.serveSession(se) })
}

func (g *guest) runSession(c sosguest.SessionCommand) *sos.Error {
	if g.procs[c.ID] != nil {
		return nil
	}
	se := g.sessions[c.Session]
	if se == nil {
		return sessionExited(c.Session)
	}
	se.queue = append(se.queue, queued{g.newProc(c.ID, c.Session, false), c})
	select {
	case se.wake <- struct{}{}:
	default:
	}
	return nil
}

func (g *guest) interrupt(name string) *sos.Error {
	se := g.sessions[name]
	if se == nil {
		return sessionExited(name)
	}
	if se.busy != nil {
		g.stopProc(se.busy, sos.EndCancelled, 2)
	}
	return nil
}

// closeSession ends a shell without a word of its end.
func (g *guest) closeSession(name string) {
	se := g.sessions[name]
	delete(g.ended, name)
	if se == nil {
		return
	}
	delete(g.sessions, name)
	close(se.gone)
	if se.busy != nil {
		g.stopProc(se.busy, sos.EndCancelled, 9)
	}
}

// serveSession runs the commands in order until the shell ends.
func (g *guest) serveSession(se *session) {
	for {
		q, ok := g.next(se)
		if !ok {
			g.refuseQueued(se)
			return
		}
		if q.p.ctx.Err() != nil { // cancelled while it waited
			g.refuse(q.p)
			continue
		}
		se.sh.oneCommand(q.cmd.Env, q.cmd.Cwd)
		if g.run(q.p, se.sh, q.cmd.Text, q.cmd.Stdin, q.cmd.Timeout) {
			g.sessionEnded(se, q.p.exit)
			g.refuseQueued(se)
			return
		}
		se.sh.restore()
	}
}

func (g *guest) next(se *session) (queued, bool) {
	for {
		g.mu.Lock()
		se.busy = nil
		if len(se.queue) > 0 && g.sessions[se.name] == se {
			q := se.queue[0]
			se.queue = se.queue[1:]
			se.busy = q.p
			g.mu.Unlock()
			return q, true
		}
		g.mu.Unlock()
		select {
		case <-se.wake:
		case <-se.gone:
			return queued{}, false
		case <-g.ctx.Done():
			return queued{}, false
		}
	}
}

func (g *guest) sessionEnded(se *session, e sos.Exit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions[se.name] != se {
		return
	}
	delete(g.sessions, se.name)
	g.ended[se.name] = e
	g.send(&wire.SessionEnded{Session: se.name, Exit: e})
}

// refuseQueued ends what waited for a shell that is gone.
func (g *guest) refuseQueued(se *session) {
	g.mu.Lock()
	waiting := se.queue
	se.queue = nil
	g.mu.Unlock()
	for _, q := range waiting {
		g.refuse(q.p)
	}
}

// refuse ends a process that never ran.
func (g *guest) refuse(p *proc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := sos.Exit{Reason: sos.EndNotRun, Message: "the session has exited"}
	if p.why != "" {
		e = sos.Exit{Reason: p.why}
	}
	g.finish(p, e)
	p.cancel()
	close(p.finished)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
