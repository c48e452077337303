package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// v1Tree is an instance on version 1 hierarchies.
type v1Tree struct {
	name string
	hier []hierarchy
	at   map[string]string // <mount>/<name> by controller
}

// hierarchy is one mount of version 1.
type hierarchy struct {
	dir    string // <mount>/<name>
	levels bool   // guest and user are apart; else both are in <id>
}

func newV1(mounts map[string]string, name string) (*v1Tree, error) {
	t := &v1Tree{name: name, at: map[string]string{}}
	for _, c := range v1Needed {
		dir := filepath.Join(mounts[c], name)
		t.at[c] = dir
		split := c == "memory" || c == "pids" || c == "freezer"
		i := slices.IndexFunc(t.hier, func(h hierarchy) bool { return h.dir == dir })
		if i < 0 {
			t.hier = append(t.hier, hierarchy{dir: dir})
			i = len(t.hier) - 1
		}
		t.hier[i].levels = t.hier[i].levels || split
	}
	for _, h := range t.hier {
		if err := os.Mkdir(h.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("make the instance's cgroup: %w", err)
		}
	}
	// All sandboxes compete with the rest of the host as one group: give it the
	// weight of as many tasks as there are cores.
	if err := write(t.at["cpu"], "cpu.shares", 1024*int64(runtime.NumCPU())); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *v1Tree) Version() int { return 1 }

func (t *v1Tree) Open(id string) Group { return &v1Group{t, id} }

func (t *v1Tree) List() ([]string, error) {
	var dirs []string
	for _, h := range t.hier {
		dirs = append(dirs, h.dir)
	}
	return list(dirs)
}

func (t *v1Tree) Remove() error {
	var errs []error
	for _, h := range t.hier {
		if err := os.Remove(h.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (t *v1Tree) Create(id string, l Limits) (_ Group, err error) {
	g := &v1Group{t, id}
	var made []string
	defer func() {
		if err != nil {
			for _, dir := range slices.Backward(made) {
				_ = os.Remove(dir)
			}
			err = fmt.Errorf("make the cgroup of %s: %w", id, err)
		}
	}()
	for _, dir := range g.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		made = append(made, dir)
	}
	return g, g.limit(l)
}

// v1Group is one sandbox on version 1.
type v1Group struct {
	t  *v1Tree
	id string
}

// dirs gives every directory of the group, parents first.
func (g *v1Group) dirs() []string {
	var dirs []string
	for _, h := range g.t.hier {
		dir := filepath.Join(h.dir, g.id)
		dirs = append(dirs, dir)
		if h.levels {
			dirs = append(dirs, filepath.Join(dir, guestLevel), filepath.Join(dir, userLevel))
		}
	}
	return dirs
}

func (g *v1Group) dir(controller, level string) string {
	return filepath.Join(g.t.at[controller], g.id, level)
}

func (g *v1Group) limit(l Limits) error {
	if l.CPU > 0 {
		dir := g.dir("cpu", "")
		if err := write(dir, "cpu.shares", max(2, int64(1024*l.CPU))); err != nil {
			return err
		}
		if err := write(dir, "cpu.cfs_period_us", cpuPeriod); err != nil {
			return err
		}
		if err := write(dir, "cpu.cfs_quota_us", max(1000, int64(cpuPeriod*l.CPU))); err != nil {
			return err
		}
	}
	if l.Memory > 0 {
		dir := g.dir("memory", userLevel)
		if err := write(dir, "memory.limit_in_bytes", l.Memory); err != nil {
			return err
		}
		err := write(dir, "memory.memsw.limit_in_bytes", l.Memory)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // swap is not accounted
			return err
		}
	}
	if l.PIDs > 0 {
		return write(g.dir("pids", userLevel), "pids.max", int64(l.PIDs))
	}
	return nil
}

func (g *v1Group) Dir() (*os.File, error) { return nil, nil }

// Join uses tasks and not cgroup.procs: a thread that moves itself takes no global
// lock.
func (g *v1Group) Join() ([]*os.File, error) {
	return openAll(func(yield func(string) bool) {
		for _, h := range g.t.hier {
			level := ""
			if h.levels {
				level = guestLevel
			}
			if !yield(filepath.Join(h.dir, g.id, level, "tasks")) {
				return
			}
		}
	})
}

func (g *v1Group) UserJoin() ([]*os.File, error) {
	return openAll(func(yield func(string) bool) {
		for _, h := range g.t.hier {
			if h.levels && !yield(filepath.Join(h.dir, g.id, userLevel, "tasks")) {
				return
			}
		}
	})
}

func (g *v1Group) OOM() (*os.File, error) {
	return openFile(filepath.Join(g.dir("memory", userLevel), "memory.oom_control"), unix.O_RDONLY)
}

func (g *v1Group) Freeze(ctx context.Context) error {
	dir := g.dir("freezer", userLevel)
	err := g.state(ctx, dir, "FROZEN")
	if err != nil {
		_ = writeString(dir, "freezer.state", "THAWED")
		return fmt.Errorf("freeze %s: %w", g.id, err)
	}
	return nil
}

func (g *v1Group) Thaw(ctx context.Context) error {
	if err := g.state(ctx, g.dir("freezer", userLevel), "THAWED"); err != nil {
		return fmt.Errorf("thaw %s: %w", g.id, err)
	}
	return nil
}

// state writes the wanted state again and again: a fork that was under way while
// the group froze is caught by the next write.
func (g *v1Group) state(ctx context.Context, dir, want string) error {
	return until(ctx, func() (bool, error) {
		if err := writeString(dir, "freezer.state", want); err != nil {
			return false, err
		}
		is, err := readString(dir, "freezer.state")
		return is == want, err
	})
}

func (g *v1Group) Kill(ctx context.Context) error {
	top := g.dir("freezer", "")
	freeze := func(state string) error {
		if err := writeString(top, "freezer.state", state); err != nil {
			return err
		}
		if state == "THAWED" {
			return writeString(filepath.Join(top, userLevel), "freezer.state", state)
		}
		return nil
	}
	// Every hierarchy: a start that was cut off may have joined only some.
	if err := killByFreezing(ctx, g.dirs(), freeze); err != nil {
		return fmt.Errorf("kill %s: %w", g.id, err)
	}
	return nil
}

func (g *v1Group) Stats() (Stats, error) {
	var s Stats
	ns, err := readInt(g.dir("cpuacct", ""), "cpuacct.usage")
	if err != nil {
		return s, err
	}
	s.CPU = duration(ns)
	mem := g.dir("memory", userLevel)
	if s.Memory, err = readInt(mem, "memory.usage_in_bytes"); err != nil {
		return s, err
	}
	if s.Peak, err = readInt(mem, "memory.max_usage_in_bytes"); err != nil {
		return s, err
	}
	cache, err := readKey(mem, "memory.stat", "total_inactive_file")
	if err != nil {
		return s, err
	}
	s.Memory = max(0, s.Memory-cache)
	if s.OOMKills, err = readKey(mem, "memory.oom_control", "oom_kill"); err != nil {
		return s, err
	}
	if s.GuestOOMKills, err = readKey(g.dir("memory", guestLevel), "memory.oom_control", "oom_kill"); err != nil {
		return s, err
	}
	pids, err := readString(g.dir("pids", userLevel), "pids.current")
	if err != nil {
		return s, err
	}
	s.PIDs, err = strconv.Atoi(pids)
	return s, err
}

func (g *v1Group) Remove(ctx context.Context) error {
	if err := removeAll(ctx, g.dirs(), rmdir); err != nil {
		return fmt.Errorf("remove the cgroup of %s: %w", g.id, err)
	}
	return nil
}
