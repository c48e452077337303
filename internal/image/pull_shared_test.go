package image

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
)

// gate holds back all blobs until it is opened.
func (f *faultyRegistry) gate() (open func()) {
	ch := make(chan struct{})
	f.setFault(func(_ http.ResponseWriter, r *http.Request, kind string, _ int) bool {
		if kind == "blobs" {
			select {
			case <-ch:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return sync.OnceFunc(func() { close(ch) })
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in time", what)
		}
	}
}

func (s *Store) callersOf(ref string) int {
	s.pulls.mu.Lock()
	defer s.pulls.mu.Unlock()
	if run := s.pulls.runs[ref]; run != nil {
		return run.callers
	}
	return 0
}

// TestPullShared has 20 callers of one image; the first goes away.
func TestPullShared(t *testing.T) {
	r := newRegistry(t)
	img := ociImage(t, hostArch, big())
	ref := r.push(t, "app:v1", img)
	release := r.gate()
	defer release()
	s := open(t)
	first, leave := context.WithCancel(background)
	results := make(chan error, 20)
	firstDone := make(chan error, 1)
	go func() { _, err := s.Pull(first, ref, nil); firstDone <- err }()
	waitFor(t, "request", func() bool { return r.count("blobs") > 0 })
	for range 19 {
		go func() {
			got, err := s.Resolve(background, ref, nil)
			if err == nil && got.Digest == "" {
				err = errors.New("success without an image")
			}
			results <- err
		}()
	}
	waitFor(t, "20 callers", func() bool { return s.callersOf(ref) == 20 })
	leave()
	wantCode(t, <-firstDone, sos.CodeCanceled)
	release()
	for range 19 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	for digest, n := range r.blobFetches() {
		if n != 1 {
			t.Errorf("blob %s was fetched %d times", digest, n)
		}
	}
	if n := len(r.blobFetches()); n != 3 {
		t.Errorf("%d blobs were fetched, want 3", n)
	}
	wantEmpty(t, s, "ingest")
}

// TestPullSharedLayers pulls two images that have a layer in common.
func TestPullSharedLayers(t *testing.T) {
	r := newRegistry(t)
	a, b := r.push(t, "a:v1", ociImage(t, hostArch, reg("usr/a", "a"))), r.push(t, "b:v1", ociImage(t, hostArch, reg("usr/b", "b")))
	release := r.gate()
	defer release()
	s := open(t)
	errs := make(chan error, 2)
	for _, ref := range []string{a, b} {
		go func() { _, err := s.Pull(background, ref, nil); errs <- err }()
	}
	waitFor(t, "both configurations", func() bool { return r.count("blobs") == 2 })
	release()
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	fetches := r.blobFetches()
	if len(fetches) != 5 { // two configurations, one shared layer, two of their own
		t.Errorf("blobs: %v", fetches)
	}
	for d, n := range fetches {
		if n != 1 {
			t.Errorf("blob %s was fetched %d times", d, n)
		}
	}
	if list, err := os.ReadDir(s.path("layers")); err != nil || len(list) != 3 {
		t.Errorf("%d layers, want 3 (%v)", len(list), err)
	}
}

// TestPullAborted has the only caller leave: the work stops and leaves nothing,
// and a pull after it works.
func TestPullAborted(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "app:v1", ociImage(t, hostArch))
	release := r.gate()
	defer release()
	s := open(t)
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { _, err := s.Pull(ctx, ref, nil); done <- err }()
	waitFor(t, "request", func() bool { return r.count("blobs") > 0 })
	cancel()
	wantCode(t, <-done, sos.CodeCanceled)
	waitFor(t, "end of the work", func() bool {
		list, err := os.ReadDir(s.path("ingest"))
		return err == nil && len(list) == 0
	})
	release()
	if _, err := s.Pull(background, ref, nil); err != nil {
		t.Errorf("pull after an aborted one: %v", err)
	}
}

// TestStalledRegistryDelaysNobody pulls from one registry while another is dead.
func TestStalledRegistryDelaysNobody(t *testing.T) {
	dead, alive := newRegistry(t), newRegistry(t)
	deadRef, aliveRef := dead.push(t, "x:v1", ociImage(t, hostArch, reg("usr/d", "d"))), alive.push(t, "y:v1", ociImage(t, hostArch))
	release := dead.gate()
	defer release()
	s := open(t)
	ctx, cancel := context.WithCancel(background)
	done := make(chan error, 1)
	go func() { _, err := s.Pull(ctx, deadRef, nil); done <- err }()
	waitFor(t, "request", func() bool { return dead.count("blobs") > 0 })
	if _, err := s.Pull(background, aliveRef, nil); err != nil {
		t.Error(err)
	}
	cancel()
	<-done
}

// TestCloseEndsPulls waits for nothing that a registry holds back.
func TestCloseEndsPulls(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "app:v1", ociImage(t, hostArch))
	release := r.gate()
	defer release()
	s := open(t)
	done := make(chan error, 1)
	go func() { _, err := s.Pull(background, ref, nil); done <- err }()
	waitFor(t, "request", func() bool { return r.count("blobs") > 0 })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-done, sos.CodeCanceled)
	wantEmpty(t, s, "ingest", "images")
}
