package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/config"
	"github.com/seaofsimulation/sos/internal/control"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/native"
	"github.com/seaofsimulation/sos/internal/image"
	"github.com/seaofsimulation/sos/internal/journal"
	"github.com/seaofsimulation/sos/internal/store"
)

// parts is what belongs to one data directory, opened for this process alone.
type parts struct {
	cfg      config.Config
	log      *slog.Logger
	instance string
	runDir   string
	store    *store.DB
	journal  *journal.Journal
	images   control.Images
	driver   driver.Driver
	native   *native.Driver
	plane    *control.Plane // openPlane makes it

	undo []func() error
}

func (p *parts) onClose(f func() error) { p.undo = append(p.undo, f) }

// Close gives back what was opened, last first. It can be called again.
func (p *parts) Close() error {
	var errs []error
	for _, f := range slices.Backward(p.undo) {
		errs = append(errs, f())
	}
	p.undo = nil
	return errors.Join(errs...)
}

// open takes the data directory and opens what is in it; the caller closes p
// also after an error.
func (p *parts) open(ctx context.Context, cfg config.Config) (err error) {
	p.cfg = cfg
	if p.log, err = newLog(cfg); err != nil {
		return err
	}
	if p.cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return err
	}
	lock, err := lockDataDir(p.cfg.DataDir)
	if err != nil {
		return err
	}
	p.onClose(lock.Close)
	if p.instance, err = instance(p.cfg.DataDir); err != nil {
		return err
	}
	p.runDir = filepath.Join(cfg.RunDir, p.instance)
	if err := makeRunDir(cfg.RunDir, p.runDir); err != nil {
		return err
	}
	if p.store, err = store.Open(ctx, filepath.Join(p.cfg.DataDir, "sos.db")); err != nil {
		return dataDirError(p.cfg.DataDir, err)
	}
	p.onClose(p.store.Close)
	if p.journal, err = journal.Open(filepath.Join(p.cfg.DataDir, "journal"), journal.Options{}); err != nil {
		return dataDirError(p.cfg.DataDir, err)
	}
	p.onClose(p.journal.Close)
	p.native, err = native.Open(ctx, native.Config{DataDir: p.cfg.DataDir, RunDir: p.runDir, Instance: p.instance, Log: p.log})
	if err != nil {
		return fmt.Errorf("open the native driver: %w", err)
	}
	p.onClose(p.native.Close)
	p.driver = p.native
	return p.openImages()
}

// openImages: a filesystem that cannot hold layers makes the server unhealthy
// instead of ending it, so that what it has can still be seen.
func (p *parts) openImages() error {
	// Only the plane removes images, so it is there when the store asks it.
	users := func(digest string) []string { return p.plane.ImageUsers(digest) }
	images, err := image.Open(image.Config{Dir: filepath.Join(p.cfg.DataDir, "images"), Users: users, Log: p.log})
	if err == nil {
		p.images = images
		p.onClose(images.Close) // aborts pulls
		return nil
	}
	cause, ok := errors.AsType[*sos.Error](err)
	if !ok {
		return dataDirError(p.cfg.DataDir, err)
	}
	p.images = noImages{cause}
	p.driver = sickDriver{p.native, sos.Check{Name: "images", Message: cause.Message, Fix: cause.Fix}}
	return nil
}

func (p *parts) openPlane() (err error) {
	c := p.cfg
	p.plane, err = control.New(control.Config{
		Driver: p.driver, Store: p.store, Journal: p.journal, Images: p.images, Log: p.log,
		Version: c.Version, Commit: c.Commit, Instance: p.instance,
		MaxSandboxes: c.MaxSandboxes,
		Timeout:      time.Duration(c.Timeout), ExecTimeout: time.Duration(c.ExecTimeout),
		StartTimeout: time.Duration(c.StartTimeout), StopGrace: time.Duration(c.StopGrace),
		MemAvailable: memAvailable, DiskFree: diskFree(c.DataDir),
	})
	return err
}

// makeRunDir makes the directory of sockets: others may pass through, not look.
func makeRunDir(base, dir string) error {
	for _, d := range []string{base, dir} {
		err := os.Mkdir(d, 0o711)
		if errors.Is(err, os.ErrNotExist) {
			err = os.MkdirAll(d, 0o711)
		}
		if err == nil {
			err = os.Chmod(d, 0o711) // whatever the umask
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return &sos.Error{Code: sos.CodeUnavailable, Message: "run directory " + d + " cannot be made", Cause: err,
				Fix: "name a directory on a local filesystem, best a tmpfs, with --run-dir"}
		}
	}
	return nil
}
