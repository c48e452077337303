package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// supervisor keeps a connection to the instance's spawner. A spawner that died is
// replaced when somebody next needs one: its guests live on, and the new one
// adopts them by their records. Nothing has to watch it, since whoever waits for
// the end of a guest needs it all the time.
type supervisor struct {
	dirs     layout
	log      *slog.Logger
	instance string
	program  string

	lock locks // one connects or starts at a time

	mu      sync.Mutex
	current *spawn.Client
	child   int // pid of the spawner that this process started and did not collect
}

// Times of the spawner.
const (
	helloTimeout = 5 * time.Second
	startTimeout = 10 * time.Second
	retries      = 3 // connections that one call tries
)

// call makes one call, again over a new connection when the old one broke: every
// call is idempotent.
func (s *supervisor) call(ctx context.Context, f func(c *spawn.Client) error) error {
	for try := 1; ; try++ {
		c, err := s.client(ctx)
		if err != nil {
			return err
		}
		err = f(c)
		var e *spawn.Error
		again := errors.Is(err, spawn.ErrDisconnected) || errors.As(err, &e) && e.Code == spawn.CodeClosing
		if !again || try == retries {
			return err
		}
		s.drop(c)
	}
}

// client gives the connection, made anew where there is none.
func (s *supervisor) client(ctx context.Context) (*spawn.Client, error) {
	if c := s.live(); c != nil {
		return c, nil
	}
	unlock, err := s.lock.lock(ctx, "")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c := s.live(); c != nil {
		return c, nil
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = c
	return c, nil
}

func (s *supervisor) live() *spawn.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil
	}
	select {
	case <-s.current.Done():
		return nil
	default:
		return s.current
	}
}

// drop gives up a connection that does not serve any more.
func (s *supervisor) drop(c *spawn.Client) {
	s.mu.Lock()
	if s.current == c {
		s.current = nil
	}
	s.mu.Unlock()
	_ = c.Close() // twice is fine
}

// connect finds the spawner that runs, or starts one. One of another protocol or
// build is asked to go first.
func (s *supervisor) connect(ctx context.Context) (*spawn.Client, error) {
	c, err := s.dial(ctx)
	if err == nil {
		h, err := s.hello(ctx, c)
		if err == nil && h.Protocol == spawn.Protocol && h.Build == s.build() {
			return c, nil
		}
		s.log.Info("replacing the spawner", "op", "spawner", "pid", h.Pid, "build", h.Build, "protocol", h.Protocol, "err", err)
		if err := s.retire(ctx, c); err != nil {
			return nil, fmt.Errorf("replace the spawner: %w", err)
		}
	}
	if err := s.start(); err != nil {
		return nil, fmt.Errorf("start the spawner: %w", err)
	}
	return s.await(ctx)
}

func (s *supervisor) hello(ctx context.Context, c *spawn.Client) (spawn.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	return c.Hello(ctx)
}

// await connects to the spawner that was just started.
func (s *supervisor) await(ctx context.Context) (*spawn.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		c, err := s.dial(ctx)
		if err == nil {
			if _, err = s.hello(ctx, c); err == nil {
				return c, nil
			}
			_ = c.Close()
		}
		if s.childEnded() {
			return nil, fmt.Errorf("it ended at once: %s", s.lastWords())
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("it does not answer: %w", errors.Join(err, ctx.Err()))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// dial connects by way of a descriptor of the run directory: its path may be too
// long for an address.
func (s *supervisor) dial(ctx context.Context) (*spawn.Client, error) {
	dir, err := os.OpenFile(s.dirs.run, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return spawn.Dial(ctx, fdPath(dir, spawn.Socket))
}

func (s *supervisor) socket() string { return filepath.Join(s.dirs.run, spawn.Socket) }

func (s *supervisor) logFile() string { return filepath.Join(s.dirs.run, "spawner.log") }

func (s *supervisor) close() error {
	s.mu.Lock()
	c := s.current
	s.current = nil
	s.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
	s.childEnded()
	return nil
}
