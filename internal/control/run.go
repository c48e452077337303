package control

import (
	"context"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
)

// haltGrace is how long work under way may take when the server stops.
const haltGrace = 20 * time.Second

// Run takes over what an earlier server left, then keeps what is wanted and what
// is together until ctx ends. Sandboxes are left running. It is called once; the
// Plane is of no use afterwards.
func (p *Plane) Run(ctx context.Context) error {
	var storing sync.WaitGroup
	storeCtx, stopStoring := context.WithCancel(context.WithoutCancel(ctx))
	storing.Go(func() { p.storer.run(storeCtx) })
	defer storing.Wait() // after shut, which ends the last processes
	defer stopStoring()
	defer p.shut()
	if err := p.recover(ctx); err != nil {
		return err
	}
	close(p.ready)
	watch, reconcile := time.NewTicker(p.cfg.WatchInterval), time.NewTicker(p.cfg.ReconcileInterval)
	glance := time.NewTicker(p.cfg.WatchInterval / glances)
	defer glance.Stop()
	defer watch.Stop()
	defer reconcile.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watch.C:
			p.watch(p.diskGrew())
		case <-glance.C: // one call: a fast writer is met long before the next look
			if p.cfg.DiskFree != nil && p.diskGrew() {
				p.watch(true)
			}
		case <-reconcile.C:
			if err := p.reconcile(ctx, false); err != nil && ctx.Err() == nil {
				p.cfg.Log.Error("cannot compare with the driver", "err", err)
			}
		}
	}
}

// shut ends the plane and leaves the sandboxes alone: starts are called off,
// stops and removals get time to end, connections are closed.
func (p *Plane) shut() {
	p.admission.close(errServerStops())
	for _, b := range p.all() {
		b.mu.Lock()
		if b.start != nil {
			b.start.cancel(errServerStops())
		}
		b.mu.Unlock()
	}
	p.work.close()
	ctx, cancel := context.WithTimeout(context.Background(), haltGrace)
	defer cancel()
	if err := p.work.wait(ctx); err != nil {
		p.cfg.Log.Error("work under way is left to the next server", "err", err)
	}
	p.halt()
	var wg sync.WaitGroup
	for _, b := range p.all() {
		b.mu.Lock()
		l := b.life
		b.mu.Unlock()
		if l == nil {
			continue
		}
		wg.Go(func() {
			if err := l.abandon(ctx); err != nil {
				p.cfg.Log.Error("the connection to a guest does not end", "sandbox", b.id, "err", err)
			}
		})
	}
	wg.Wait()
}

// StopAll stops every sandbox and keeps its files; starts that wait are sent
// away. It returns when all have stopped or ctx ends. Run must be running.
func (p *Plane) StopAll(ctx context.Context) error {
	if err := p.await(ctx); err != nil {
		return err
	}
	p.admission.close(errServerStops())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, b := range p.all() {
		wg.Go(func() {
			op := &endOp{reason: sos.ReasonShutdown, message: "the server was told to stop its sandboxes", grace: p.cfg.StopGrace, cause: errStopped()}
			if err := p.end(ctx, b, op); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	wg.Wait()
	return first
}
