package server

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	shells "github.com/seaofsimulation/sos/internal/guest/session"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// session is a bash and the commands that wait for it. Its fields are under
// Guest.mu. Without shell and ended it is being opened.
type session struct {
	g       *Guest
	name    string
	opened  chan struct{} // closed when shell or failed is set
	shell   *shells.Shell
	failed  *wire.Reply
	ended   *sos.Exit // the shell is gone
	queue   []queued
	running *process
	more    chan struct{} // buffered 1: queue has grown
	gone    chan struct{} // closed when ended is set, or opening failed
	closing bool

	turn sync.Mutex // held while running is set to nil, and while it is interrupted
}

type queued struct {
	p   *process
	cmd guest.SessionCommand
}

// maxQueue bounds the commands that wait for one session.
const maxQueue = 4096

// openSession starts a shell unless that session lives, and waits for it.
func (g *Guest) openSession(spec guest.SessionSpec) *wire.Reply {
	if spec.Name == "" {
		return refuse(sos.CodeInvalid, "the session has no name")
	}
	g.mu.Lock()
	if g.stopping {
		g.mu.Unlock()
		return refuse(sos.CodeSandboxStopped, "the sandbox is stopping")
	}
	s := g.sessions[spec.Name]
	if s != nil && s.closing && s.ended == nil {
		g.mu.Unlock()
		<-s.gone
		return g.openSession(spec)
	}
	if s == nil || s.ended != nil {
		s = &session{g: g, name: spec.Name, opened: make(chan struct{}), more: make(chan struct{}, 1), gone: make(chan struct{})}
		g.sessions[spec.Name] = s
		go s.run(spec)
	}
	g.mu.Unlock()
	<-s.opened
	if s.failed != nil {
		return s.failed
	}
	return &wire.Reply{Value: int64(s.shell.Pid())}
}

// run is the life of a session.
func (s *session) run(spec guest.SessionSpec) {
	g := s.g
	shell, err := shells.Open(shells.Config{Dir: g.cfg.Dir, Host: g, Spec: spec})
	g.mu.Lock()
	if err != nil {
		s.failed = replyOf(err)
		if g.sessions[s.name] == s {
			delete(g.sessions, s.name)
		}
	}
	s.shell = shell
	close(s.opened)
	stop := s.closing || g.stopping
	g.mu.Unlock()
	if err != nil {
		close(s.gone)
		return
	}
	if stop {
		shell.Close()
	}
	for s.next() {
	}
	<-shell.Ended()
	s.end(shell.Exit())
	shell.Close()
}

// next waits for a command and runs it. False: the shell has ended.
func (s *session) next() bool {
	s.g.mu.Lock()
	if len(s.queue) > 0 {
		q := s.queue[0]
		s.queue = s.queue[1:]
		s.running = q.p
		s.g.mu.Unlock()
		s.runOne(q)
	} else {
		s.g.mu.Unlock()
		select {
		case <-s.more:
		case <-s.shell.Ended():
			return false
		}
	}
	select {
	case <-s.shell.Ended():
		return false
	default:
		return true
	}
}

// runOne runs one command to its end. What survives it goes on writing into its
// stream.
func (s *session) runOne(q queued) {
	g, p := s.g, q.p
	kills := oomKills(g.cfg.OOM)
	r := s.shell.Run(q.cmd, sessionOutput{g, p.streams[0]}, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		p.startedAt = time.Now()
		g.hasStarted(p)
	})
	e := r.Exit
	e.OOMKilled = e.OOMKilled || oomKills(g.cfg.OOM) > kills
	s.turn.Lock()
	g.mu.Lock()
	s.running = nil
	stopping := g.stopping
	g.mu.Unlock()
	s.turn.Unlock()
	if stopping {
		e.Reason = sos.EndSandboxStopped
	}
	if e.OOMKilled && e.ShellEnded && e.Signal == "SIGKILL" && e.Reason == sos.EndSignal {
		e.Reason = sos.EndOOM
	}
	e.Survivors = r.Rest >= 0
	p.ended(e)
	if r.Rest < 0 {
		p.finished()
		return
	}
	syscall.SetNonblock(r.Rest, true)
	go func() { // ends with the survivors
		g.copyFrom(p.streams[0], os.NewFile(uintptr(r.Rest), "output"))
		p.finished()
	}()
}

// end records that the shell is gone and ends what still waited for it: that must
// never run in another shell.
func (s *session) end(e sos.Exit) {
	g := s.g
	g.mu.Lock()
	if g.stopping {
		e.Reason = sos.EndSandboxStopped
	}
	s.ended = &e
	rest := s.queue
	s.queue = nil
	if s.closing && g.sessions[s.name] == s {
		delete(g.sessions, s.name)
	}
	if g.conn != nil {
		g.conn.queue(0, &wire.SessionEnded{Session: s.name, Exit: e})
	}
	stopping := g.stopping
	close(s.gone)
	g.mu.Unlock()
	for _, q := range rest {
		end := sos.Exit{Reason: sos.EndNotRun, ShellEnded: true, Message: "the session's shell ended before"}
		if stopping {
			end.Reason, end.Message = sos.EndSandboxStopped, ""
		}
		q.p.ended(end)
		q.p.finished()
	}
}

// runSession queues a command.
func (g *Guest) runSession(cmd guest.SessionCommand) *wire.Reply {
	if cmd.ID == "" || cmd.Session == "" {
		return refuse(sos.CodeInvalid, "the command has no id or no session")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.procs[cmd.ID] != nil || g.released.Has(cmd.ID) {
		return &wire.Reply{}
	}
	s := g.sessions[cmd.Session]
	switch {
	case g.stopping:
		return refuse(sos.CodeSandboxStopped, "the sandbox is stopping")
	case s == nil || s.ended != nil || s.closing:
		return refuse(sos.CodeSessionExited, "the session's shell has ended")
	case len(s.queue) >= maxQueue:
		return refuse(sos.CodeUnavailable, "too many commands wait for this session")
	}
	p := newProcess(g, cmd.ID, cmd.Session, sos.StreamOut)
	p.resumed = g.conn != nil
	g.procs[p.id] = p
	s.queue = append(s.queue, queued{p, cmd})
	s.poke()
	return &wire.Reply{}
}

func (s *session) poke() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// wake tells the shell that its output has place. Without Guest.mu.
func (s *session) wake() {
	s.g.mu.Lock()
	shell := s.shell
	s.g.mu.Unlock()
	if shell != nil {
		shell.Wake()
	}
}

// current is a session and what it runs.
func (g *Guest) current(name string) (*session, *process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[name]
	if s == nil {
		return nil, nil
	}
	return s, s.running
}

// interrupt cancels p, which s was running when it was asked.
func interrupt(s *session, p *process) *wire.Reply {
	if s == nil {
		return refuse(sos.CodeNotFound, "no such session")
	}
	if p != nil {
		s.interrupt(p, sos.EndCancelled)
	}
	return &wire.Reply{}
}

// startTime bounds the moment between the turn of a command and its start.
const startTime = 5 * time.Second

// interrupt ends p if the session runs it: never the command after it. The shell
// hears it only once it has begun.
func (s *session) interrupt(p *process, reason sos.EndReason) {
	for begun := time.Now(); time.Since(begun) < startTime; time.Sleep(time.Millisecond) {
		s.turn.Lock()
		s.g.mu.Lock()
		runs, started := s.running == p, !p.startedAt.IsZero()
		s.g.mu.Unlock()
		if runs && started {
			s.shell.Interrupt(reason)
		}
		s.turn.Unlock()
		if !runs || started {
			return
		}
	}
}

// cancelSessionCommand ends a command that runs, or takes it out of the queue.
func (g *Guest) cancelSessionCommand(p *process, reason sos.EndReason) {
	g.mu.Lock()
	s := g.sessions[p.session]
	if s == nil {
		g.mu.Unlock()
		return
	}
	for i, q := range s.queue {
		if q.p == p {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			g.mu.Unlock()
			p.ended(sos.Exit{Reason: reason})
			p.finished()
			return
		}
	}
	g.mu.Unlock()
	s.interrupt(p, reason)
}

// closeSession ends a shell and forgets it.
func (g *Guest) closeSession(name string) *wire.Reply {
	g.mu.Lock()
	s := g.sessions[name]
	if s == nil {
		g.mu.Unlock()
		return &wire.Reply{}
	}
	s.closing = true
	if s.ended != nil {
		delete(g.sessions, name)
		g.mu.Unlock()
		return &wire.Reply{}
	}
	g.mu.Unlock()
	<-s.opened
	if s.shell != nil {
		s.shell.Close()
	}
	<-s.gone
	return &wire.Reply{}
}

// Fork starts the shell of a session the guest's way.
func (g *Guest) Fork(f shells.Fork) (shells.Child, error) {
	who, err := lookup(f.User)
	if err != nil {
		return shells.Child{}, sos.Errorf(sos.CodeSpawnFailed, "user %q: %w in the sandbox", f.User, err)
	}
	l := launch{path: f.Path, argv: f.Argv, env: withDefaults(f.Env, who), cwd: f.Cwd, who: who,
		files: f.Files, subreaper: f.Subreaper}
	if l.cwd == "" {
		l.cwd = "/"
	}
	if why := checkCwd(l.cwd); why != "" {
		return shells.Child{}, &sos.Error{Code: sos.CodeSpawnFailed, Message: why}
	}
	c, err := g.start(l)
	if err != nil {
		return shells.Child{}, &sos.Error{Code: sos.CodeSpawnFailed, Message: explain(err, l)}
	}
	return shells.Child{Pid: c.pid, Done: c.done, Status: func() syscall.WaitStatus { return c.status }}, nil
}

func replyOf(err error) *wire.Reply {
	var e *sos.Error
	if errors.As(err, &e) {
		return refuse(e.Code, e.Message)
	}
	return refuse(sos.CodeInternal, err.Error())
}
