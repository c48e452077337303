package control

import (
	"context"
	"fmt"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

// Floors of the host's free disk, under which nothing new is started.
const (
	minDiskPart  = 0.02
	minDiskBytes = 512 << 20
)

// watch looks at limits and deadlines. It starts what takes time and does not
// wait for it. grew: the host's disk has filled noticeably.
func (p *Plane) watch(grew bool) {
	p.admission.recheck()
	now := p.cfg.Now()
	low := p.diskLow() != nil
	busy, idle := []*life{}, []*life{}
	for _, b := range p.all() {
		b.mu.Lock()
		l, deadline, end := b.life, b.deadline, b.end
		timeout := p.lifetime(b.row.SandboxSpec)
		b.mu.Unlock()
		if l == nil || end != nil {
			continue
		}
		if !deadline.IsZero() && !now.Before(deadline) {
			p.beginEnd(b, &endOp{reason: sos.ReasonTimeout, message: fmt.Sprintf("it ran for %v, its timeout", timeout),
				grace: p.cfg.StopGrace, cause: errStopped()})
			continue
		}
		if l.overdue(now) {
			busy = append(busy, l)
		} else {
			idle = append(idle, l)
		}
	}
	s, ok := p.cfg.Driver.(driver.Statser)
	if !ok {
		return
	}
	for i, l := range append(busy, idle...) {
		if l.lookDue(now, i < len(busy), grew, p.cfg.WatchInterval, len(busy)) && !l.work.spawn(func() { l.checkDisk(s, low) }) {
			l.looked(0)
		}
	}
}

// overdue forces the end of commands that should have ended long ago, and says
// whether any command runs.
func (l *life) overdue(now time.Time) (busy bool) {
	var late []*proc
	l.mu.Lock()
	for _, pr := range l.procs {
		if pr.ended || pr.rec == nil {
			continue
		}
		busy = true
		if pr.timeout > 0 && pr.p.StartedAt != nil && !pr.overdue && now.Sub(*pr.p.StartedAt) > pr.timeout+cancelGrace+killMargin {
			pr.overdue = true
			late = append(late, pr)
		}
	}
	l.mu.Unlock()
	for _, pr := range late {
		l.force(pr, sos.EndTimeout)
	}
	return busy
}

// force ends a command from outside, for as long as it takes.
func (l *life) force(pr *proc, reason sos.EndReason) {
	l.work.spawn(func() {
		grace := cancelGrace
		if reason == sos.EndDiskLimit { // it writes on as long as it lives
			grace = time.Millisecond
		}
		l.cancelOnce(pr, reason, grace)
		if l.ended(pr, cancelGrace+killMargin) {
			return
		}
		// What forks faster than it can be killed is killed while it stands still.
		f, ok := l.p.cfg.Driver.(driver.Freezer)
		if !ok {
			return
		}
		ctx, cancel := l.call()
		defer cancel()
		l.p.cfg.Log.Warn("a command does not end; freezing its sandbox to end it", "sandbox", l.b.id, "process", pr.id)
		if err := f.Freeze(ctx, l.b.id); err != nil {
			l.p.cfg.Log.Error("cannot freeze a sandbox", "sandbox", l.b.id, "err", err)
		}
		l.cancelOnce(pr, reason, 0)
		l.ended(pr, 200*time.Millisecond)
		tctx, tcancel := context.WithTimeout(context.WithoutCancel(l.ctx), callTimeout)
		defer tcancel()
		if err := f.Thaw(tctx, l.b.id); err != nil {
			l.p.cfg.Log.Error("cannot thaw a sandbox", "sandbox", l.b.id, "err", err)
		}
		if !l.ended(pr, killMargin) {
			l.p.cfg.Log.Error("a command does not end", "sandbox", l.b.id, "process", pr.id)
		}
	})
}

func (l *life) cancelOnce(pr *proc, reason sos.EndReason, grace time.Duration) {
	ctx, cancel := l.call()
	defer cancel()
	if err := l.guest.Cancel(ctx, pr.id, reason, grace); err != nil && l.ctx.Err() == nil {
		l.p.cfg.Log.Warn("cannot cancel a command", "sandbox", l.b.id, "process", pr.id, "err", err)
	}
}

// ended waits up to d for the end of a command.
func (l *life) ended(pr *proc, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-pr.done:
		return true
	case <-l.ctx.Done():
		return true
	case <-t.C:
		return false
	}
}

// memoryEnough says whether the host can take another sandbox.
func (p *Plane) memoryEnough() bool {
	if p.cfg.MemAvailable == nil {
		return true
	}
	part, err := p.cfg.MemAvailable()
	return err != nil || part >= p.cfg.MinMemory // a reader that fails closes nothing
}

// diskLow refuses a start when the host has hardly any room left.
func (p *Plane) diskLow() error {
	if p.cfg.DiskFree == nil {
		return nil
	}
	free, total, err := p.cfg.DiskFree()
	if err != nil || free >= minDiskBytes && float64(free) >= minDiskPart*float64(total) {
		return nil
	}
	return &sos.Error{Code: sos.CodeUnavailable, Message: fmt.Sprintf("the server's disk is nearly full: %d MiB are free", free>>20),
		Fix: "remove sandboxes or images, or make room in the data directory"}
}
