package control

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/fake"
	"github.com/seaofsimulation/sos/internal/image"
	"github.com/seaofsimulation/sos/internal/journal"
	"github.com/seaofsimulation/sos/internal/store"
)

// testImage is a name that every rig has; plainImage is one without bash.
const (
	testImage  = "test:latest"
	plainImage = "plain:latest"
)

// rig is a data directory and a fake host on which one server after the other
// runs.
type rig struct {
	t    testing.TB
	dir  string
	fake *fake.Driver

	*server
}

// server is one server process: what a crash takes away.
type server struct {
	*Plane
	gate    *gate
	store   *store.DB
	journal *journal.Journal
	images  *image.Store
	cancel  context.CancelFunc
	done    chan struct{}
}

func newRig(t testing.TB, set ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), fake: fake.New()}
	t.Cleanup(r.fake.Close)
	r.boot(set...)
	for name, files := range map[string][]string{testImage: {"bin/bash", "bin/sh"}, plainImage: {"bin/sh"}} {
		if _, err := r.images.Import(t.Context(), tarOf(files), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { r.shutdown() })
	return r
}

// tarOf makes a root filesystem that has programs of these names.
func tarOf(files []string) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		w.WriteHeader(&tar.Header{Name: f, Mode: 0o755, Size: 4, Typeflag: tar.TypeReg}) // to memory: cannot fail
		w.Write([]byte("#!\n\n"))
	}
	w.Close()
	return &b
}

// boot starts a server and waits until it has taken over.
func (r *rig) boot(set ...func(*Config)) {
	r.t.Helper()
	s := &server{gate: &gate{Driver: r.fake}, done: make(chan struct{})}
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	var err error
	s.store, err = store.Open(r.t.Context(), filepath.Join(r.dir, "sos.db"))
	must(err)
	s.journal, err = journal.Open(filepath.Join(r.dir, "journal"), journal.Options{})
	must(err)
	s.images, err = image.Open(image.Config{Dir: filepath.Join(r.dir, "images"), Users: func(d string) []string { return s.ImageUsers(d) }})
	must(err)
	cfg := Config{Driver: s.gate, Store: s.store, Journal: s.journal, Images: s.images, Log: testLog(r.t),
		Version: "test", Instance: "fakefake", StopGrace: 200 * time.Millisecond, WatchInterval: 20 * time.Millisecond, ReconcileInterval: 100 * time.Millisecond}
	for _, f := range set {
		f(&cfg)
	}
	s.Plane, err = New(cfg)
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go func() {
		defer close(s.done)
		if err := s.Run(ctx); err != nil && ctx.Err() == nil {
			r.t.Errorf("run: %v", err)
		}
	}()
	r.server = s
	select {
	case <-s.Ready():
	case <-time.After(20 * time.Second):
		r.t.Fatal("not ready")
	}
}

// shutdown ends the server as SIGTERM does.
func (r *rig) shutdown() {
	r.t.Helper()
	if r.server == nil {
		return
	}
	s := r.server
	r.server = nil
	s.cancel()
	<-s.done
	if err := errors.Join(s.store.Close(), s.journal.Close(), s.images.Close()); err != nil {
		r.t.Error(err)
	}
}

// crash ends the server as SIGKILL does: nothing of it reaches the host or the
// disk any more.
func (r *rig) crash() {
	r.t.Helper()
	s := r.server
	r.server = nil
	s.gate.cut.Store(true)
	s.halt()
	s.store.Close() // what was written is written
	s.journal.Close()
	s.cancel()
	<-s.done
	s.images.Close()
}

// gate is the way of one server to the host.
type gate struct {
	driver.Driver
	cut atomic.Bool
}

var errCut = errors.New("the server is dead")

func (g *gate) check() error {
	if g.cut.Load() {
		return errCut
	}
	return nil
}

func (g *gate) Start(ctx context.Context, id string, s driver.Spec) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Driver.Start(ctx, id, s)
}

func (g *gate) Stop(ctx context.Context, id string) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Driver.Stop(ctx, id)
}

func (g *gate) Remove(ctx context.Context, id string) error {
	if err := g.check(); err != nil {
		return err
	}
	return g.Driver.Remove(ctx, id)
}

func (g *gate) Dial(ctx context.Context, id string) (net.Conn, error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	return g.Driver.Dial(ctx, id)
}

func (g *gate) Freeze(ctx context.Context, id string) error {
	return g.Driver.(driver.Freezer).Freeze(ctx, id)
}

func (g *gate) Thaw(ctx context.Context, id string) error {
	return g.Driver.(driver.Freezer).Thaw(ctx, id)
}

func (g *gate) Stats(ctx context.Context, id string) (driver.Stats, error) {
	return g.Driver.(driver.Statser).Stats(ctx, id)
}

// testLog shows the log of a failed test when asked for.
func testLog(t testing.TB) *slog.Logger {
	if os.Getenv("SOS_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// create and its kind fail the test on an error.
func (r *rig) create(spec sos.SandboxSpec) string {
	r.t.Helper()
	if spec.Image == "" {
		spec.Image = testImage
	}
	s, err := r.CreateSandbox(r.t.Context(), spec)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.ID
}

func (r *rig) start(id string) {
	r.t.Helper()
	if _, err := r.StartSandbox(r.t.Context(), id); err != nil {
		r.t.Fatalf("start %s: %v", id, err)
	}
}

func (r *rig) started(spec sos.SandboxSpec) string {
	r.t.Helper()
	id := r.create(spec)
	r.start(id)
	return id
}

func (r *rig) exec(id, command string) sos.ExecResult {
	r.t.Helper()
	return r.execReq(id, sos.ExecRequest{Command: command})
}

func (r *rig) execReq(id string, q sos.ExecRequest) sos.ExecResult {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	res, err := r.Exec(ctx, id, q)
	if err != nil {
		r.t.Fatalf("exec %q: %v", q.Command, err)
	}
	return res
}

func (r *rig) look(id string) sos.Sandbox {
	r.t.Helper()
	s, err := r.GetSandbox(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func wantCode(t *testing.T, err error, code sos.Code) {
	t.Helper()
	if sos.ErrorCode(err) != code {
		t.Errorf("got error %q (%s), want %q", err, sos.ErrorCode(err), code)
	}
}
