// Package nativetest runs the service's suite on what users get: the control
// plane over the native driver, with real sandboxes.
package nativetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/control"
	"github.com/seaofsimulation/sos/internal/driver/native"
	"github.com/seaofsimulation/sos/internal/image"
	"github.com/seaofsimulation/sos/internal/journal"
	"github.com/seaofsimulation/sos/internal/store"
	"github.com/seaofsimulation/sos/internal/testutil"
	"github.com/seaofsimulation/sos/servicetest"
)

const debian = "debian:bookworm"

// host is a data directory with its instance; servers come and go on it.
type host struct {
	t              testing.TB
	dir, run, inst string
	guest, spawner string

	*control.Plane
	stop func()
}

func newHost(t testing.TB) *host {
	t.Helper()
	dir := t.TempDir()
	inst := sos.NewID("", nil)[:8]
	h := &host{t: t, dir: dir, inst: inst, run: filepath.Join("/run/sos-test", inst)}
	programs.once.Do(func() { programs.err = buildPrograms() })
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	h.guest, h.spawner = filepath.Join(programs.dir, "sos-guest"), filepath.Join(programs.dir, "sos-spawner")
	if err := os.MkdirAll(h.run, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.down)
	h.stop = func() {}
	h.boot()
	f, err := os.Open(testutil.Image(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := h.ImportImage(t.Context(), f, debian, nil); err != nil {
		t.Fatal(err)
	}
	return h
}

// programs are built from this tree once for all tests.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if programs.dir != "" {
		os.RemoveAll(programs.dir)
	}
	os.Exit(code)
}

func buildPrograms() (err error) {
	if programs.dir, err = os.MkdirTemp("", "plane-programs-"); err != nil {
		return err
	}
	for _, name := range []string{"sos-guest", "sos-spawner"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(programs.dir, name), "github.com/seaofsimulation/sos/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// boot starts a server and waits until it has taken over.
func (h *host) boot() {
	h.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("SOS_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	must := func(err error) {
		h.t.Helper()
		if err != nil {
			h.t.Fatal(err)
		}
	}
	ctx := context.WithoutCancel(h.t.Context())
	db, err := store.Open(ctx, filepath.Join(h.dir, "sos.db"))
	must(err)
	j, err := journal.Open(filepath.Join(h.dir, "journal"), journal.Options{})
	must(err)
	d, err := native.Open(ctx, native.Config{DataDir: h.dir, RunDir: h.run, Instance: h.inst, Log: log, GuestPath: h.guest, SpawnerPath: h.spawner})
	must(err)
	var plane *control.Plane
	images, err := image.Open(image.Config{Dir: filepath.Join(h.dir, "images"), Log: log, Users: func(digest string) []string { return plane.ImageUsers(digest) }})
	must(err)
	plane, err = control.New(control.Config{Driver: d, Store: db, Journal: j, Images: images, Log: log, Instance: h.inst, Version: "test", WatchInterval: 100 * time.Millisecond})
	must(err)
	rctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- plane.Run(rctx) }()
	h.Plane = plane
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, images.Close(), d.Close(), j.Close(), db.Close()); err != nil {
			h.t.Error(err)
		}
	})
	select {
	case <-plane.Ready():
	case <-time.After(time.Minute):
		h.t.Fatal("not ready")
	}
}

// down ends everything of the instance and checks that nothing is left.
func (h *host) down() {
	h.stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := native.Down(ctx, native.Config{DataDir: h.dir, RunDir: h.run, Instance: h.inst, GuestPath: h.guest, SpawnerPath: h.spawner}); err != nil {
		h.t.Errorf("down: %v", err)
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(b), h.dir) {
		h.t.Errorf("mounts are left under %s (%v)", h.dir, err)
	}
	os.RemoveAll(h.run)
	os.Remove(filepath.Dir(h.run)) // stays while another test has its own in there
}

// TestNative has one host for all, because to unpack its image takes longest.
func TestNative(t *testing.T) {
	h := newHost(t)
	t.Run("service", func(t *testing.T) { testService(t, h) })
	t.Run("limits", func(t *testing.T) { testLimits(t, h) })
	t.Run("restart", func(t *testing.T) { testRestart(t, h) })
}

func testService(t *testing.T, h *host) {
	servicetest.Run(t, func(t *testing.T) servicetest.Env {
		return servicetest.Env{Service: h.Plane, Image: debian, Real: true}
	})
}

// testRestart: a new server takes over the shells, the running commands, their
// true ends and the whole of their output.
func testRestart(t *testing.T, h *host) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := h.CreateSandbox(ctx, sos.SandboxSpec{Image: debian})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.StartSandbox(ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	exec := func(q sos.ExecRequest) (sos.ExecResult, error) { return h.Exec(ctx, s.ID, q) }
	if _, err := exec(sos.ExecRequest{Command: "cd /tmp; V=kept; f() { echo function; }"}); err != nil {
		t.Fatal(err)
	}
	const long = "for i in $(seq 1 30); do echo line $i; sleep 0.05; done; exit 42"
	go exec(sos.ExecRequest{Command: long, Standalone: true})
	var id string
	for id == "" && ctx.Err() == nil {
		l, err := h.ListProcesses(ctx, s.ID, sos.ProcessFilter{Kinds: []sos.ProcessKind{sos.KindStandalone}})
		if err != nil {
			t.Fatal(err)
		}
		if len(l) == 1 && len(l[0].Output) == 1 {
			id = l[0].ID
		}
	}
	h.stop()
	h.boot()
	if got, err := exec(sos.ExecRequest{Command: "echo $V; pwd; f"}); err != nil || got.Output != "kept\n/tmp\nfunction" {
		t.Errorf("the session gave %+v, %v", got, err)
	}
	var out strings.Builder
	if _, err := h.ReadOutput(ctx, s.ID, id, sos.StreamOut, 0, true, &out); err != nil {
		t.Error(err)
	}
	var want strings.Builder
	for i := 1; i <= 30; i++ {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if out.String() != want.String() {
		t.Errorf("output %q", out.String())
	}
	p, err := h.GetProcess(ctx, s.ID, id)
	if err != nil || p.ExitCode == nil || *p.ExitCode != 42 {
		t.Errorf("process %+v, %v", p, err)
	}
}
