package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/config"
	"github.com/seaofsimulation/sos/internal/server"
)

// App is one server: everything of one data directory in this process.
type App struct {
	parts
	server    *server.Server
	listeners []net.Listener
	socket    string // path of the Unix socket
}

// New makes a server from cfg: it takes the data directory, opens what is in it,
// and listens. Nothing is answered before Run. Close gives all of it back.
func New(ctx context.Context, cfg config.Config) (*App, error) {
	a := &App{}
	if err := a.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) open(ctx context.Context, cfg config.Config) error {
	if err := a.parts.open(ctx, cfg); err != nil {
		return err
	}
	if err := a.openPlane(); err != nil {
		return err
	}
	a.server = server.New(server.Config{Service: a.plane, Log: a.log, Version: cfg.Version, Commit: cfg.Commit,
		Hosts: cfg.Hosts, Stats: planeStats{a.plane.Stats}, ShutdownGrace: 2 * time.Second})
	return a.listen(ctx)
}

// listen opens the Unix socket in the run directory, loopback, and what --listen
// names.
func (a *App) listen(ctx context.Context) error {
	a.socket = filepath.Join(a.runDir, "api.sock")
	first := server.ListenConfig{Port: a.cfg.Port, NoTCP: a.cfg.NoTCP, Insecure: a.cfg.Insecure, Unix: a.socket}
	rest := []server.ListenConfig{}
	for _, addr := range a.cfg.Listen {
		if path, ok := strings.CutPrefix(addr, "unix://"); ok {
			rest = append(rest, server.ListenConfig{NoTCP: true, Unix: path})
		} else {
			first.Addrs = append(first.Addrs, addr)
		}
	}
	for _, c := range append([]server.ListenConfig{first}, rest...) {
		list, err := server.Listen(ctx, c)
		if err != nil {
			return err
		}
		for _, l := range list {
			a.onClose(func() error {
				if err := l.Close(); !errors.Is(err, net.ErrClosed) {
					return err
				}
				return nil // Run has closed it
			})
		}
		a.listeners = append(a.listeners, list...)
	}
	return nil
}

// Run serves until ctx is done. Sandboxes go on running; the next server on the
// same data directory takes them over.
func (a *App) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// The plane outlives the server by a moment: answers in flight need it.
	planeCtx, stopPlane := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPlane()
	plane := make(chan error, 1)
	go func() {
		plane <- a.plane.Run(planeCtx)
		stop() // without it nothing can be answered
	}()
	err := a.server.Serve(ctx, a.listeners...)
	stopPlane()
	return errors.Join(err, ignoreCanceled(<-plane))
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// URL is the first address that clients can use.
func (a *App) URL() string {
	for _, l := range a.listeners {
		if l.Addr().Network() == "tcp" {
			return "http://" + l.Addr().String()
		}
	}
	return "unix://" + a.socket
}

// Socket is the path of the Unix socket.
func (a *App) Socket() string { return a.socket }

// Instance is the name of the data directory on the host.
func (a *App) Instance() string { return a.instance }

// Service is the control plane.
func (a *App) Service() sos.Service { return a.plane }

// Ready blocks until GET /health has answered and gives its status.
func (a *App) Ready(ctx context.Context) (status int, err error) {
	select {
	case <-a.plane.Ready():
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			addr := a.listeners[0].Addr()
			return (&net.Dialer{}).DialContext(ctx, addr.Network(), addr.String())
		},
	}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/health", nil)
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(req)
		if err == nil {
			return resp.StatusCode, resp.Body.Close()
		}
		select { // the listeners are there, so this is rare
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// StopAll stops every sandbox; files are kept.
func (a *App) StopAll(ctx context.Context) error { return a.plane.StopAll(ctx) }

func newLog(cfg config.Config) (*slog.Logger, error) {
	level, err := cfg.Level()
	if err != nil {
		return nil, err
	}
	w := cfg.LogTo
	if w == nil {
		w = os.Stderr
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), nil
}

func needRoot(command string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return &sos.Error{Code: sos.CodeUnavailable,
		Message: fmt.Sprintf("%s needs root: namespaces, mounts and limits of sandboxes are made by root", command),
		Fix:     "run it as root, for example with sudo; rootless operation is not supported"}
}
