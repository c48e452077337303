// Package client is the host's side of the guest protocol: one connection to one
// guest, made again whenever it breaks, over which any number of calls and the
// output of all processes go at once.
//
// What the guest sends is hostile. Frames are bounded, words are checked against
// the vocabulary, texts are cleaned, times are clamped, offsets must follow each
// other, and what was not asked for is counted and dropped. A guest that breaks
// these rules harms only its own sandbox.
package client

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// Config is what a Client needs.
type Config struct {
	// Dial opens a byte stream to the guest. An error with sos.CodeNotStarted or
	// sos.CodeSandboxLost ends Run; after any other Run dials again.
	Dial func(ctx context.Context) (net.Conn, error)
	Sink guest.Sink
	Log  *slog.Logger // nil: none
	// Build is told to the guest, for its log.
	Build string
}

// Client speaks to one guest. Its methods may be called at once from anywhere but
// the Sink. Calls wait while there is no connection; each ends with its context,
// and after callTimeout where that has no deadline. sos.CodeUnavailable: the guest
// did not answer. The error that ended Run ends all calls.
type Client struct {
	cfg Config
	id  string

	ready chan struct{} // closed by the first hello
	over  chan struct{} // closed when Run has ended

	mu       sync.Mutex
	err      error // why Run ended
	link     *link // nil while there is no connection
	instance string
	lastCall uint64
	calls    map[uint64]*call
	procs    map[string]*proc
	released guest.Recent // told the guest to forget; it may not have heard
}

// Times of the client.
const (
	handshakeTimeout = 10 * time.Second
	callTimeout      = 30 * time.Second
	minBackoff       = 5 * time.Millisecond
	maxBackoff       = time.Second
	maxFaults        = 5           // connections in a row that the guest spoilt
	goodConnection   = time.Minute // how long one must last to count as good
)

// New makes a client that does nothing before Run.
func New(cfg Config) *Client {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{
		cfg:   cfg,
		id:    rand.Text(),
		ready: make(chan struct{}),
		over:  make(chan struct{}),
		calls: map[uint64]*call{},
		procs: map[string]*proc{},
	}
}

// Run connects, resumes, and serves until ctx is done (it returns ctx's error) or
// the sandbox is gone: Dial said so, another guest answers (sos.CodeSandboxLost),
// the guest cannot be spoken to (sos.CodeUnsupported) or keeps breaking the
// protocol (sos.CodeSandboxLost). It dials again with a growing pause when the
// connection breaks. It is called once.
func (c *Client) Run(ctx context.Context) error {
	err := c.run(ctx)
	c.finish(err)
	return err
}

func (c *Client) run(ctx context.Context) error {
	backoff, faults := minBackoff, 0
	for {
		began := time.Now()
		err := c.connect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f, ok := err.(*faultError); ok {
			faults++
			c.cfg.Log.Warn("guest broke the protocol", "err", f, "times", faults)
			if faults >= maxFaults {
				return sos.Errorf(sos.CodeSandboxLost, "the sandbox's guest breaks the protocol: %w", err)
			}
		}
		if time.Since(began) > goodConnection {
			backoff, faults = minBackoff, 0
		}
		switch sos.ErrorCode(err) {
		case sos.CodeNotStarted, sos.CodeSandboxLost, sos.CodeUnsupported:
			return err
		}
		c.cfg.Log.Debug("connection to guest ended", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// finish ends every call: now and in future.
func (c *Client) finish(err error) {
	if sos.ErrorCode(err) == sos.CodeInternal {
		err = &sos.Error{Code: sos.CodeUnavailable, Message: "the connection to the sandbox was closed", Cause: err}
	}
	c.mu.Lock()
	c.err = err
	calls := c.calls
	c.calls = map[uint64]*call{}
	c.mu.Unlock()
	for _, k := range calls {
		k.finish(0, err)
	}
	close(c.over)
}

// Ready returns nil once the first hello was answered, or why there was none.
func (c *Client) Ready(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.over:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	case <-ctx.Done():
		return ended(ctx, "become ready")
	}
}
