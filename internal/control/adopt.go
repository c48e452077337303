package control

import (
	"context"
	"errors"
	"net"

	"github.com/seaofsimulation/sos"
)

// dialer gives the way to a guest.
func (p *Plane) dialer(id string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return p.cfg.Driver.Dial(ctx, id) }
}

// adopt takes over a sandbox that an earlier server started. Callers hold the
// box's lock.
func (p *Plane) adopt(ctx context.Context, b *box) error {
	row := p.get(b)
	img, err := p.cfg.Images.Get(ctx, row.ImageDigest)
	if err != nil { // it runs all the same: assume what most images have
		p.cfg.Log.Warn("the image of a running sandbox is unknown", "sandbox", b.id, "err", err)
		img = sos.Image{Digest: row.ImageDigest, HasBash: true, HasShell: true}
	}
	processes, err := p.cfg.Store.Processes(ctx, b.id)
	sessions, serr := p.cfg.Store.Sessions(ctx, b.id)
	if err := errors.Join(err, serr); err != nil {
		return err
	}
	l := p.newLife(b, factsOf(row, img))
	l.adopting, l.known = true, map[string]sos.Process{}
	for _, q := range processes {
		l.known[q.ID] = q
	}
	for _, v := range sessions {
		s := &session{life: l, s: v, send: make(chan struct{}, 1), opened: make(chan struct{}), gone: v.Status != sessionRunning}
		close(s.opened)
		l.sessions[v.Name] = s
	}
	info := p.cfg.Driver.Info(ctx)
	b.mu.Lock()
	if row.StartedAt != nil {
		l.since = *row.StartedAt
	}
	if row.ExpiresAt != nil { // across a restart only the wall clock can be asked
		b.deadline = p.cfg.Now().Add(row.ExpiresAt.Sub(p.cfg.Now().Round(0)))
	}
	b.life, b.row.DiskLimit = l, info.DiskLimit
	b.mu.Unlock()
	p.admission.take(b.id)
	return l.takeOver(ctx)
}

// takeOver connects to the guest and settles what became of the processes. When
// the guest is slow it goes on in the background.
func (l *life) takeOver(ctx context.Context) error {
	settled := make(chan error, 1)
	ok := l.work.spawn(l.watch) && l.work.spawn(l.serve) && l.work.spawn(func() {
		err := l.guest.Ready(l.ctx)
		if err == nil {
			l.settleProcesses()
		}
		settled <- err
	})
	if !ok {
		return errServerStops()
	}
	ctx, cancel := context.WithTimeout(ctx, adoptWait)
	defer cancel()
	select {
	case err := <-settled:
		return err
	case <-ctx.Done():
		return sos.Errorf(sos.CodeUnavailable, "the guest does not answer yet")
	}
}

// settleProcesses marks as lost what no end is recorded of and the guest does not
// hold. The guest has told of all that it holds.
func (l *life) settleProcesses() {
	l.mu.Lock()
	l.adopting = false
	known := l.known
	l.known = nil
	for id := range l.procs {
		delete(known, id)
	}
	l.mu.Unlock()
	e := endLost(sos.Errorf(sos.CodeSandboxLost, "its end was not seen"))
	for _, q := range known {
		if q.Status == sos.ProcessExited || q.Status == sos.ProcessLost {
			continue
		}
		ctx, cancel := l.p.write()
		if err := l.p.endRecord(ctx, q, e); err != nil {
			l.p.cfg.Log.Error("cannot record a lost process", "sandbox", l.b.id, "process", q.ID, "err", err)
		}
		cancel()
	}
}
