package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// Stop ends the sandbox and brings its files to disk.
func (d *Driver) Stop(ctx context.Context, id string) error {
	if !d.known(id) {
		return ctx.Err()
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("stop %s: %w", id, err)
	}
	defer unlock()
	if err := d.endRun(ctx, id); err != nil {
		return fmt.Errorf("stop %s: %w", id, err)
	}
	if err := d.seal(ctx, id); err != nil {
		return fmt.Errorf("stop %s: %w", id, err)
	}
	return nil
}

// seal syncs the files of a run that has ended and marks them clean. A mark that
// is gone says that it was done.
func (d *Driver) seal(ctx context.Context, id string) error {
	if d.dirs.sealed(id) {
		return nil
	}
	if err := d.sync.do(ctx); err != nil {
		return fmt.Errorf("sync the files: %w", err)
	}
	return d.dirs.removeMark(id)
}

// Kill ends the sandbox; its files are neither synced nor deleted.
func (d *Driver) Kill(ctx context.Context, id string) error {
	if !d.known(id) {
		return ctx.Err()
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("kill %s: %w", id, err)
	}
	defer unlock()
	if err := d.dropRun(ctx, id); err != nil {
		return fmt.Errorf("kill %s: %w", id, err)
	}
	return nil
}

// Remove ends the sandbox and deletes its files in the background.
func (d *Driver) Remove(ctx context.Context, id string) error {
	if !d.known(id) {
		return ctx.Err()
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	defer unlock()
	if err := d.dropRun(ctx, id); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	if err := d.removeState(id); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	return nil
}

// known says whether there is anything of id on this host.
func (d *Driver) known(id string) bool {
	return isID(id) && (exists(d.dirs.state(id)) || exists(d.dirs.runOf(id)))
}

// endRun ends what runs of id and gives its run directory back; how it ended is
// kept with its files.
func (d *Driver) endRun(ctx context.Context, id string) error {
	return d.clearRun(ctx, id, func(c *spawn.Client) error {
		e, err := c.End(ctx, id)
		if err != nil {
			return err
		}
		if e != nil {
			if err := d.saveExit(id, exitOf(*e)); err != nil {
				return err
			}
		}
		return c.Forget(ctx, id)
	})
}

// dropRun is endRun where nobody will ask how it ended.
func (d *Driver) dropRun(ctx context.Context, id string) error {
	return d.clearRun(ctx, id, func(c *spawn.Client) error { return c.Remove(ctx, id) })
}

// clearRun calls the spawner if there is a run, and sees to it that none is left.
func (d *Driver) clearRun(ctx context.Context, id string, end func(*spawn.Client) error) error {
	if !exists(d.dirs.runOf(id)) {
		return nil
	}
	if d.spawn == nil {
		return d.unavailable()
	}
	if err := d.spawn.call(ctx, end); err != nil || !exists(d.dirs.runOf(id)) {
		return err
	}
	// The spawner never heard of it: a start was cut off before there was a guest.
	return eraseTree(d.dirs.runOf(id))
}

func notFound(err error) bool {
	e, ok := errors.AsType[*spawn.Error](err)
	return ok && e.Code == spawn.CodeNotFound
}

func exitOf(e spawn.Exit) driver.Exit {
	return driver.Exit{Known: e.Known, Code: e.Status, Signal: e.Signal, OOM: e.OOM, Message: e.Log, Stopped: e.Killed}
}

// waitRetry is the pause before a wait goes on with another spawner.
const waitRetry = 50 * time.Millisecond

// Wait asks the spawner while it knows the run, else the record of the last end.
// It outlives any number of spawners.
func (d *Driver) Wait(ctx context.Context, id string) (driver.Exit, error) {
	for {
		if err := ctx.Err(); err != nil {
			return driver.Exit{}, fmt.Errorf("wait for %s: %w", id, err)
		}
		if !d.known(id) {
			return driver.Exit{}, nil
		}
		if d.spawn == nil || !exists(d.dirs.runOf(id)) {
			return d.savedExit(id), nil
		}
		var e spawn.Exit
		err := d.spawn.call(ctx, func(c *spawn.Client) (err error) {
			e, err = c.Wait(ctx, id)
			return err
		})
		switch {
		case err == nil:
			return exitOf(e), nil
		case notFound(err):
			return d.savedExit(id), nil
		case !errors.Is(err, spawn.ErrDisconnected):
			return driver.Exit{}, fmt.Errorf("wait for %s: %w", id, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(waitRetry):
		}
	}
}
