package control

import (
	"context"
	"slices"
	"sync"

	"github.com/seaofsimulation/sos"
)

// admission decides when a start may proceed: first come, first served, at most
// max places, and none given away while the host is short of memory. A place
// belongs to a sandbox by its id, so that it can be neither freed twice nor
// leaked with the call that took it. It is the only door to a start.
type admission struct {
	max  int
	open func() bool // false: no further start now (the host is short of memory)

	mu     sync.Mutex
	held   map[string]bool
	queue  []*waiter // first is next
	closed error     // set: the server stops; nobody is let in
}

type waiter struct {
	id      string
	granted chan struct{} // closed when it has its place, or admission was closed
}

func newAdmission(max int, open func() bool) *admission {
	return &admission{max: max, open: open, held: map[string]bool{}}
}

// acquire waits for a place for id. When ctx ends first the waiter leaves the
// queue and the cause of ctx is returned.
func (a *admission) acquire(ctx context.Context, id string) error {
	w := &waiter{id: id, granted: make(chan struct{})}
	a.mu.Lock()
	if a.closed != nil {
		defer a.mu.Unlock()
		return a.closed
	}
	a.queue = append(a.queue, w)
	a.grant()
	a.mu.Unlock()
	select {
	case <-w.granted:
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch i := slices.Index(a.queue, w); {
	case i >= 0:
		a.queue = slices.Delete(a.queue, i, i+1)
		a.grant() // it may have stood in the way of nobody, but costs nothing
		if a.closed != nil {
			return a.closed
		}
		return context.Cause(ctx)
	case ctx.Err() != nil: // granted at the same moment: nobody would use it
		delete(a.held, id)
		a.grant()
		return context.Cause(ctx)
	}
	return nil
}

// grant lets in as many as there is room for. Callers hold mu.
func (a *admission) grant() {
	for a.closed == nil && len(a.queue) > 0 && len(a.held) < a.max && a.open() {
		w := a.queue[0]
		a.queue = slices.Delete(a.queue, 0, 1)
		a.held[w.id] = true
		close(w.granted)
	}
}

// recheck asks again whether the host lets anybody in.
func (a *admission) recheck() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grant()
}

// take gives id a place whatever the limit: it runs already.
func (a *admission) take(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[id] = true
}

// release gives the place of id back; nothing happens when it has none.
func (a *admission) release(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held[id] {
		delete(a.held, id)
		a.grant()
	}
}

// close sends all waiters away with err and lets nobody in any more.
func (a *admission) close(err *sos.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed != nil {
		return
	}
	a.closed = err
	for _, w := range a.queue {
		close(w.granted)
	}
}

// positions gives the place in the queue, from 1, of all that wait.
func (a *admission) positions() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := make(map[string]int, len(a.queue))
	for i, w := range a.queue {
		m[w.id] = i + 1
	}
	return m
}

func (a *admission) position(id string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return 1 + slices.IndexFunc(a.queue, func(w *waiter) bool { return w.id == id })
}

// counts gives the numbers of places taken and of waiters.
func (a *admission) counts() (held, queued int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held), len(a.queue)
}
