package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// Ended is what Down did.
type Ended struct {
	Sandboxes []string // that ran
	Spawner   bool     // it ran
	Kept      int      // sandboxes whose files are there
}

func (e Ended) String() string {
	var s []string
	s = append(s, fmt.Sprintf("ended %d sandboxes", len(e.Sandboxes)))
	if e.Spawner {
		s = append(s, "ended the spawner")
	}
	return strings.Join(append(s, fmt.Sprintf("kept the files of %d sandboxes", e.Kept)), ", ")
}

// Down ends everything of a data directory without a server: guests, spawner,
// cgroups and run directory. Files are kept and synced. It needs nothing to be in
// order, and doing it again does the rest. An empty cfg.Instance is read from the
// data directory. CodeConflict when a server has the data directory locked;
// the lock is taken here, so the caller must not hold it.
func Down(ctx context.Context, cfg Config) (Ended, error) {
	var e Ended
	unlock, err := lockData(cfg.DataDir)
	if err != nil {
		return e, err
	}
	defer unlock()
	if cfg.Instance == "" {
		b, err := os.ReadFile(filepath.Join(cfg.DataDir, "instance"))
		if errors.Is(err, fs.ErrNotExist) {
			return e, nil // nothing was ever started from here
		}
		if err != nil {
			return e, fmt.Errorf("down: %w", err)
		}
		cfg.Instance = strings.TrimSpace(string(b))
	}
	if cfg, err = cfg.withDefaults(); err != nil {
		return e, err
	}
	d := &Driver{cfg: cfg, log: cfg.Log, dirs: layout{data: cfg.DataDir, run: cfg.RunDir}}
	d.ids = idTable{dir: cfg.IDsDir, owner: d.dirs.sandboxes()}
	if d.boot, err = bootID(); err != nil {
		return e, fmt.Errorf("down: %w", err)
	}
	err = d.down(ctx, &e)
	return e, err
}

func (d *Driver) down(ctx context.Context, e *Ended) error {
	s := &supervisor{dirs: d.dirs, log: d.log, instance: d.cfg.Instance}
	if pidfd, err := s.peer(ctx); err == nil {
		defer unix.Close(pidfd)
		if err := killEnd(ctx, pidfd); err != nil {
			return fmt.Errorf("down: end the spawner: %w", err)
		}
		e.Spawner = true
	}
	runs, err := idsIn(d.dirs.run)
	if err != nil {
		return fmt.Errorf("down: %w", err)
	}
	for _, id := range runs {
		ran, err := d.killRun(ctx, id)
		if err != nil {
			return fmt.Errorf("down: end %s: %w", id, err)
		}
		if ran {
			e.Sandboxes = append(e.Sandboxes, id)
		}
	}
	if err := dropTree(ctx, d.cfg.Instance); err != nil {
		return fmt.Errorf("down: cgroups: %w", err)
	}
	if exists(d.dirs.run) {
		if err := eraseTree(d.dirs.run); err != nil {
			return fmt.Errorf("down: run directory: %w", err)
		}
	}
	e.Kept, err = d.sealAll()
	return err
}

// killRun ends a guest without a spawner, and keeps how it ended. Its processes
// end with it: it is the first of their pid namespace.
func (d *Driver) killRun(ctx context.Context, id string) (ran bool, err error) {
	pidfd, _, err := guestOf(d.dirs.runOf(id), d.boot)
	if err != nil {
		d.log.Warn("run directory with an unreadable record", "sandbox", id, "err", err)
	}
	if pidfd < 0 {
		var x spawn.Exit
		if readJSON(filepath.Join(d.dirs.runOf(id), spawn.ExitFile), &x) == nil {
			return false, d.saveExit(id, exitOf(x))
		}
		return false, nil
	}
	defer unix.Close(pidfd)
	if err := killEnd(ctx, pidfd); err != nil {
		return true, err
	}
	return true, d.saveExit(id, driver.Exit{Known: true, Signal: int(unix.SIGKILL), Stopped: true})
}

// dropTree kills what is left in the instance's cgroups and removes them.
func dropTree(ctx context.Context, instance string) error {
	h, err := cgroup.Detect()
	if err != nil {
		return nil // where there are none, nothing was started
	}
	tree, err := h.Tree(groupName(instance))
	if err != nil {
		return err
	}
	ids, err := tree.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		g := tree.Open(id)
		if err := errors.Join(g.Kill(ctx), g.Remove(ctx)); err != nil {
			return err
		}
	}
	return tree.Remove()
}

// sealAll brings all files to disk and gives back the claims of their id ranges,
// which nothing that lives needs any more.
func (d *Driver) sealAll() (kept int, err error) {
	ids, err := idsIn(d.dirs.sandboxes())
	if err != nil || len(ids) == 0 {
		return 0, errors.Join(err, d.ids.sweep())
	}
	if err := syncFilesystem(d.dirs.sandboxes()); err != nil {
		return 0, fmt.Errorf("down: sync the files: %w", err)
	}
	var errs []error
	for _, id := range ids {
		if exists(d.dirs.upper(id)) {
			kept++
		}
		errs = append(errs, d.dirs.removeMark(id))
		if rec, err := d.recordOf(id); err == nil {
			errs = append(errs, d.ids.release(id, rec.IDBase))
		}
	}
	return kept, errors.Join(errors.Join(errs...), d.ids.sweep())
}

// lockData takes the lock of a data directory, or says that a server has it.
func lockData(dir string) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid := make([]byte, 16)
		n, _ := f.Read(pid)
		f.Close()
		return nil, &sos.Error{Code: sos.CodeConflict, Cause: err,
			Message: fmt.Sprintf("a server is using %s (pid %s)", dir, strings.TrimSpace(string(pid[:n]))),
			Fix:     "stop the server first; SIGINT also stops its sandboxes"}
	}
	return func() { f.Close() }, nil
}
