package native

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// recoverAtOnce is how many sandboxes recovery works on at a time.
const recoverAtOnce = 16

// recover brings run directories, cgroups and state directories of this instance
// into agreement after the former server ended, however it did. The spawner has
// adopted what lives; the rest is cleared away here:
//
//   - a run that ended meanwhile: how is kept with its files;
//   - a run whose files are gone, which a removal left half-way: it is ended;
//   - a state directory without files, which a start left half-way: it goes;
//   - cgroups that nobody owns: what is in them is killed;
//   - claims of id ranges that no files need.
//
// Nothing of another instance is looked at.
func (d *Driver) recover(ctx context.Context) error {
	runs, err := idsIn(d.dirs.run)
	if err != nil {
		return err
	}
	states, err := idsIn(d.dirs.sandboxes())
	if err != nil {
		return err
	}
	groups, err := d.groups.List()
	if err != nil {
		return err
	}
	ids := slices.Concat(runs, states, groups)
	slices.Sort(ids)
	var g errgroup.Group
	g.SetLimit(recoverAtOnce)
	for _, id := range slices.Compact(ids) {
		if !isID(id) {
			d.log.Warn("a cgroup of this instance with a strange name is left alone", "op", "recover", "cgroup", id)
			continue
		}
		g.Go(func() error {
			if err := d.recoverOne(ctx, id); err != nil {
				return fmt.Errorf("recover %s: %w", id, err)
			}
			return nil
		})
	}
	return errors.Join(g.Wait(), d.ids.sweep())
}

func (d *Driver) recoverOne(ctx context.Context, id string) error {
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	data := exists(d.dirs.upper(id))
	if data {
		if err := d.keepRange(id); err != nil {
			d.log.Error("a sandbox cannot be started", "sandbox", id, "op", "recover", "err", err)
		}
	}
	if d.runs(id) && data {
		d.log.Debug("sandbox adopted", "sandbox", id, "op", "recover")
		return nil
	}
	// endRun waits for a create that is under way.
	if err := errors.Join(d.endRun(ctx, id), d.dropGroup(ctx, id)); err != nil {
		return err
	}
	if !data && exists(d.dirs.state(id)) {
		return d.removeState(id)
	}
	return nil
}

// keepRange claims the id range of files that are there.
func (d *Driver) keepRange(id string) error {
	rec, err := d.recordOf(id)
	if err != nil {
		return err
	}
	return d.ids.reclaim(id, rec.IDBase)
}

// dropGroup ends what is in a cgroup without a run, and removes it.
func (d *Driver) dropGroup(ctx context.Context, id string) error {
	err := d.spawn.call(ctx, func(c *spawn.Client) error { return c.Kill(ctx, id) })
	if err != nil {
		return err
	}
	g := d.groups.Open(id)
	return errors.Join(g.Kill(ctx), g.Remove(ctx))
}
