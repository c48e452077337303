package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/client"
)

// life is a sandbox from its start to its stop: the connection to its guest, its
// sessions and what runs in it. It ends once, with a cause.
type life struct {
	p     *Plane
	b     *box
	guest *client.Client
	facts facts

	ctx    context.Context // ends with the life
	cancel context.CancelCauseFunc
	work   group         // its goroutines, and writes of its records
	served chan struct{} // closed when the guest's connection is served no more

	slots chan struct{} // one token for each process alive

	mu       sync.Mutex
	since    time.Time // end of the start
	procs    map[string]*proc
	known    map[string]sos.Process // records of an earlier server, while adopting
	adopting bool
	sessions map[string]*session
	waiting  int // standalone commands that wait for a slot
	closing  *sos.Error
	reason   sos.Reason // of a loss
	look     look
}

// facts is what commands of a life inherit.
type facts struct {
	env     map[string]string
	workdir string
	user    string
	shell   string // of standalone commands; empty: the image has none
}

func (p *Plane) newLife(b *box, f facts) *life {
	l := &life{p: p, b: b, facts: f, served: make(chan struct{}), slots: make(chan struct{}, p.cfg.MaxProcesses),
		procs: map[string]*proc{}, sessions: map[string]*session{}}
	l.ctx, l.cancel = context.WithCancelCause(p.base)
	l.guest = client.New(client.Config{Dial: p.dialer(b.id), Sink: l, Log: p.cfg.Log.With("sandbox", b.id)})
	return l
}

// connect serves the guest until the life ends, and returns when the guest has
// answered.
func (l *life) connect(ctx context.Context) error {
	if !l.work.spawn(l.serve) {
		return errStopped()
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := l.guest.Ready(ctx); err != nil {
		return &sos.Error{Code: sos.CodeStartFailed, Message: "the guest did not answer", Cause: err}
	}
	return nil
}

// serve keeps the connection to the guest.
func (l *life) serve() {
	err := l.guest.Run(l.ctx)
	close(l.served)
	if err == nil || l.ctx.Err() != nil {
		return
	}
	l.p.cfg.Log.Warn("the connection to a guest ended", "sandbox", l.b.id, "err", err)
	c := sos.ErrorCode(err)
	if c != sos.CodeSandboxLost && c != sos.CodeNotStarted {
		return
	}
	// The driver knows better how it ended, and says so in a moment; where it does
	// not, a guest that cannot be spoken to is as good as none.
	if sleep(l.ctx, deadWait) {
		l.p.work.spawn(func() { l.p.lost(l, driver.Exit{Message: err.Error()}) })
	}
}

// deadWait is how long the driver has to say how a guest ended.
const deadWait = 3 * time.Second

// watch waits for the sandbox to end, and when nobody asked for that calls lost.
func (l *life) watch() {
	for l.ctx.Err() == nil {
		exit, err := l.p.cfg.Driver.Wait(l.ctx, l.b.id)
		switch {
		case l.ctx.Err() != nil || err == nil && exit.Stopped:
			return
		case err == nil:
			l.p.work.spawn(func() { l.p.lost(l, exit) })
			return
		}
		l.p.cfg.Log.Error("cannot watch a sandbox", "sandbox", l.b.id, "err", err)
		if !sleep(l.ctx, time.Second) {
			return
		}
	}
}

// sleep waits for d; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// close refuses new commands from now on with cause.
func (l *life) close(cause *sos.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing == nil {
		l.closing = cause
	}
}

// cause is why the life takes no more commands, or nil.
func (l *life) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing == nil {
		return nil
	}
	return l.closing
}

// finish ends the life: nothing of the guest is read any more, whatever has no
// end yet is recorded as ended by e, and all waiters go. record false: the
// records are about to be deleted.
func (l *life) finish(cause *sos.Error, e ending, record bool) {
	l.close(cause)
	l.cancel(cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), stepTimeout)
	defer cancel()
	select {
	case <-l.served:
	case <-ctx.Done():
		l.p.cfg.Log.Error("the connection to a guest does not end", "sandbox", l.b.id)
	}
	var open []*proc
	l.mu.Lock()
	for _, pr := range l.procs {
		open = append(open, pr)
	}
	l.mu.Unlock()
	var wg sync.WaitGroup // all of them in one commit
	for _, pr := range open {
		wg.Go(func() {
			pr.end(e, record)
			pr.drain()
		})
	}
	wg.Wait()
	l.work.close()
	if err := l.work.wait(ctx); err != nil {
		l.p.cfg.Log.Error("work of a sandbox does not end", "sandbox", l.b.id, "err", err)
	}
	l.endSessions(record) // after those that were still opening
}

// abandon drops everything without a record: the server itself goes, the
// sandbox stays.
func (l *life) abandon(ctx context.Context) error {
	l.close(sos.Errorf(sos.CodeUnavailable, "the server stops"))
	l.cancel(errors.New("the server stops"))
	// As long as the guest is read its words must be recorded: a process counts as
	// abandoned after that only.
	select {
	case <-l.served:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	for _, pr := range l.procs {
		pr.abandon()
	}
	l.mu.Unlock()
	l.work.close()
	return l.work.wait(ctx)
}

// call gives the context of one call to the guest, which ends with the life and
// not with the caller.
func (l *life) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.ctx, callTimeout)
}

// failed turns the error of a call to the guest into what callers see: the end of
// the life explains it better than a broken connection.
func (l *life) failed(err error) error {
	if cause := l.cause(); cause != nil {
		return cause
	}
	if c := sos.ErrorCode(err); c != sos.CodeInternal && c != sos.CodeCanceled {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &sos.Error{Code: sos.CodeUnavailable, Message: "the sandbox does not answer", Fix: "stop and start it", Cause: err}
	}
	return &sos.Error{Code: sos.CodeInternal, Message: "the sandbox could not be reached", Cause: err}
}

var _ guest.Sink = (*life)(nil)
