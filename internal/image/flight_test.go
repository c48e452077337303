package image

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
)

func newFlights(t *testing.T) *flights[int] {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return &flights[int]{wg: &wg}
}

func (f *flights[T]) callers(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs[key] == nil {
		return 0
	}
	return f.runs[key].callers
}

func TestFlightIsShared(t *testing.T) {
	f := newFlights(t)
	var runs atomic.Int64
	release := make(chan struct{})
	work := func(context.Context, func(sos.Progress)) (int, error) {
		runs.Add(1)
		<-release
		return 7, nil
	}
	results := make(chan int, 10)
	for range 10 {
		go func() {
			v, err := f.do(background, background, "k", nil, work)
			if err != nil {
				v = -1
			}
			results <- v
		}()
	}
	waitFor(t, "10 callers", func() bool { return f.callers("k") == 10 })
	close(release)
	for range 10 {
		if v := <-results; v != 7 {
			t.Errorf("result %d", v)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// TestFlightAfterAbort joins while the last caller's work is still being
// cancelled: the newcomer must get a run of its own and not the old failure.
func TestFlightAfterAbort(t *testing.T) {
	f := newFlights(t)
	ctx, cancel := context.WithCancel(background)
	slow := make(chan struct{})
	started := make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := f.do(ctx, background, "k", nil, func(ctx context.Context, _ func(sos.Progress)) (int, error) {
			close(started)
			<-ctx.Done()
			<-slow // slow to notice
			return 0, errors.New("aborted")
		})
		first <- err
	}()
	<-started
	cancel()
	wantCode(t, <-first, sos.CodeCanceled)
	v, err := f.do(background, background, "k", nil, func(context.Context, func(sos.Progress)) (int, error) { return 9, nil })
	close(slow)
	if v != 9 || err != nil {
		t.Errorf("newcomer: %d, %v", v, err)
	}
	if _, err := f.do(ctx, background, "k", nil, nil); sos.ErrorCode(err) != sos.CodeCanceled {
		t.Errorf("a caller who is gone already: %v", err)
	}
}

// TestFlightSlowListener has a caller who is stuck in its progress function.
func TestFlightSlowListener(t *testing.T) {
	f := newFlights(t)
	stuck, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := make(chan error, 1)
	joined := make(chan struct{})
	work := func(_ context.Context, report func(sos.Progress)) (int, error) {
		<-joined
		for i := range 10000 {
			report(sos.Progress{Current: int64(i)})
		}
		return 1, nil
	}
	go func() {
		_, err := f.do(background, background, "k", func(sos.Progress) { once.Do(func() { close(stuck) }); <-free }, work)
		slow <- err
	}()
	waitFor(t, "first caller", func() bool { return f.callers("k") == 1 })
	quick := make(chan error, 1)
	go func() { _, err := f.do(background, background, "k", nil, work); quick <- err }()
	waitFor(t, "second caller", func() bool { return f.callers("k") == 2 })
	close(joined)
	<-stuck
	select {
	case err := <-quick:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a slow listener holds up the others")
	}
	close(free)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}
