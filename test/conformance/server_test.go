package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos/client"
	"github.com/seaofsimulation/sos/internal/app"
	"github.com/seaofsimulation/sos/internal/config"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// imageName is the image that clients of the first system use.
const imageName = "ubuntu:latest"

// running is a server in this process.
type running struct {
	base string // URL
	app  *app.App
	cfg  config.Config
	log  *bytes.Buffer
	end  func() error // stops the server, leaves the sandboxes
}

// shared is the server of all tests that do not need one of their own.
var shared struct {
	once sync.Once
	srv  *running
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		if err := shared.srv.down(); err != nil {
			fmt.Fprintln(os.Stderr, "end of the shared server:", err)
			code = 1
		}
		if err := os.RemoveAll(shared.dir); err != nil {
			fmt.Fprintln(os.Stderr, "files of the shared server:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// server gives the shared server, which has the image.
func server(t *testing.T) *api {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "sos-conf-"); shared.err != nil {
			return
		}
		if shared.srv, shared.err = boot(shared.dir, func(c *config.Config) { c.MaxSandboxes = 30 }); shared.err == nil {
			shared.err = load(shared.srv.base, testutil.Image(t), imageName)
		}
	})
	if shared.err != nil {
		t.Fatalf("start the server: %v", shared.err)
	}
	return &api{t: t, base: shared.srv.base}
}

// own starts a server for one test, with the image.
func own(t *testing.T, set func(*config.Config)) (*running, *api) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sos-conf-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	srv, err := boot(dir, set)
	if err != nil {
		t.Fatalf("start the server: %v", err)
	}
	t.Cleanup(func() {
		if err := srv.down(); err != nil {
			t.Error(err)
		}
	})
	if err := load(srv.base, testutil.Image(t), imageName); err != nil {
		t.Fatal(err)
	}
	return srv, &api{t: t, base: srv.base}
}

// boot starts a server on a data directory.
func boot(dir string, set func(*config.Config)) (*running, error) {
	cfg := config.Default()
	cfg.Port, cfg.DataDir, cfg.RunDir, cfg.LogLevel = 0, filepath.Join(dir, "data"), filepath.Join(dir, "run"), "warn"
	log := &bytes.Buffer{}
	cfg.LogTo = log // written through one slog handler, which locks
	if set != nil {
		set(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := app.New(ctx, cfg)
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	srv := &running{app: a, base: a.URL(), cfg: cfg, log: log}
	srv.end = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, a.Close())
	})
	ready, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	status, err := a.Ready(ready)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the server is not healthy: %d\n%s", status, log)
	}
	if err != nil {
		return nil, errors.Join(err, srv.end())
	}
	return srv, nil
}

// down ends the server, its sandboxes and what would outlive both.
func (r *running) down() error {
	if r == nil {
		return nil
	}
	err := r.end()
	_, derr := app.Down(context.Background(), r.cfg, true)
	return errors.Join(err, derr)
}

// load imports a root filesystem.
func load(base, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = client.New(client.Config{URL: base}).ImportImage(context.Background(), f, name, nil)
	return err
}

// address is where a server listens.
func address(t *testing.T, base string) string {
	t.Helper()
	addr := base[len("http://"):]
	if _, _, err := net.SplitHostPort(addr); err != nil {
		t.Fatal(err)
	}
	return addr
}
