package control

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seaofsimulation/sos"
)

// storeDelay is how long the end of a process waits for others, so that a fast
// series of commands costs one commit and not one each. The journal has a note of
// each end meanwhile.
const storeDelay = 25 * time.Millisecond

// storer puts ended processes into the store, many at a time.
type storer struct {
	p    *Plane
	kick chan struct{} // buffered 1: there is something to store

	writing sync.Mutex // held during a batch: whoever flushes waits for the one before
	mu      sync.Mutex
	pending []sos.Process // guarded by mu
}

func newStorer(p *Plane) *storer { return &storer{p: p, kick: make(chan struct{}, 1)} }

// put lets q be stored soon.
func (s *storer) put(q sos.Process) {
	s.mu.Lock()
	s.pending = append(s.pending, q)
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// run stores until ctx ends, and then what is left.
func (s *storer) run(ctx context.Context) {
	defer s.flush()
	for {
		select {
		case <-s.kick:
		case <-ctx.Done():
			return
		}
		if !sleep(ctx, storeDelay) {
			return
		}
		s.flush()
	}
}

// flush stores all that was put before. What the store does not take is found
// again in the journal at the next start of the server.
func (s *storer) flush() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	batch := s.pending
	s.pending = nil
	s.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	ctx, cancel := s.p.write()
	defer cancel()
	var g errgroup.Group
	g.SetLimit(storeWide)
	for _, q := range batch {
		g.Go(func() error {
			if err := s.p.cfg.Store.PutProcess(ctx, q); err != nil {
				s.p.cfg.Log.Error("cannot store a process", "sandbox", q.Sandbox, "process", q.ID, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait() // logged above
}
