package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// Start makes the writable layer unless there is one, and asks the spawner for
// the sandbox.
func (d *Driver) Start(ctx context.Context, id string, s driver.Spec) error {
	if !isID(id) {
		return sos.Errorf(sos.CodeInvalid, "%q is not the id of a sandbox", id)
	}
	if err := d.unavailable(); err != nil {
		return err
	}
	unlock, err := d.locks.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("start %s: %w", id, err)
	}
	defer unlock()
	if d.runs(id) {
		return nil
	}
	if err := checkImage(s.Image); err != nil {
		return err
	}
	var u undo
	defer u.run()
	// A guest that died keeps its run directory, with its last words, until now.
	if err := d.endRun(ctx, id); err != nil {
		return fmt.Errorf("start %s: %w", id, err)
	}
	base, err := d.prepareState(id, s.Image, &u)
	if err != nil {
		return startError(id, err)
	}
	if err := d.create(ctx, id, s, base, &u); err != nil {
		return startError(id, err)
	}
	u.keep()
	if err := os.Remove(d.dirs.exit(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("record of the former end stays", "sandbox", id, "err", err)
	}
	return nil
}

// checkImage looks at what an overlay would only call "invalid argument".
func checkImage(i driver.Image) error {
	bad := func(format string, args ...any) error {
		return &sos.Error{Code: sos.CodeImageFailed, Message: fmt.Sprintf(format, args...),
			Fix: "remove the image and pull or import it again"}
	}
	if len(i.Layers) == 0 {
		return bad("image %s has no layers", i.Digest)
	}
	if len(i.Layers) > spawn.MaxLayers {
		return &sos.Error{Code: sos.CodeImageFailed, Message: fmt.Sprintf("image %s has %d layers; %d can be stacked", i.Digest, len(i.Layers), spawn.MaxLayers),
			Fix: "build the image with fewer layers"}
	}
	for n, l := range i.Layers {
		if st, err := os.Stat(l); err != nil || !st.IsDir() {
			return bad("the files of layer %d of image %s are missing", n+1, i.Digest)
		}
	}
	return nil
}

// prepareState makes or reopens the state directory and gives the sandbox's range
// of ids. What it makes is taken back by u.
func (d *Driver) prepareState(id string, image driver.Image, u *undo) (uint32, error) {
	if exists(d.dirs.upper(id)) {
		return d.reopenState(id)
	}
	u.push(func() { d.dropState(id) })
	if err := os.Mkdir(d.dirs.state(id), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, err
	}
	base, err := d.ids.allocate(id)
	if err != nil {
		return 0, err
	}
	rec := record{Version: recordVersion, IDBase: base, Image: image.Digest, BootID: d.boot}
	// In place: as long as there is no upper directory nobody reads it.
	b, err := json.Marshal(rec)
	if err == nil {
		err = os.WriteFile(d.dirs.record(id), b, 0o600)
	}
	if err != nil {
		return 0, err
	}
	return base, d.makeUpper(id, base, image)
}

// makeUpper makes the directory that becomes the sandbox's root: owned by the
// sandbox's root, with the mode of the image's.
func (d *Driver) makeUpper(id string, base uint32, image driver.Image) error {
	st, err := os.Stat(image.Layers[len(image.Layers)-1])
	if err != nil {
		return err
	}
	// Under another name until it is as it should be: that there is an upper
	// directory means that there is a sandbox.
	tmp := d.dirs.upper(id) + ".new"
	if err := os.Mkdir(tmp, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := errors.Join(os.Chown(tmp, int(base), int(base)), os.Chmod(tmp, st.Mode().Perm())); err != nil {
		return err
	}
	return os.Rename(tmp, d.dirs.upper(id))
}

// reopenState takes over the files of an earlier run.
func (d *Driver) reopenState(id string) (uint32, error) {
	rec, err := d.recordOf(id)
	if err != nil {
		return 0, fmt.Errorf("the record of its files: %w", err)
	}
	if err := d.ids.reclaim(id, rec.IDBase); err != nil {
		return 0, err
	}
	if d.dirs.sealed(id) {
		return rec.IDBase, d.noteBoot(id, rec)
	}
	if rec.BootID != d.boot {
		d.log.Warn("the host went down while the sandbox ran: what it wrote last may be missing", "sandbox", id, "op", "start")
	}
	return rec.IDBase, errors.Join(d.dirs.removeMark(id), d.noteBoot(id, rec))
}

func (d *Driver) noteBoot(id string, rec record) error {
	if rec.BootID == d.boot {
		return nil
	}
	rec.BootID = d.boot
	return writeJSON(d.dirs.record(id), rec)
}

// dropState deletes the state directory and gives its id range back.
func (d *Driver) dropState(id string) {
	if err := d.removeState(id); err != nil {
		d.log.Error("state directory could not be removed", "sandbox", id, "err", err)
	}
}

func (d *Driver) removeState(id string) error {
	rec, recErr := d.recordOf(id)
	if err := d.trash.put(d.dirs.state(id)); err != nil {
		return err
	}
	d.forgetUsage(id)
	if recErr != nil {
		return nil // no range was recorded: a claim without a sandbox is void
	}
	return d.ids.release(id, rec.IDBase)
}

// create asks the spawner. What became of a call that was given up is ended.
func (d *Driver) create(ctx context.Context, id string, s driver.Spec, base uint32, u *undo) error {
	u.push(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if err := d.endRun(ctx, id); err != nil {
			d.log.Error("failed start could not be taken back", "sandbox", id, "err", err)
		}
	})
	req := spawn.Create{
		ID: id, RunDir: d.dirs.runOf(id), StateDir: d.dirs.state(id), GuestPath: d.guest,
		Layers: d.layers(s.Image.Layers), IDBase: base, Hostname: s.Hostname,
		Limits: spawn.Limits{CPU: s.Limits.CPU, Memory: int64(s.Limits.Memory), PIDs: s.Limits.PIDs},
	}
	// A create that has begun is waited for, also when the caller is gone: to end a
	// sandbox that may come to life a moment later would be a race. It takes
	// milliseconds, and the spawner bounds it.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	err := d.spawn.call(whole, func(c *spawn.Client) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		created, err := c.Create(whole, req)
		if err == nil {
			unix.Close(created.Pidfd)
		}
		return err
	})
	return errors.Join(err, ctx.Err())
}

// startError says which step failed.
func startError(id string, err error) error {
	if _, ok := errors.AsType[*sos.Error](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("start %s: %w", id, err)
	}
	e := &sos.Error{Code: sos.CodeStartFailed, Message: fmt.Sprintf("sandbox %s could not be started", id), Cause: err}
	if s, ok := errors.AsType[*spawn.Error](err); ok {
		e = sos.Errorf(sos.CodeStartFailed, "%s: %w", e.Message, s)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e.Message = fmt.Sprintf("sandbox %s could not be started: the disk is full", id)
		e.Fix = "free space on the filesystem of the data directory"
	}
	return e
}
