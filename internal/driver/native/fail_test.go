package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/drivertest"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// nothing checks that no start left anything: no sandbox, process, cgroup, run
// directory, claim of ids, nor files once the trash is empty.
func nothing(t *testing.T, d *Driver) {
	t.Helper()
	l, err := d.List(t.Context())
	if err != nil || len(l) != 0 {
		t.Errorf("list gives %v, %v", l, err)
	}
	if g, err := d.groups.List(); err != nil || len(g) != 0 {
		t.Errorf("cgroups %v are left, %v", g, err)
	}
	if r, err := idsIn(d.dirs.run); err != nil || len(r) != 0 {
		t.Errorf("run directories %v are left, %v", r, err)
	}
	for _, what := range traces(d.cfg) {
		if strings.HasPrefix(what, "mount") || strings.HasPrefix(what, "claim") {
			t.Errorf("left behind: %s", what)
		}
	}
	for _, p := range processesOf(d.cfg) {
		if !strings.Contains(p, "sos-spawner") {
			t.Errorf("left behind: %s", p)
		}
	}
	eventually(t, "the files are gone", func() bool {
		s, _ := os.ReadDir(d.dirs.sandboxes())
		tr, _ := os.ReadDir(d.dirs.trash())
		return len(s) == 0 && len(tr) == 0
	})
}

// Starts that fail, each at another step.
func TestFailedStartsLeaveNothing(t *testing.T) {
	with := func(change func(s *driver.Spec)) driver.Spec {
		s := spec()
		change(&s)
		return s
	}
	setUp(t)
	garbage := filepath.Join(shared.dir, "garbage")
	if err := os.WriteFile(garbage, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	aFile := filepath.Join(shared.dir, "file")
	if err := os.WriteFile(aFile, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		guest string
		spec  driver.Spec
		code  sos.Code
	}{
		{"NoLayers", "", with(func(s *driver.Spec) { s.Image.Layers = nil }), sos.CodeImageFailed},
		{"MissingLayer", "", with(func(s *driver.Spec) { s.Image.Layers = []string{"/nowhere"} }), sos.CodeImageFailed},
		{"LayerIsAFile", "", with(func(s *driver.Spec) { s.Image.Layers = []string{aFile} }), sos.CodeImageFailed},
		{"TooManyLayers", "", with(func(s *driver.Spec) {
			for range 200 {
				s.Image.Layers = append(s.Image.Layers, shared.layer)
			}
		}), sos.CodeImageFailed},
		{"LayersOverlap", "", with(func(s *driver.Spec) { s.Image.Layers = append(s.Image.Layers, "/proc") }), sos.CodeStartFailed},
		{"HostnameTooLong", "", with(func(s *driver.Spec) { s.Hostname = strings.Repeat("h", 100) }), sos.CodeStartFailed},
		{"GuestIsNoProgram", garbage, spec(), sos.CodeStartFailed},
		{"LimitRefused", "", with(func(s *driver.Spec) { s.Limits.PIDs = -1 }), sos.CodeStartFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := newConfig(t)
			if c.guest != "" {
				cfg.GuestPath = c.guest
			}
			d := open(t, cfg)
			err := d.Start(t.Context(), newID(), c.spec)
			if sos.ErrorCode(err) != c.code {
				t.Errorf("start gives %v (%s); want code %s", err, sos.ErrorCode(err), c.code)
			}
			if m := sos.ErrorMessage(err); strings.Contains(m, cfg.DataDir) {
				t.Errorf("the message gives a path of the host away: %s", m)
			}
			nothing(t, d)
		})
	}
}

// A start whose caller goes away at any moment either worked or left nothing.
func TestCancelledStarts(t *testing.T) {
	d := open(t, newConfig(t))
	for i := range testutil.Scale(30) {
		id := newID()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		err := d.Start(ctx, id, spec())
		cancel()
		if err == nil {
			if err := d.Remove(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %d ms: %v", i, err)
		}
	}
	nothing(t, d)
}

func TestManyAtOnce(t *testing.T) {
	d := open(t, newConfig(t))
	var wg sync.WaitGroup
	for range testutil.Scale(30) {
		wg.Go(func() {
			id := newID()
			for _, err := range []error{
				d.Start(t.Context(), id, spec()), d.Stop(t.Context(), id),
				d.Start(t.Context(), id, spec()), d.Remove(t.Context(), id),
			} {
				if err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	nothing(t, d)
}

func TestDown(t *testing.T) {
	cfg := newConfig(t)
	d := open(t, cfg)
	id := newID()
	start(t, d, id)
	drivertest.Connect(t, d, id).Must(t, "echo kept > /kept")
	lock, err := lockData(cfg.DataDir) // as a server holds it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Down(t.Context(), cfg); sos.ErrorCode(err) != sos.CodeConflict {
		t.Errorf("down beside a server gives %v", err)
	}
	if !d.runs(id) {
		t.Fatal("down beside a server ended a sandbox")
	}
	lock()
	d.Close()
	if e := down(t, cfg); len(e.Sandboxes) != 1 || e.Kept != 1 || !e.Spawner {
		t.Errorf("down did %+v", e)
	}
	noTrace(t, cfg)
	if e := down(t, cfg); len(e.Sandboxes) != 0 || e.Kept != 1 || e.Spawner {
		t.Errorf("a second down did %+v", e)
	}
	d = open(t, cfg)
	if e, err := d.Wait(t.Context(), id); err != nil || !e.Known || !e.Stopped {
		t.Errorf("the end is %+v, %v", e, err)
	}
	start(t, d, id)
	if out := drivertest.Connect(t, d, id).Must(t, "cat /kept"); out != "kept\n" {
		t.Errorf("the file holds %q", out)
	}
}

// Stop leaves a clean overlay; a removed sandbox's files and id range are free.
func TestStopSealsAndRemoveFrees(t *testing.T) {
	d := open(t, newConfig(t))
	id := newID()
	start(t, d, id)
	if d.dirs.sealed(id) {
		t.Fatal("a running sandbox's overlay is not volatile: every stop would sync twice")
	}
	if err := d.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if !d.dirs.sealed(id) {
		t.Error("the mark of a volatile overlay is left after stop")
	}
	rec, err := readRecord(d.dirs.record(id))
	if err != nil {
		t.Fatal(err)
	}
	claim := d.ids.path(rangeOf(rec.IDBase))
	if !exists(claim) {
		t.Error("a stopped sandbox's range is not claimed")
	}
	if err := d.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if exists(claim) {
		t.Error("a removed sandbox's range is claimed")
	}
	nothing(t, d)
}

// A host that lacks something: Open succeeds, Info says what, and Start says the
// same.
func TestUnhealthyHosts(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, cfg *Config){
		"NoGuest":    func(t *testing.T, cfg *Config) { cfg.GuestPath = "/nowhere" },
		"NoSpawner":  func(t *testing.T, cfg *Config) { cfg.SpawnerPath = "/nowhere" },
		"BadSpawner": func(t *testing.T, cfg *Config) { cfg.SpawnerPath = "/bin/false" },
		"LongRunDir": func(t *testing.T, cfg *Config) { cfg.RunDir = filepath.Join(cfg.RunDir, strings.Repeat("r", 100)) },
		"DataOnOverlay": func(t *testing.T, cfg *Config) {
			dir := t.TempDir()
			for _, d := range []string{"l", "u", "w", "m"} {
				if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cfg.DataDir = filepath.Join(dir, "m")
			opts := "lowerdir=" + dir + "/l,upperdir=" + dir + "/u,workdir=" + dir + "/w"
			if err := unix.Mount("overlay", cfg.DataDir, "overlay", 0, opts); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(cfg.DataDir, 0); err != nil {
					t.Errorf("the driver left something open: %v", err)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newConfig(t)
			change(t, &cfg)
			d, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			defer d.Close()
			i := d.Info(t.Context())
			if i.Healthy() {
				t.Fatal("healthy")
			}
			var words []string
			for _, c := range i.Checks {
				if !c.OK {
					words = append(words, c.Message)
					if c.Message == "" || c.Fix == "" {
						t.Errorf("check %s fails without a word or a fix: %+v", c.Name, c)
					}
				}
			}
			err = d.Start(t.Context(), newID(), spec())
			if sos.ErrorCode(err) != sos.CodeUnavailable || sos.ErrorMessage(err) != words[0] {
				t.Errorf("start gives %v; want %q", err, words[0])
			}
			if l, err := d.List(t.Context()); err != nil || len(l) != 0 {
				t.Errorf("list gives %v, %v", l, err)
			}
			for _, err := range []error{d.Stop(t.Context(), newID()), d.Remove(t.Context(), newID())} {
				if err != nil {
					t.Errorf("an unknown sandbox: %v", err)
				}
			}
		})
	}
}
