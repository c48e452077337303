package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// syncer writes the data directory's filesystem to disk. Stops that come at once
// share one sync: one that begins after they asked is enough for all of them.
type syncer struct {
	mu      sync.Mutex
	running *syncRun // begun
	next    *syncRun // waits for it
	sync    func() error
}

type syncRun struct {
	done chan struct{}
	err  error
}

// do returns when everything written before the call is on disk.
func (s *syncer) do(ctx context.Context) error {
	s.mu.Lock()
	r := s.next
	if r == nil {
		r = &syncRun{done: make(chan struct{})}
		s.next = r
		if s.running == nil {
			s.begin()
		}
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin starts the next run, which starts the one after it. s.mu is held.
func (s *syncer) begin() {
	r := s.next
	s.running, s.next = r, nil
	go func() { // ends with the system call, which nothing can interrupt
		r.err = s.sync()
		close(r.done)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running = nil; s.next != nil {
			s.begin()
		}
	}()
}

// wait returns when no sync runs.
func (s *syncer) wait() {
	for {
		s.mu.Lock()
		r := s.running
		s.mu.Unlock()
		if r == nil {
			return
		}
		<-r.done
	}
}

func syncFilesystem(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// sealed says whether the overlay was left clean. A volatile overlay refuses to
// be mounted again until somebody has looked after the data and removed the mark.
func (l layout) sealed(id string) bool { return !exists(l.mark(id)) }

func (l layout) mark(id string) string { return filepath.Join(l.work(id), "work", "incompat") }

func (l layout) removeMark(id string) error {
	if l.sealed(id) {
		return nil
	}
	if err := eraseTree(l.mark(id)); err != nil {
		return fmt.Errorf("work directory of %s: %w", id, err)
	}
	return nil
}
