package native

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/drivertest"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// shared is what all tests use: programs built from this tree and an unpacked
// image.
var shared struct {
	once           sync.Once
	err            error
	dir            string
	guest, spawner string
	layer          string
}

func TestMain(m *testing.M) {
	if c := os.Getenv(serverEnv); c != "" {
		os.Exit(serve(c))
	}
	if exe, err := os.Executable(); err == nil {
		if mode, ok := strings.CutPrefix(filepath.Base(exe), "fake-"); ok {
			os.Exit(fakeSpawner(mode))
		}
	}
	code := m.Run()
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func setUp(t testing.TB) {
	t.Helper()
	image := testutil.Image(t)
	shared.once.Do(func() { shared.err = makeShared(image) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
}

func makeShared(image string) (err error) {
	if shared.dir, err = os.MkdirTemp("", "native-test-"); err != nil {
		return err
	}
	build := func(name string) (string, error) {
		path := filepath.Join(shared.dir, name)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/seaofsimulation/sos/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		return path, nil
	}
	if shared.guest, err = build("sos-guest"); err != nil {
		return err
	}
	if shared.spawner, err = build("sos-spawner"); err != nil {
		return err
	}
	shared.layer = filepath.Join(shared.dir, "layer")
	if err := os.Mkdir(shared.layer, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("tar", "-xpf", image, "--numeric-owner", "-C", shared.layer).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack the image: %w\n%s", err, out)
	}
	return nil
}

// newConfig is an instance of its own, of which nothing is left after the test.
func newConfig(t testing.TB) Config {
	t.Helper()
	setUp(t)
	run, err := os.MkdirTemp("", "run-")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		DataDir: filepath.Join(t.TempDir(), "data"), RunDir: run,
		Instance: sos.NewID("", nil)[:8], GuestPath: shared.guest, SpawnerPath: shared.spawner,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := os.Mkdir(cfg.DataDir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		down(t, cfg)
		noTrace(t, cfg)
	})
	return cfg
}

func down(t testing.TB, cfg Config) Ended {
	t.Helper()
	ctx, cancel := contextFor(t)
	defer cancel()
	e, err := Down(ctx, cfg)
	if err != nil {
		t.Errorf("down: %v", err)
	}
	return e
}

// open opens a driver that is closed after the test.
func open(t testing.TB, cfg Config) *Driver {
	t.Helper()
	d, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.unavailable(); err != nil {
		t.Fatalf("this host: %v", err)
	}
	return d
}

func spec() driver.Spec {
	return driver.Spec{
		Image:    driver.Image{Digest: "sha256:test", Layers: []string{shared.layer}},
		Hostname: "box", Limits: sos.DefaultLimits,
	}
}

func newID() string { return sos.NewID(sos.SandboxIDPrefix, nil) }

func start(t testing.TB, d *Driver, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := d.Start(t.Context(), id, spec()); err != nil {
			t.Fatalf("start %s: %v", id, err)
		}
	}
}

// guestPid is the guest of a sandbox on the host.
func guestPid(t testing.TB, d *Driver, id string) int {
	t.Helper()
	fd, rec, err := guestOf(d.dirs.runOf(id), d.boot)
	if err != nil || fd < 0 {
		t.Fatalf("no guest of %s: %v", id, err)
	}
	unix.Close(fd)
	return rec.Pid
}

func killGuest(t testing.TB, d driver.Driver, id string) {
	t.Helper()
	if err := unix.Kill(guestPid(t, d.(*Driver), id), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// spawnerPid asks the spawner.
func spawnerPid(t testing.TB, d *Driver) int {
	t.Helper()
	var h spawn.Hello
	err := d.spawn.call(t.Context(), func(c *spawn.Client) (err error) { h, err = c.Hello(t.Context()); return err })
	if err != nil {
		t.Fatal(err)
	}
	return h.Pid
}

func TestDriver(t *testing.T) {
	setUp(t)
	broken := spec()
	broken.Image.Layers = []string{filepath.Join(shared.dir, "missing")}
	var cfgs sync.Map // of each driver
	drivertest.Run(t, func(t *testing.T) driver.Driver {
		cfg := newConfig(t)
		d := open(t, cfg)
		cfgs.Store(d, cfg)
		return d
	}, drivertest.Env{
		Spec: spec(), Broken: &broken, KillGuest: killGuest,
		Reopen: func(t testing.TB, d driver.Driver) driver.Driver {
			cfg, _ := cfgs.Load(d)
			if err := d.(*Driver).Close(); err != nil {
				t.Error(err)
			}
			return open(t, cfg.(Config))
		},
	})
}
