package control

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/seaofsimulation/sos"
)

func always() bool { return true }

func TestAdmissionIsFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(2, always)
		var mu sync.Mutex
		var order []string
		for i := range 20 {
			id := fmt.Sprintf("s%02d", i)
			go func() {
				if err := a.acquire(t.Context(), id); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, id)
				mu.Unlock()
			}()
			synctest.Wait() // one after the other, so that the order is known
		}
		if got := a.position("s05"); got != 4 {
			t.Errorf("position of s05 is %d, want 4 behind two that run", got)
		}
		for i := range 20 {
			a.release(fmt.Sprintf("s%02d", i))
			synctest.Wait()
		}
		for i, id := range order {
			if want := fmt.Sprintf("s%02d", i); id != want {
				t.Fatalf("admitted %v", order)
			}
		}
		if held, queued := a.counts(); held != 0 || queued != 0 || len(order) != 20 {
			t.Errorf("held %d, queued %d, admitted %d", held, queued, len(order))
		}
	})
}

func TestAdmissionLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1, always)
		if err := a.acquire(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		errs := make(chan error, 2)
		go func() { errs <- a.acquire(ctx, "b") }()
		synctest.Wait()
		go func() { errs <- a.acquire(t.Context(), "c") }()
		synctest.Wait()
		cancel(gone)
		if err := <-errs; !errors.Is(err, gone) {
			t.Fatalf("b: %v", err)
		}
		if got := a.position("c"); got != 1 {
			t.Errorf("c is at %d after b left", got)
		}
		a.release("a")
		a.release("a") // a second release must not make room for another
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
		if held, _ := a.counts(); held != 1 {
			t.Errorf("held %d", held)
		}
	})
}

func TestAdmissionWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var enough atomic.Bool
		a := newAdmission(5, enough.Load)
		done := make(chan error, 1)
		go func() { done <- a.acquire(t.Context(), "a") }()
		synctest.Wait()
		if _, queued := a.counts(); queued != 1 {
			t.Fatal("admitted while the host is short of memory")
		}
		enough.Store(true)
		a.recheck()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestAdmissionCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(0, always)
		done := make(chan error, 1)
		go func() { done <- a.acquire(t.Context(), "a") }()
		synctest.Wait()
		a.close(sos.Errorf(sos.CodeUnavailable, "stops"))
		if err := <-done; sos.ErrorCode(err) != sos.CodeUnavailable {
			t.Fatal(err)
		}
		if err := a.acquire(t.Context(), "b"); sos.ErrorCode(err) != sos.CodeUnavailable {
			t.Fatal(err)
		}
	})
}

// TestAdmissionNeverExceeds throws acquires, cancels and releases at it and
// compares with what really holds a place.
func TestAdmissionNeverExceeds(t *testing.T) {
	const limit = 4
	a := newAdmission(limit, always)
	var in, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			id := fmt.Sprint(i)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if rand.IntN(3) == 0 {
				go cancel()
			}
			if a.acquire(ctx, id) != nil {
				return
			}
			n := in.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			in.Add(-1)
			a.release(id)
		})
	}
	wg.Wait()
	if held, queued := a.counts(); held != 0 || queued != 0 || most.Load() > limit {
		t.Errorf("at rest held %d, queued %d; at most %d of %d", held, queued, most.Load(), limit)
	}
}
