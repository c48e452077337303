package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seaofsimulation/sos"
)

// Config is what a Server is made of. Service is required.
type Config struct {
	Service sos.Service
	Log     *slog.Logger // default: slog.Default()
	Version string       // of this build
	Commit  string
	// Hosts are further names under which clients may call: a Host header with a
	// name that is neither loopback's nor one of these is refused.
	Hosts []string
	// Stats gives further numbers to /metrics; may be nil.
	Stats Stats
	// MaxBody is the longest JSON body in bytes; default 2 MiB.
	MaxBody int64
	// ShutdownGrace is how long calls in flight may go on when Serve is told to
	// end; default 5 s. What they run goes on and is recorded.
	ShutdownGrace time.Duration
}

// Server serves a Service over HTTP.
type Server struct {
	cfg     Config
	svc     sos.Service
	log     *slog.Logger
	mux     *http.ServeMux
	routes  []route
	metrics *metrics
	guard   *http.CrossOriginProtection
	hosts   map[string]bool
	openapi func() ([]byte, error)

	requestPrefix string
	requests      atomic.Uint64
	closing       atomic.Bool
}

// New makes a Server; it does no I/O.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 2 << 20
	}
	if cfg.ShutdownGrace == 0 {
		cfg.ShutdownGrace = 5 * time.Second
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &Server{cfg: cfg, svc: cfg.Service, log: cfg.Log, mux: http.NewServeMux(),
		guard: http.NewCrossOriginProtection(), hosts: map[string]bool{}, requestPrefix: hex.EncodeToString(id[:]) + "-"}
	for _, h := range cfg.Hosts {
		s.hosts[normalHost(h)] = true
	}
	s.metrics = newMetrics(cfg.Service, cfg.Stats)
	s.routes = s.table()
	s.openapi = sync.OnceValues(s.document)
	s.mount()
	return s
}

// Handler is the whole API, with its checks and limits.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Serve answers on the listeners until ctx is done, then lets calls in flight
// end within the grace and returns. It closes the listeners.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	calls, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	srv := &http.Server{
		Handler:           s.Handler(),
		BaseContext:       func(net.Listener) context.Context { return calls },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- srv.Serve(l) }()
	}
	var failed error
	running := len(listeners)
	select {
	case <-ctx.Done():
	case failed = <-ended:
		running--
	}
	s.closing.Store(true)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownGrace)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		// Long calls are told to end, get a moment to answer, and are cut off.
		cancelCalls()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(last) != nil {
			_ = srv.Close() // the connections that did not end in time
		}
	}
	for range running {
		if err := <-ended; failed == nil {
			failed = err
		}
	}
	if failed != nil && !errors.Is(failed, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", failed)
	}
	return nil
}
