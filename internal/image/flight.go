package image

import (
	"context"
	"sync"

	"github.com/seaofsimulation/sos"
)

// flights makes concurrent calls for one key share one run of the work. The work
// has its own life: a caller that leaves changes nothing for the others, and
// when the last one leaves the work is cancelled.
type flights[T any] struct {
	mu   sync.Mutex
	runs map[string]*flight[T]
	wg   *sync.WaitGroup // of the owner, who waits for all work
}

type flight[T any] struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed after val and err are set
	val     T
	err     error
	callers int // guarded by flights.mu

	mu   sync.Mutex
	subs map[chan sos.Progress]struct{}
}

// do joins or begins the work of key and waits for it or for ctx. progress is
// called in the caller's goroutine and never after do returned; a slow one misses
// reports and delays nobody. base bounds the life of the work.
func (f *flights[T]) do(ctx, base context.Context, key string, progress func(sos.Progress),
	work func(ctx context.Context, report func(sos.Progress)) (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, canceled(err)
	}
	f.mu.Lock()
	run := f.runs[key]
	if run == nil {
		run = f.begin(base, key, work)
	}
	run.callers++
	f.mu.Unlock()
	defer f.leave(key, run)

	sub := make(chan sos.Progress, 64)
	run.subscribe(sub)
	defer run.unsubscribe(sub)
	if progress == nil {
		progress = func(sos.Progress) {}
	}
	for {
		select {
		case p := <-sub:
			progress(p)
		case <-ctx.Done():
			return zero, canceled(ctx.Err())
		case <-run.done:
			for len(sub) > 0 {
				progress(<-sub)
			}
			return run.val, run.err
		}
	}
}

// begin is called with f.mu held.
func (f *flights[T]) begin(base context.Context, key string,
	work func(ctx context.Context, report func(sos.Progress)) (T, error)) *flight[T] {
	ctx, cancel := context.WithCancel(base)
	run := &flight[T]{cancel: cancel, done: make(chan struct{}), subs: map[chan sos.Progress]struct{}{}}
	if f.runs == nil {
		f.runs = map[string]*flight[T]{}
	}
	f.runs[key] = run
	f.wg.Go(func() {
		defer cancel()
		run.val, run.err = work(ctx, run.report)
		f.mu.Lock()
		if f.runs[key] == run { // whoever comes now begins anew: the result is on disk, or it failed
			delete(f.runs, key)
		}
		f.mu.Unlock()
		close(run.done)
	})
	return run
}

func (f *flights[T]) leave(key string, run *flight[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run.callers--
	if run.callers > 0 {
		return
	}
	// Nobody may join a run that is being cancelled and be told that it failed.
	if f.runs[key] == run {
		delete(f.runs, key)
	}
	run.cancel()
}

func (r *flight[T]) report(p sos.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sub := range r.subs {
		select {
		case sub <- p:
		default: // the next report says more
		}
	}
}

func (r *flight[T]) subscribe(sub chan sos.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs[sub] = struct{}{}
}

func (r *flight[T]) unsubscribe(sub chan sos.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.subs, sub)
}

func canceled(err error) error {
	return &sos.Error{Code: sos.CodeCanceled, Message: "the caller went away", Cause: err}
}
