package control

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

// endOp is a stop or a removal from the call to its end. All who want the same
// wait for the same one.
type endOp struct {
	remove  bool
	reason  sos.Reason
	message string
	grace   time.Duration // of a removal 0: none
	cause   *sos.Error    // what calls in flight get
	done    chan struct{}
	err     error // set before done
}

// StopSandbox implements sos.Service.
func (p *Plane) StopSandbox(ctx context.Context, ref string, r sos.StopRequest) (sos.Sandbox, error) {
	b, err := p.find(ctx, ref)
	if err != nil {
		return sos.Sandbox{}, err
	}
	if r.Grace < 0 {
		return sos.Sandbox{}, sos.Errorf(sos.CodeInvalid, "grace is negative")
	}
	op := &endOp{remove: r.Remove, reason: sos.ReasonUser, grace: time.Duration(r.Grace), cause: errStopped()}
	if r.Remove {
		op.cause = sos.Errorf(sos.CodeSandboxStopped, "the sandbox was removed")
	} else if r.Grace == 0 {
		op.grace = p.cfg.StopGrace
	}
	if err := p.end(ctx, b, op); err != nil {
		return sos.Sandbox{}, err
	}
	s := p.get(b)
	if r.Remove {
		s.Status = sos.StatusRemoving
	}
	return s, nil
}

// RemoveSandbox implements sos.Service.
func (p *Plane) RemoveSandbox(ctx context.Context, ref string) error {
	_, err := p.StopSandbox(ctx, ref, sos.StopRequest{Remove: true})
	return err
}

// end stops or removes a sandbox, whatever it is doing, and waits for that. It
// goes on when the caller goes.
func (p *Plane) end(ctx context.Context, b *box, op *endOp) error {
	op = p.beginEnd(b, op)
	if op == nil {
		return nil
	}
	select {
	case <-op.done:
		return op.err
	case <-ctx.Done():
		return gone(ctx)
	}
}

// beginEnd begins the operation, or gives one under way that does as well; nil:
// there is nothing to do.
func (p *Plane) beginEnd(b *box, op *endOp) *endOp {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o := b.end; o != nil && (o.remove || !op.remove) {
		return o
	}
	if !b.exists {
		return nil
	}
	if !op.remove && b.start == nil && startable(b.row.Status) {
		return nil
	}
	op.done = make(chan struct{})
	earlier, start, l := b.end, b.start, b.life
	ok := p.work.spawn(func() { p.runEnd(b, op, earlier, start) })
	if !ok {
		op.err = errServerStops()
		close(op.done)
		return op
	}
	b.end = op
	if start != nil {
		start.cancel(op.cause)
	}
	if l != nil && start == nil { // no new command from this moment on
		l.close(op.cause)
		b.phase = op.phase()
	}
	return op
}

func (op *endOp) phase() sos.Status {
	if op.remove {
		return sos.StatusRemoving
	}
	return sos.StatusStopping
}

// runEnd waits for what is under way already, and does the work.
func (p *Plane) runEnd(b *box, op, earlier *endOp, start *startOp) {
	if start != nil {
		<-start.done // its context has ended
	}
	if earlier != nil {
		<-earlier.done
	}
	op.err = b.lock(p.base)
	if op.err == nil {
		if op.remove {
			op.err = p.remove(b, op)
		} else {
			op.err = p.stop(b, op)
		}
		b.unlock()
	}
	b.mu.Lock()
	if b.end == op {
		b.end, b.phase = nil, ""
	}
	b.mu.Unlock()
	if op.err != nil {
		p.cfg.Log.Error("cannot end a sandbox", "sandbox", b.id, "op", op.phase(), "err", op.err)
	}
	close(op.done)
}

// stop ends what runs and keeps the files. Callers hold the box's lock.
func (p *Plane) stop(b *box, op *endOp) error {
	b.mu.Lock()
	status, l := b.row.Status, b.life
	idle := startable(status) && l == nil
	if !idle {
		b.phase = sos.StatusStopping
	}
	b.mu.Unlock()
	if idle {
		return nil
	}
	err := p.edit(b, false, func(s *sos.Sandbox) {
		s.Desired, s.Status = sos.DesiredStopped, sos.StatusStopping
		s.Reason, s.Message = op.reason, op.message
	})
	if err != nil {
		return internal("stop", b.id, err)
	}
	if l != nil {
		l.close(op.cause)
		l.shutdown(op.grace)
	}
	err = p.retry(func(ctx context.Context) error { return p.cfg.Driver.Stop(ctx, b.id) })
	p.endRecords(b, l, op.cause, endStopped(op.cause))
	if err != nil { // it keeps its place; the reconciler goes on with it
		return internal("stop", b.id, err)
	}
	now := p.cfg.Now()
	err = p.edit(b, true, func(s *sos.Sandbox) {
		s.Status, s.StoppedAt, s.ExpiresAt = sos.StatusStopped, &now, nil
	})
	p.admission.release(b.id)
	if err != nil {
		return internal("stop", b.id, err)
	}
	return nil
}

// endRecords gives an end to all that has none in a sandbox that does not run any
// more, with the life or with what an earlier server left.
func (p *Plane) endRecords(b *box, l *life, cause *sos.Error, e ending) {
	if l == nil {
		p.endLeft(b, e)
		return
	}
	l.finish(cause, e, true)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life == l {
		b.life, b.deadline = nil, time.Time{}
	}
}

// shutdown lets the guest end everything in its own way, within limits.
func (l *life) shutdown(grace time.Duration) {
	ctx, cancel := context.WithTimeout(l.ctx, grace+killMargin)
	defer cancel()
	if err := l.guest.Shutdown(ctx, grace); err != nil {
		l.p.cfg.Log.Warn("a guest did not shut down by itself", "sandbox", l.b.id, "err", err)
	}
}

// remove deletes files and records. Callers hold the box's lock.
func (p *Plane) remove(b *box, op *endOp) error {
	b.mu.Lock()
	b.phase = sos.StatusRemoving
	l, exists := b.life, b.exists
	b.mu.Unlock()
	if !exists {
		return nil
	}
	if l != nil {
		l.close(op.cause)
	}
	// Nothing is lost before the intent is on the disk; what runs ends meanwhile.
	var g errgroup.Group
	g.Go(func() error {
		return p.edit(b, true, func(s *sos.Sandbox) {
			s.Desired, s.Status, s.Reason, s.Message = sos.DesiredRemoved, sos.StatusRemoving, op.reason, op.message
		})
	})
	if l != nil {
		g.Go(func() error {
			if op.grace > 0 {
				l.shutdown(op.grace)
			}
			ctx, cancel := p.step()
			defer cancel()
			err := p.kill(ctx, b.id) // Remove repeats what fails here
			l.finish(op.cause, endStopped(op.cause), false)
			b.mu.Lock()
			b.life = nil
			b.mu.Unlock()
			return ignore(p, b, "stop", err)
		})
	}
	if err := g.Wait(); sos.ErrorCode(err) == sos.CodeUnavailable {
		// The disk is full, and what is to be removed may be why: it goes on without
		// its intent. A crash now leaves a sandbox that is found lost.
		p.cfg.Log.Warn("a removal cannot be recorded before it begins", "sandbox", b.id, "err", err)
	} else if err != nil {
		return internal("remove", b.id, err)
	}
	g = errgroup.Group{}
	g.Go(func() error {
		if err := p.retry(func(ctx context.Context) error { return p.cfg.Driver.Remove(ctx, b.id) }); err != nil {
			return internal("remove", b.id, err) // the reconciler goes on with it
		}
		p.admission.release(b.id)
		return nil
	})
	g.Go(func() error {
		if err := p.cfg.Journal.RemoveSandbox(b.id); err != nil {
			return internal("remove the output of", b.id, err)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	p.storer.flush() // nothing may come after the row
	// On a full disk there is room once the files are gone, which takes a moment.
	if err := p.retry(func(ctx context.Context) error { return p.cfg.Store.DeleteSandbox(ctx, b.id) }); err != nil {
		return internal("remove", b.id, err)
	}
	b.mu.Lock()
	b.exists, b.life = false, nil
	b.mu.Unlock()
	p.forget(b)
	return nil
}

// kill ends what runs of a sandbox that is about to be removed.
func (p *Plane) kill(ctx context.Context, id string) error {
	if k, ok := p.cfg.Driver.(driver.Killer); ok {
		return k.Kill(ctx, id)
	}
	return p.cfg.Driver.Stop(ctx, id)
}

// ignore logs an error that a later step makes good.
func ignore(p *Plane, b *box, op string, err error) error {
	if err != nil {
		p.cfg.Log.Warn("a step failed and is done again", "sandbox", b.id, "op", op, "err", err)
	}
	return nil
}

// drainWait is how long the last words of a guest that ended may take to be read.
const drainWait = time.Second

// lost deals with a sandbox that ended without anybody asking for it.
func (p *Plane) lost(l *life, exit driver.Exit) {
	b := l.b
	reason, err := lostReason(exit)
	t := time.NewTimer(drainWait)
	select {
	case <-l.served:
	case <-t.C:
	case <-l.ctx.Done():
	}
	t.Stop()
	l.mu.Lock()
	l.reason = reason
	l.mu.Unlock()
	l.close(err)
	l.cancel(err) // a start that waits for the guest goes on to fail
	if b.lock(p.base) != nil {
		return
	}
	defer b.unlock()
	b.mu.Lock()
	current := b.life == l
	if current && b.phase == "" {
		b.phase = sos.StatusStopping
	}
	b.mu.Unlock()
	if !current {
		return
	}
	p.cfg.Log.Warn("a sandbox was lost", "sandbox", b.id, "reason", reason, "err", exit.Message)
	p.markLost(b, l, reason, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end == nil {
		b.phase = ""
	}
}

// markLost cleans up after a sandbox that is gone. Callers hold the box's lock.
func (p *Plane) markLost(b *box, l *life, reason sos.Reason, cause *sos.Error) {
	err := p.retry(func(ctx context.Context) error { return p.cfg.Driver.Stop(ctx, b.id) })
	p.endRecords(b, l, cause, endLost(cause))
	if err != nil { // it keeps its place; the reconciler goes on with it
		p.cfg.Log.Error("cannot clean up after a lost sandbox", "sandbox", b.id, "err", err)
		return
	}
	now := p.cfg.Now()
	err = p.edit(b, false, func(s *sos.Sandbox) {
		s.Desired, s.Status, s.Reason, s.Message = sos.DesiredStopped, sos.StatusFailed, reason, cause.Message
		s.StoppedAt, s.ExpiresAt = &now, nil
	})
	if err != nil {
		p.cfg.Log.Error("cannot record a lost sandbox", "sandbox", b.id, "err", err)
	}
	p.admission.release(b.id)
}

// lostReason says how a guest ended, for the record and for people.
func lostReason(e driver.Exit) (sos.Reason, *sos.Error) {
	switch {
	case e.OOM:
		return sos.ReasonOOM, sos.Errorf(sos.CodeSandboxLost, "the sandbox ran out of memory and was ended by the kernel; its files are kept")
	case !e.Known:
		return sos.ReasonLost, sos.Errorf(sos.CodeSandboxLost, "the sandbox ended and nobody saw how; its files are kept")
	case e.Signal != 0:
		return sos.ReasonLost, sos.Errorf(sos.CodeSandboxLost, "the sandbox was ended by signal %d from outside; its files are kept", e.Signal)
	}
	return sos.ReasonLost, sos.Errorf(sos.CodeSandboxLost, "the sandbox's guest ended with status %d; its files are kept", e.Code)
}
