package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLocksSerialiseOneIDOnly(t *testing.T) {
	var l locks
	ctx := t.Context()
	unlock, err := l.lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.lock(ctx, "b")
	if err != nil {
		t.Fatal("another id waits")
	}
	other()
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := l.lock(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second lock gives %v", err)
	}
	unlock()
	var wg sync.WaitGroup
	var inside, most atomic.Int32
	for range 50 {
		wg.Go(func() {
			unlock, err := l.lock(ctx, "a")
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			inside.Add(-1)
			unlock()
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d had the lock at once", most.Load())
	}
	if len(l.m) != 0 {
		t.Errorf("%d entries are left", len(l.m))
	}
}

func TestSyncsAreShared(t *testing.T) {
	var runs atomic.Int32
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	s := syncer{sync: func() error { runs.Add(1); begun <- struct{}{}; <-goOn; return nil }}
	var wg sync.WaitGroup
	do := func() { wg.Go(func() { s.do(t.Context()) }) }
	do()
	<-begun
	for range 20 { // all of them came after the first had begun
		do()
	}
	eventually(t, "they wait", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.next != nil })
	close(goOn)
	wg.Wait()
	s.wait()
	if n := runs.Load(); n < 2 || n > 21 {
		t.Errorf("%d syncs", n)
	}
	want := errors.New("disk on fire")
	s.sync = func() error { return want }
	if err := s.do(t.Context()); !errors.Is(err, want) {
		t.Errorf("a failed sync gives %v", err)
	}
}

func TestExtract(t *testing.T) {
	dir := t.TempDir()
	path, err := extract(dir, "sos-guest", []byte("program"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o711 {
		t.Fatalf("%v, %v; want mode 0711", st, err)
	}
	// Damage, as by a power loss, is repaired; the rest of the directory is left.
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if again, err := extract(dir, "sos-guest", []byte("program")); err != nil || again != path {
		t.Fatalf("%s, %v", again, err)
	}
	if b, _ := os.ReadFile(path); string(b) != "program" {
		t.Errorf("it holds %q", b)
	}
	if st, _ := os.Stat(path); st.Mode().Perm() != 0o711 {
		t.Errorf("mode %v", st.Mode())
	}
	next, err := extract(dir, "sos-guest", []byte("next"))
	if err != nil || next == path {
		t.Fatalf("%s, %v", next, err)
	}
	write(t, filepath.Join(dir, "other"), 1)
	if err := removeOldPrograms(dir, next); err != nil {
		t.Fatal(err)
	}
	if exists(path) || !exists(next) || !exists(filepath.Join(dir, "other")) {
		t.Error("not exactly the old program was removed")
	}
}

func TestKernelAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"5.18.0": false, "5.19": true, "5.19.0-rc1": true, "6.0.1": true, "10.1": true, "4.20": false, "custom": true,
	} {
		if kernelAtLeast(release, MinLinux) != want {
			t.Errorf("%s: %v", release, !want)
		}
	}
}
