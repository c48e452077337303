package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

// startOp is a start from the call to its end.
type startOp struct {
	ctx    context.Context // ends when a stop or the server's end pre-empts it
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // set before done
}

// StartSandbox implements sos.Service.
func (p *Plane) StartSandbox(ctx context.Context, ref string) (sos.Sandbox, error) {
	b, err := p.find(ctx, ref)
	if err != nil {
		return sos.Sandbox{}, err
	}
	op, err := p.claimStart(ctx, b)
	if err != nil {
		return sos.Sandbox{}, err
	}
	began := p.cfg.Now()
	if err := p.admit(ctx, b, op); err != nil {
		b.startDone(op, err)
		return sos.Sandbox{}, err
	}
	b.setPhase(sos.StatusStarting)
	// From here on it goes on without its caller.
	ok := p.work.spawn(func() {
		err := p.start(b, op)
		p.stats.started(p.cfg.Now().Sub(began), err)
		b.startDone(op, err)
	})
	if !ok {
		p.admission.release(b.id)
		b.startDone(op, errServerStops())
	}
	select {
	case <-op.done:
	case <-ctx.Done():
		return sos.Sandbox{}, gone(ctx)
	}
	if op.err != nil {
		return sos.Sandbox{}, op.err
	}
	return p.get(b), nil
}

func errServerStops() *sos.Error {
	return &sos.Error{Code: sos.CodeUnavailable, Message: "the server is stopping", Fix: "try again when it is back"}
}

// claimStart makes sure that the sandbox can be started and that nobody else
// starts it. A stop under way is waited for.
func (p *Plane) claimStart(ctx context.Context, b *box) (*startOp, error) {
	for {
		unfit := p.unfit(ctx)
		b.mu.Lock()
		end := b.end
		switch {
		case !b.exists || end != nil && end.remove || b.row.Desired == sos.DesiredRemoved:
			b.mu.Unlock()
			return nil, notFound(b.id)
		case end == nil && !startable(b.status()):
			b.mu.Unlock()
			return nil, errAlreadyStarted()
		case end == nil && unfit != nil:
			b.mu.Unlock()
			return nil, unfit
		case end == nil:
			op := &startOp{done: make(chan struct{})}
			op.ctx, op.cancel = context.WithCancelCause(p.base)
			b.start, b.phase = op, sos.StatusQueued
			b.mu.Unlock()
			return op, nil
		}
		b.mu.Unlock()
		select {
		case <-end.done:
		case <-ctx.Done():
			return nil, gone(ctx)
		}
	}
}

// unfit is why this host can start nothing now, or nil. It is asked before the
// image, whose trouble would hide the cause.
func (p *Plane) unfit(ctx context.Context) error {
	for _, c := range p.cfg.Driver.Info(ctx).Checks {
		if !c.OK {
			return &sos.Error{Code: sos.CodeUnavailable, Message: c.Message, Fix: c.Fix}
		}
	}
	return p.diskLow()
}

// startDone ends a start; the sandbox is open for the next.
func (b *box) startDone(op *startOp, err error) {
	b.mu.Lock()
	op.err = err
	b.start, b.phase, b.digest = nil, "", ""
	b.mu.Unlock()
	op.cancel(nil)
	close(op.done)
}

// admit waits for a place. Here, and only here, the caller's leaving ends it.
func (p *Plane) admit(ctx context.Context, b *box, op *startOp) error {
	b.mu.Lock()
	wait := time.Duration(b.row.StartTimeout)
	b.mu.Unlock()
	if wait == 0 {
		wait = p.cfg.StartTimeout
	}
	late := &sos.Error{Code: sos.CodeTimeout, Message: fmt.Sprintf("no place for the sandbox became free within %v: %d may run", wait, p.cfg.MaxSandboxes),
		Fix: "stop a sandbox, or raise start_timeout or --max-sandboxes"}
	actx, cancel := context.WithTimeoutCause(op.ctx, wait, late)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { op.cancel(gone(ctx)) })
	defer stop()
	err := p.admission.acquire(actx, b.id)
	if err == nil && !stop() {
		p.admission.release(b.id)
		err = gone(ctx)
	}
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*sos.Error](err); ok {
		return e
	}
	return errServerStops() // the plane's own context ended
}

// start brings a sandbox up, or leaves nothing of the attempt behind but the
// record of why. It holds a place; a failed start has given it back when it
// returns, unless the driver could not end what it had begun.
func (p *Plane) start(b *box, op *startOp) error {
	if err := b.lock(op.ctx); err != nil {
		p.admission.release(b.id)
		return startError(op.ctx, err)
	}
	defer b.unlock()
	b.mu.Lock()
	first := b.row.StartedAt == nil
	b.mu.Unlock()
	l, err := p.bringUp(op.ctx, b, first)
	if err == nil {
		return nil
	}
	err = startError(op.ctx, err)
	if l != nil {
		cause := asError(err)
		p.endRecords(b, l, cause, endStopped(cause))
	}
	if derr := p.takeDown(b, first); derr != nil { // the reconciler goes on with it
		p.cfg.Log.Error("cannot clean up after a failed start", "sandbox", b.id, "err", derr)
		return err
	}
	p.admission.release(b.id)
	reason, failed := failedStart(err, op.ctx.Err() != nil)
	if l != nil && reason == sos.ReasonLost {
		l.mu.Lock()
		reason = l.reason
		l.mu.Unlock()
	}
	p.recordFailedStart(b, first, failed, reason, err)
	return err
}

// startError prefers the cause of a start's cancellation to what it broke.
func startError(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if e, ok := errors.AsType[*sos.Error](context.Cause(ctx)); ok {
		return e
	}
	return errServerStops()
}

func asError(err error) *sos.Error {
	if e, ok := errors.AsType[*sos.Error](err); ok {
		return e
	}
	return internal("start", "", err)
}

// bringUp does the steps of a start in order. The life is returned as soon as
// there is one, also with an error.
func (p *Plane) bringUp(ctx context.Context, b *box, first bool) (*life, error) {
	row := p.get(b)
	// While the driver starts it: a sandbox that runs and is not wanted yet when this
	// server dies is ended by the next.
	wanted := make(chan error, 1)
	go func() { wanted <- p.recordWanted(b, first) }() // ends with its write, which has a limit
	l, img, err := p.launch(ctx, b, row)
	if werr := <-wanted; werr != nil && err == nil {
		err = internal("start", b.id, werr)
	}
	if err != nil {
		return l, err
	}
	if err := l.connect(ctx); err != nil {
		return l, err
	}
	if !l.work.spawn(l.watch) {
		return l, errServerStops()
	}
	if first && len(row.SetupCommands) > 0 {
		if err := l.setup(ctx, row.SetupCommands); err != nil {
			return l, err
		}
	}
	return l, p.declareStarted(ctx, b, l, img)
}

// recordWanted records that the sandbox is to run.
func (p *Plane) recordWanted(b *box, first bool) error {
	err := p.edit(b, false, func(s *sos.Sandbox) {
		s.Desired, s.Status, s.Reason, s.Message = sos.DesiredStarted, sos.StatusStarting, "", ""
	})
	if err != nil || first {
		return err
	}
	return p.forgetDefault(b)
}

// launch has the driver start the sandbox, and gives its life.
func (p *Plane) launch(ctx context.Context, b *box, row sos.Sandbox) (*life, sos.Image, error) {
	img, err := p.imageFor(ctx, b, row)
	if err != nil {
		return nil, img, err
	}
	layers, err := p.cfg.Images.LayerDirs(img)
	if err != nil {
		return nil, img, imageError(err)
	}
	spec := driver.Spec{Image: driver.Image{Digest: img.Digest, Layers: layers}, Hostname: row.ID, Limits: row.Limits.WithDefaults()}
	if row.Name != "" {
		spec.Hostname = row.Name
	}
	if err := p.cfg.Driver.Start(ctx, b.id, spec); err != nil {
		return nil, img, driverError(err)
	}
	l := p.newLife(b, factsOf(row, img))
	b.mu.Lock()
	b.life, b.deadline = l, time.Time{} // seen, but not open: the status says starting
	b.mu.Unlock()
	return l, img, nil
}

// forgetDefault deletes the record of the earlier run's default session, so that
// nobody takes it for the new one's before that has opened.
func (p *Plane) forgetDefault(b *box) error {
	ctx, cancel := p.write()
	defer cancel()
	return p.cfg.Store.DeleteSession(ctx, b.id, sos.DefaultSession)
}

// declareStarted records the fact: from its return on commands are taken.
func (p *Plane) declareStarted(ctx context.Context, b *box, l *life, img sos.Image) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := l.cause(); err != nil {
		return err
	}
	now := p.cfg.Now()
	info := p.cfg.Driver.Info(ctx)
	timeout := time.Duration(0)
	err := p.edit(b, false, func(s *sos.Sandbox) {
		s.Status, s.Reason, s.Message, s.ImageDigest = sos.StatusStarted, "", "", img.Digest
		s.StartedAt, s.StoppedAt, s.ExpiresAt = &now, nil, nil
		if timeout = p.lifetime(s.SandboxSpec); timeout > 0 {
			at := now.Add(timeout)
			s.ExpiresAt = &at
		}
	})
	if err != nil {
		return internal("start", b.id, err)
	}
	l.mu.Lock()
	l.since = now
	l.mu.Unlock()
	b.mu.Lock()
	b.phase, b.row.DiskLimit = "", info.DiskLimit
	if timeout > 0 {
		b.deadline = now.Add(timeout)
	}
	b.mu.Unlock()
	if _, err := l.openWithin(sos.DefaultSession, defaultDelay); err != nil {
		p.cfg.Log.Warn("the default session does not open", "sandbox", b.id, "err", err)
	}
	return nil
}

// defaultDelay is how long the shell of a new sandbox's default session may wait for
// somebody who wants it: a standalone command that comes at once does not share the
// processors with a shell that starts, and a short life does without one.
const defaultDelay = 50 * time.Millisecond

func (p *Plane) lifetime(s sos.SandboxSpec) time.Duration {
	if s.Timeout > 0 {
		return time.Duration(s.Timeout)
	}
	return p.cfg.Timeout
}

// imageFor gives the image to start with: what the name means now at the first
// start, the same one for ever after.
func (p *Plane) imageFor(ctx context.Context, b *box, row sos.Sandbox) (sos.Image, error) {
	var img sos.Image
	var err error
	if row.ImageDigest != "" {
		img, err = p.cfg.Images.Get(ctx, row.ImageDigest)
	} else {
		img, err = p.cfg.Images.Resolve(ctx, row.Image, nil)
	}
	if err != nil {
		return img, imageError(err)
	}
	b.mu.Lock()
	b.digest = img.Digest
	b.mu.Unlock()
	return img, nil
}
