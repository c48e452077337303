package app

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/config"
)

func testConfig(t *testing.T) config.Config {
	t.Helper()
	dir := t.TempDir()
	c := config.Default()
	c.Port, c.DataDir, c.RunDir = 0, filepath.Join(dir, "data"), filepath.Join(dir, "run")
	c.LogTo = new(bytes.Buffer)
	return c
}

// start runs a server and ends everything of it with the test.
func start(t *testing.T, cfg config.Config) *App {
	t.Helper()
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := Down(context.Background(), cfg, true); err != nil {
			t.Errorf("down: %v", err)
		}
		if _, err := os.Stat(a.runDir); err == nil {
			t.Errorf("%s is left", a.runDir)
		}
	})
	return a
}

func ready(t *testing.T, a *App) int {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	status, err := a.Ready(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func TestServesOnLoopbackAndSocket(t *testing.T) {
	cfg := testConfig(t)
	a := start(t, cfg)
	ready(t, a)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(a.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{a.URL(), "http://127.0.0.1:" + port, "http://localhost:" + port} {
		resp, err := http.Get(url + "/version")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
	c, err := net.Dial("unix", a.Socket())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if want := filepath.Join(cfg.RunDir, a.Instance(), "api.sock"); a.Socket() != want {
		t.Errorf("socket %s, want %s", a.Socket(), want)
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	cfg := testConfig(t)
	a := start(t, cfg)
	ready(t, a)
	other, err := New(t.Context(), cfg)
	if err == nil {
		other.Close()
		t.Fatal("two servers on one data directory")
	}
	if sos.ErrorCode(err) != sos.CodeConflict || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("%v: does not name the pid", err)
	}
	if _, err := Down(t.Context(), cfg, true); sos.ErrorCode(err) != sos.CodeConflict {
		t.Errorf("down beside a server: %v", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "sos.db")); err != nil {
		t.Error(err)
	}
}

func TestInstanceStays(t *testing.T) {
	cfg := testConfig(t)
	var names [2]string
	for i := range names {
		a, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		names[i] = a.Instance()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if names[0] != names[1] || !validInstance(names[0]) {
		t.Errorf("%q", names)
	}
	if _, err := Down(t.Context(), cfg, true); err != nil {
		t.Error(err)
	}
}

func TestUnusableDataDir(t *testing.T) {
	cfg := testConfig(t)
	if err := os.WriteFile(cfg.DataDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), cfg); sos.ErrorCode(err) != sos.CodeUnavailable || !strings.Contains(err.Error(), cfg.DataDir) {
		t.Errorf("a file as data directory: %v", err)
	}

	cfg = testConfig(t)
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "../../etc", "ABCDEFGH", "abcdefghi"} {
		if err := os.WriteFile(filepath.Join(cfg.DataDir, "instance"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "instance name") {
			t.Errorf("instance %q: %v", bad, err)
		}
	}
}

func TestPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := testConfig(t)
	cfg.Port = l.Addr().(*net.TCPAddr).Port
	_, err = New(t.Context(), cfg)
	e, ok := err, sos.ErrorCode(err) == sos.CodeUnavailable
	if !ok || !strings.Contains(e.Error(), strconv.Itoa(cfg.Port)) {
		t.Errorf("%v", err)
	}
	if _, err := Down(t.Context(), cfg, true); err != nil {
		t.Error(err)
	}
}

// A filesystem that cannot hold layers makes the server unhealthy and is named
// wherever one looks.
func TestFilesystemWithoutAttributes(t *testing.T) {
	cfg := testConfig(t)
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("ramfs", cfg.DataDir, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(cfg.DataDir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	if status := ready(t, a); status != http.StatusServiceUnavailable {
		t.Errorf("health %d", status)
	}
	info, err := a.Service().Info(t.Context())
	if err != nil || info.Healthy {
		t.Errorf("%+v %v", info, err)
	}
	if text := a.verdict(info, 503); !strings.Contains(text, "FAILED images") || !strings.Contains(text, "Fix:") {
		t.Error(text)
	}
	if _, err := a.Service().ListImages(t.Context()); sos.ErrorCode(err) != sos.CodeUnavailable {
		t.Errorf("images: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Down(t.Context(), cfg, false); err != nil {
		t.Error(err)
	}
}

func TestPurgeStopsAtMounts(t *testing.T) {
	cfg := testConfig(t)
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cfg.DataDir, "with space")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	_, err = Down(t.Context(), cfg, true)
	if sos.ErrorCode(err) != sos.CodeConflict {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "sos.db")); err != nil {
		t.Errorf("something was deleted: %v", err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Down(t.Context(), cfg, true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cfg.DataDir); err == nil {
		t.Error("the data directory is left")
	}
}

func TestServeSignals(t *testing.T) {
	for _, tc := range []struct {
		sig  syscall.Signal
		want string
	}{
		{syscall.SIGTERM, "sos has stopped; no sandbox runs\n"},
		{syscall.SIGINT, "sos has stopped; its sandboxes are stopped, files kept\n"},
	} {
		cfg := testConfig(t)
		console := &syncBuffer{changed: make(chan struct{}, 1)}
		signals := make(chan os.Signal, 1)
		ended := make(chan error, 1)
		go func() { ended <- Serve(context.WithoutCancel(t.Context()), cfg, console, signals) }()
		console.wait(t, " on http://")
		signals <- tc.sig
		if err := <-ended; err != nil {
			t.Error(err)
		}
		console.wait(t, tc.want)
		if _, err := Down(t.Context(), cfg, true); err != nil {
			t.Error(err)
		}
	}
}
