package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// dirs makes and removes groups; on cgroup2 the kernel fills a new directory with
// its files.
type dirs interface {
	mkdir(path string) error
	rmdir(path string) error
}

type realDirs struct{}

func (realDirs) mkdir(path string) error { return os.Mkdir(path, 0o755) }
func (realDirs) rmdir(path string) error { return rmdir(path) }

// v2Tree is an instance on the unified hierarchy.
type v2Tree struct {
	dir         string
	controllers []string
	dirs        dirs
}

func newV2(root, name string, controllers []string, d dirs) (*v2Tree, error) {
	t := &v2Tree{dir: filepath.Join(root, name), controllers: controllers, dirs: d}
	if err := t.enable(root); err != nil {
		return nil, fmt.Errorf("%w (processes in a group must be moved to a leaf before its children can have limits)", err)
	}
	if err := d.mkdir(t.dir); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make the instance's cgroup: %w", err)
	}
	if t.has("cpu") {
		weight := min(10000, 100*int64(runtime.NumCPU()))
		if err := write(t.dir, "cpu.weight", weight); err != nil {
			return nil, err
		}
	}
	return t, t.enable(t.dir)
}

func (t *v2Tree) has(c string) bool { return slices.Contains(t.controllers, c) }

// enable lets the children of dir have the controllers.
func (t *v2Tree) enable(dir string) error {
	if len(t.controllers) == 0 {
		return nil
	}
	have, err := readString(dir, "cgroup.subtree_control")
	if err != nil {
		return err
	}
	on := strings.Fields(have)
	if len(missing(t.controllers, func(c string) bool { return slices.Contains(on, c) })) == 0 {
		return nil
	}
	return writeString(dir, "cgroup.subtree_control", "+"+strings.Join(t.controllers, " +"))
}

func (t *v2Tree) Version() int { return 2 }

func (t *v2Tree) Open(id string) Group { return &v2Group{t, id} }

func (t *v2Tree) List() ([]string, error) { return list([]string{t.dir}) }

func (t *v2Tree) Remove() error {
	if err := t.dirs.rmdir(t.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (t *v2Tree) Create(id string, l Limits) (_ Group, err error) {
	g := &v2Group{t, id}
	var made []string
	defer func() {
		if err != nil {
			for _, dir := range slices.Backward(made) {
				_ = t.dirs.rmdir(dir)
			}
			err = fmt.Errorf("make the cgroup of %s: %w", id, err)
		}
	}()
	for i, dir := range g.all() {
		if err := t.dirs.mkdir(dir); err != nil {
			return nil, err
		}
		made = append(made, dir)
		if i == 0 {
			if err := t.enable(dir); err != nil {
				return nil, err
			}
		}
	}
	return g, g.limit(l)
}

// v2Group is one sandbox on version 2.
type v2Group struct {
	t  *v2Tree
	id string
}

func (g *v2Group) dir(level string) string { return filepath.Join(g.t.dir, g.id, level) }

func (g *v2Group) all() []string {
	return []string{g.dir(""), g.dir(guestLevel), g.dir(userLevel)}
}

func (g *v2Group) limit(l Limits) error {
	if l.CPU > 0 && g.t.has("cpu") {
		if err := write(g.dir(""), "cpu.weight", min(10000, max(1, int64(100*l.CPU)))); err != nil {
			return err
		}
		quota := fmt.Sprintf("%d %d", max(1000, int64(cpuPeriod*l.CPU)), int64(cpuPeriod))
		if err := writeString(g.dir(""), "cpu.max", quota); err != nil {
			return err
		}
	}
	if l.Memory > 0 && g.t.has("memory") {
		if err := write(g.dir(userLevel), "memory.max", l.Memory); err != nil {
			return err
		}
		err := write(g.dir(userLevel), "memory.swap.max", 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // swap is not accounted
			return err
		}
	}
	if l.PIDs > 0 && g.t.has("pids") {
		return write(g.dir(userLevel), "pids.max", int64(l.PIDs))
	}
	return nil
}

func (g *v2Group) Join() ([]*os.File, error) { return nil, nil }

func (g *v2Group) Dir() (*os.File, error) { return os.Open(g.dir(guestLevel)) }

func (g *v2Group) UserJoin() ([]*os.File, error) {
	return openAll(slices.Values([]string{filepath.Join(g.dir(userLevel), "cgroup.procs")}))
}

func (g *v2Group) OOM() (*os.File, error) {
	if !g.t.has("memory") {
		return nil, nil
	}
	return os.Open(filepath.Join(g.dir(userLevel), "memory.events"))
}

func (g *v2Group) Freeze(ctx context.Context) error {
	if err := g.freeze(ctx, 1); err != nil {
		_ = write(g.dir(userLevel), "cgroup.freeze", 0)
		return fmt.Errorf("freeze %s: %w", g.id, err)
	}
	return nil
}

func (g *v2Group) Thaw(ctx context.Context) error {
	if err := g.freeze(ctx, 0); err != nil {
		return fmt.Errorf("thaw %s: %w", g.id, err)
	}
	return nil
}

func (g *v2Group) freeze(ctx context.Context, want int64) error {
	dir := g.dir(userLevel)
	if err := write(dir, "cgroup.freeze", want); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		is, err := readKey(dir, "cgroup.events", "frozen")
		return is == want, err
	})
}

func (g *v2Group) Kill(ctx context.Context) error {
	err := write(g.dir(""), "cgroup.kill", 1)
	switch {
	case err == nil:
		err = until(ctx, func() (bool, error) {
			n, err := readKey(g.dir(""), "cgroup.events", "populated")
			return n == 0, err
		})
	case errors.Is(err, os.ErrNotExist): // before Linux 5.14, or no group
		err = killByFreezing(ctx, g.all(), func(state string) error {
			on := int64(0)
			if state == "FROZEN" {
				on = 1
			}
			return errors.Join(write(g.dir(""), "cgroup.freeze", on), write(g.dir(userLevel), "cgroup.freeze", 0))
		})
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kill %s: %w", g.id, err)
	}
	return nil
}

func (g *v2Group) Stats() (Stats, error) {
	var s Stats
	us, err := readKey(g.dir(""), "cpu.stat", "usage_usec")
	if err != nil {
		return s, err
	}
	s.CPU = duration(us * 1000)
	user := g.dir(userLevel)
	if g.t.has("memory") {
		if s.Memory, err = readInt(user, "memory.current"); err != nil {
			return s, err
		}
		cache, err := readKey(user, "memory.stat", "inactive_file")
		if err != nil {
			return s, err
		}
		s.Memory = max(0, s.Memory-cache)
		if s.Peak, err = readInt(user, "memory.peak"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return s, err
		}
		if s.OOMKills, err = readKey(user, "memory.events", "oom_kill"); err != nil {
			return s, err
		}
		if s.GuestOOMKills, err = readKey(g.dir(guestLevel), "memory.events", "oom_kill"); err != nil {
			return s, err
		}
	}
	if g.t.has("pids") {
		n, err := readInt(user, "pids.current")
		if err != nil {
			return s, err
		}
		s.PIDs = int(n)
	}
	return s, nil
}

func (g *v2Group) Remove(ctx context.Context) error {
	if err := removeAll(ctx, g.all(), g.t.dirs.rmdir); err != nil {
		return fmt.Errorf("remove the cgroup of %s: %w", g.id, err)
	}
	return nil
}
