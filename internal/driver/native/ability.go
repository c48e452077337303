package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/seaofsimulation/sos/internal/driver"
)

// Freeze stops the user's processes; the guest has a cgroup of its own and goes on.
func (d *Driver) Freeze(ctx context.Context, id string) error {
	return d.withRunning(ctx, "freeze", id, func() error { return d.groups.Open(id).Freeze(ctx) })
}

// Thaw lets them go on.
func (d *Driver) Thaw(ctx context.Context, id string) error {
	return d.withRunning(ctx, "thaw", id, func() error { return d.groups.Open(id).Thaw(ctx) })
}

func (d *Driver) withRunning(ctx context.Context, op, id string, f func() error) error {
	if err := d.unavailable(); err != nil {
		return err
	}
	if !isID(id) {
		return notStarted(id)
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, id, err)
	}
	defer unlock()
	if !d.runs(id) {
		return notStarted(id)
	}
	if err := f(); err != nil {
		return fmt.Errorf("%s %s: %w", op, id, err)
	}
	return nil
}

// Stats reads the cgroups and counts the upper directory. It waits for nothing.
func (d *Driver) Stats(ctx context.Context, id string) (driver.Stats, error) {
	if err := errors.Join(d.unavailable(), ctx.Err()); err != nil {
		return driver.Stats{}, err
	}
	if !isID(id) {
		return driver.Stats{}, notStarted(id)
	}
	guest := d.guestPid(id)
	if guest == 0 {
		return driver.Stats{}, notStarted(id)
	}
	c, err := d.groups.Open(id).Stats()
	if errors.Is(err, fs.ErrNotExist) {
		return driver.Stats{}, notStarted(id)
	}
	if err != nil {
		return driver.Stats{}, fmt.Errorf("stats of %s: %w", id, err)
	}
	s := driver.Stats{CPU: c.CPU, Memory: c.Memory, PeakMem: c.Peak, PIDs: c.PIDs, OOMKills: c.OOMKills}
	if s.DiskBytes, err = d.diskUsageOf(ctx, id, guest); err != nil {
		d.log.Warn("disk usage is unknown", "sandbox", id, "err", err)
		s.DiskBytes = -1
	}
	return s, nil
}
