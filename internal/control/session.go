package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// session is a shell of a life. Its fields are guarded by the life's mu.
type session struct {
	life *life
	s    sos.Session

	send   chan struct{} // one token: commands reach the guest in the order of their numbers
	opened chan struct{} // closed when the shell has answered, or has not
	err    error         // why it has not; set before opened
	wanted chan struct{} // holds a token once somebody waits for it; buffered 1
	gone   bool          // the shell has ended, or never was
	queue  []*proc       // accepted and not ended, in order
}

// maxSessions bounds the shells of one sandbox.
const maxSessions = 64

// left takes an ended command out of the queue. Callers hold the life's mu.
func (s *session) left(pr *proc) {
	if i := slices.Index(s.queue, pr); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// view is the session as callers see it. Callers hold the life's mu.
func (s *session) view() sos.Session {
	v := s.s
	if len(s.queue) > 0 {
		v.Running, v.Queued = s.queue[0].id, len(s.queue)-1
	}
	return v
}

// open gives the session of a name, and begins to start its shell when there is
// none or it has ended: callers who come at once get the same one.
func (l *life) open(name string) (*session, error) { return l.openWithin(name, 0) }

// openWithin is open that lets the shell wait until somebody wants it, but no longer
// than d.
func (l *life) openWithin(name string, d time.Duration) (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing != nil {
		return nil, l.closing
	}
	if s := l.sessions[name]; s != nil && !s.gone {
		return s, nil
	}
	alive := 0
	for _, s := range l.sessions {
		if !s.gone {
			alive++
		}
	}
	if alive >= maxSessions {
		return nil, &sos.Error{Code: sos.CodeUnavailable, Message: fmt.Sprintf("the sandbox has %d sessions, which is the most", alive), Fix: "remove one first"}
	}
	s := &session{life: l, send: make(chan struct{}, 1), opened: make(chan struct{}), wanted: make(chan struct{}, 1),
		s: sos.Session{Name: name, Sandbox: l.b.id, Status: sessionRunning, CreatedAt: l.p.cfg.Now()}}
	if !l.work.spawn(func() { s.begin(d) }) {
		return nil, errStopped()
	}
	l.sessions[name] = s
	return s, nil
}

// Words of sos.Session.Status.
const (
	sessionRunning = "running"
	sessionExited  = "exited"
)

// begin starts the shell, after d at the latest.
func (s *session) begin(d time.Duration) {
	defer close(s.opened)
	l := s.life
	if d > 0 {
		late := time.NewTimer(d)
		defer late.Stop()
		select {
		case <-s.wanted:
		case <-late.C:
		case <-l.ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(l.ctx, stepTimeout) // start files may take their time
	defer cancel()
	l.mu.Lock()
	v := s.s
	l.mu.Unlock()
	_, err := l.guest.OpenSession(ctx, guest.SessionSpec{Name: v.Name, Env: l.facts.environ(nil), Cwd: l.facts.workdir, User: l.facts.user})
	if err == nil && v.Name != setupSession {
		err = l.p.cfg.Store.PutSession(ctx, v)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		return
	}
	s.err, s.gone = openError(err), true
	if v.Name != sos.DefaultSession {
		delete(l.sessions, v.Name)
	}
	if sos.ErrorCode(err) != sos.CodeUnsupported && l.ctx.Err() == nil {
		l.p.cfg.Log.Warn("a session did not open", "sandbox", l.b.id, "session", v.Name, "err", err)
	}
}

func openError(err error) error {
	if e, ok := errors.AsType[*sos.Error](err); ok && e.Code != sos.CodeInternal {
		if e.Code == sos.CodeUnsupported && e.Fix == "" {
			c := *e
			c.Fix = "use an image with /bin/bash, or run standalone commands"
			return &c
		}
		return err
	}
	return &sos.Error{Code: sos.CodeUnavailable, Message: "the session's shell did not start", Cause: err}
}

// wait blocks until the shell has answered.
func (s *session) wait(ctx context.Context) error {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
	select {
	case <-s.opened:
		return s.err
	case <-ctx.Done():
		return gone(ctx)
	case <-s.life.ctx.Done():
		return s.life.failed(s.life.ctx.Err())
	}
}

// sessionFor gives the session that a command is for. The default one is opened
// when it never was; one that has ended stays ended until somebody opens it.
func (l *life) sessionFor(ctx context.Context, name string) (*session, error) {
	l.mu.Lock()
	s := l.sessions[name]
	never := s == nil || s.gone && s.err != nil
	exited := s != nil && s.gone && s.err == nil
	l.mu.Unlock()
	switch {
	case exited:
		return nil, errSessionExited()
	case never && name != sos.DefaultSession:
		return nil, sos.Errorf(sos.CodeNotFound, "Session %s not found", name)
	case never:
		var err error
		if s, err = l.open(name); err != nil {
			return nil, err
		}
	}
	if err := s.wait(ctx); err != nil {
		return nil, l.failed(err)
	}
	return s, nil
}

// sessionEnded records that a shell is gone.
func (l *life) sessionEnded(s *session, code *int) {
	now := l.p.cfg.Now()
	l.mu.Lock()
	if s.gone {
		l.mu.Unlock()
		return
	}
	s.gone = true
	s.s.Status, s.s.ExitCode, s.s.EndedAt = sessionExited, code, &now
	v := s.s
	l.mu.Unlock()
	if v.Name == setupSession {
		return
	}
	l.recordSession(v)
	if v.Name != sos.DefaultSession {
		return
	}
	l.setStatus(sos.StatusStarted, sos.StatusExited)
}

// setStatus records the change of a running sandbox from one status to another.
func (l *life) setStatus(from, to sos.Status) {
	err := l.p.edit(l.b, false, func(s *sos.Sandbox) {
		if s.Status == from && s.Desired == sos.DesiredStarted {
			s.Status = to
		}
	})
	if err != nil {
		l.p.cfg.Log.Error("cannot record a sandbox's status", "sandbox", l.b.id, "err", err)
	}
}

func (l *life) recordSession(v sos.Session) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), stepTimeout)
	defer cancel()
	if err := l.p.cfg.Store.PutSession(ctx, v); err != nil {
		l.p.cfg.Log.Error("cannot record a session", "sandbox", l.b.id, "session", v.Name, "err", err)
	}
}

// endSessions records that all shells went with the life.
func (l *life) endSessions(record bool) {
	now := l.p.cfg.Now()
	var ended []sos.Session
	l.mu.Lock()
	for _, s := range l.sessions {
		if !s.gone {
			s.gone = true
			s.s.Status, s.s.EndedAt = sessionExited, &now
			ended = append(ended, s.s)
		}
	}
	l.mu.Unlock()
	for _, v := range ended {
		if record && v.Name != setupSession {
			l.recordSession(v)
		}
	}
}

// ListSessions implements sos.Service.
func (p *Plane) ListSessions(ctx context.Context, ref string) ([]sos.Session, error) {
	b, err := p.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	list, err := p.cfg.Store.Sessions(ctx, b.id)
	if err != nil {
		return nil, internal("list sessions of", b.id, err)
	}
	b.mu.Lock()
	l := b.life
	b.mu.Unlock()
	if l == nil {
		return list, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.sessions {
		if name == setupSession || s.err != nil {
			continue
		}
		i := slices.IndexFunc(list, func(o sos.Session) bool { return o.Name == name })
		if i < 0 {
			list = append(list, s.view())
		} else {
			list[i] = s.view()
		}
	}
	slices.SortStableFunc(list, func(a, b sos.Session) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, nil
}

// CreateSession implements sos.Service. A session that runs already is given as
// it is; one that has ended gets a new shell.
func (p *Plane) CreateSession(ctx context.Context, ref, name string) (sos.Session, error) {
	if err := sos.CheckName(name); err != nil {
		return sos.Session{}, err
	}
	if name == setupSession {
		return sos.Session{}, sos.Errorf(sos.CodeInvalid, "the name %q is reserved", name)
	}
	b, err := p.find(ctx, ref)
	if err != nil {
		return sos.Session{}, err
	}
	l, err := b.running()
	if err != nil {
		return sos.Session{}, err
	}
	s, err := l.open(name)
	if err != nil {
		return sos.Session{}, err
	}
	if err := s.wait(ctx); err != nil {
		return sos.Session{}, l.failed(err)
	}
	if name == sos.DefaultSession {
		l.setStatus(sos.StatusExited, sos.StatusStarted)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.view(), nil
}

// RemoveSession implements sos.Service: it ends the shell and frees the name.
func (p *Plane) RemoveSession(ctx context.Context, ref, name string) error {
	b, err := p.find(ctx, ref)
	if err != nil {
		return err
	}
	if name == sos.DefaultSession {
		return &sos.Error{Code: sos.CodeConflict, Message: "the default session lives as long as its sandbox", Fix: "run exit in it, or stop the sandbox"}
	}
	b.mu.Lock()
	l := b.life
	b.mu.Unlock()
	if l == nil {
		return p.forgetSession(ctx, b, name)
	}
	l.mu.Lock()
	s := l.sessions[name]
	l.mu.Unlock()
	if s == nil {
		return p.forgetSession(ctx, b, name)
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	cctx, cancel := l.call()
	defer cancel()
	if err := l.guest.CloseSession(cctx, name); err != nil && sos.ErrorCode(err) != sos.CodeSessionExited && sos.ErrorCode(err) != sos.CodeNotFound {
		return l.failed(err)
	}
	l.mu.Lock()
	s.gone = true
	if l.sessions[name] == s {
		delete(l.sessions, name)
	}
	l.mu.Unlock()
	if err := p.cfg.Store.DeleteSession(cctx, b.id, name); err != nil {
		return internal("remove a session of", b.id, err)
	}
	return nil
}

// forgetSession deletes the record of a session that does not run.
func (p *Plane) forgetSession(ctx context.Context, b *box, name string) error {
	list, err := p.cfg.Store.Sessions(ctx, b.id)
	if err != nil {
		return internal("list sessions of", b.id, err)
	}
	if !slices.ContainsFunc(list, func(s sos.Session) bool { return s.Name == name }) {
		return sos.Errorf(sos.CodeNotFound, "Session %s not found", name)
	}
	if err := p.cfg.Store.DeleteSession(ctx, b.id, name); err != nil {
		return internal("remove a session of", b.id, err)
	}
	return nil
}

// InterruptSession implements sos.Service.
func (p *Plane) InterruptSession(ctx context.Context, ref, name string) error {
	b, err := p.find(ctx, ref)
	if err != nil {
		return err
	}
	l, err := b.running()
	if err != nil {
		return err
	}
	l.mu.Lock()
	s := l.sessions[name]
	ended := s != nil && s.gone
	l.mu.Unlock()
	switch {
	case s == nil:
		return sos.Errorf(sos.CodeNotFound, "Session %s not found", name)
	case ended:
		return errSessionExited()
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	cctx, cancel := l.call()
	defer cancel()
	if err := l.guest.Interrupt(cctx, name); err != nil {
		return l.failed(err)
	}
	return nil
}

// internal wraps an error that no user can act on.
func internal(what, id string, err error) *sos.Error {
	if e, ok := errors.AsType[*sos.Error](err); ok && e.Code == sos.CodeUnavailable { // the host's state, which people can change
		return &sos.Error{Code: e.Code, Message: e.Message, Fix: e.Fix, Cause: fmt.Errorf("%s %s: %w", what, id, err)}
	}
	return &sos.Error{Code: sos.CodeInternal, Message: "internal error", Cause: fmt.Errorf("%s %s: %w", what, id, err)}
}
