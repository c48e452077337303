package spawner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
	"github.com/seaofsimulation/sos/internal/sysprog"
)

// defaultDeadline bounds the child's steps where the request names no deadline.
const defaultDeadline = 10 * time.Second

// stepError is the failure of a step of ours, in the words of the child's steps.
func stepError(step string, err error) error {
	e := &spawn.Error{Code: spawn.CodeFailed, Step: step, Message: step + ": " + err.Error()}
	var errno unix.Errno
	if errors.As(err, &errno) {
		e.Errno = int(errno)
		e.Message = step + ": " + errno.Error()
	}
	return e
}

// create makes a sandbox, or gives the one that runs. Calls for one id come one
// after the other. ctx is the spawner's: a client that goes away changes nothing.
func (s *Spawner) create(ctx context.Context, req spawn.Create) (*guest, bool, error) {
	if err := req.Validate(); err != nil {
		return nil, false, err
	}
	if req.Hostname == "" {
		req.Hostname = req.ID
	}
	if req.Cgroup == "" {
		req.Cgroup = req.ID
	}
	if req.Deadline == 0 {
		req.Deadline = defaultDeadline
	}
	release, err := s.acquire(ctx, req.ID)
	if err != nil {
		return nil, false, err
	}
	defer release()
	if g := s.lookup(req.ID); g != nil && g.running() {
		return g, true, nil
	}
	var u undo
	g, err := s.build(ctx, req, &u)
	if err != nil {
		u.run()
		var e *spawn.Error
		if !errors.As(err, &e) {
			e = stepError("create", err).(*spawn.Error)
			e.Message = err.Error()
		}
		s.cfg.Log.Warn("create failed", "sandbox", req.ID, "op", e.Step, "err", err)
		return nil, false, e
	}
	u.keep()
	s.put(g)
	return g, false, nil
}

// build does what create describes; everything it makes it also pushes to u.
func (s *Spawner) build(ctx context.Context, req spawn.Create, u *undo) (*guest, error) {
	c := &parts{req: req, host: s.host}
	defer c.close()
	// The namespaces take longest, and need nothing of what else is made.
	namespaces, err := startHolder(s.watchers.Go)
	if err != nil {
		return nil, stepError("make namespaces", err)
	}
	err = s.ground(ctx, c, u)
	var failed error
	if c.bundle, failed = namespaces.bundle(req.IDBase); err == nil && failed != nil {
		err = fail("make namespaces", failed)
	}
	if err != nil {
		return nil, err
	}
	if c.trees, err = layerTrees(req.Layers, c.bundle.User); err != nil {
		return nil, err
	}
	g := &guest{id: req.ID, runDir: req.RunDir, group: c.group, pidfd: -1, done: make(chan struct{})}
	if err := s.fork(ctx, c, g, u); err != nil {
		return nil, err
	}
	return g, nil
}

// ground makes the directories, the cgroups and what the guest gets from them.
func (s *Spawner) ground(ctx context.Context, c *parts, u *undo) (err error) {
	if err := c.directories(u); err != nil {
		return err
	}
	if c.guest, err = openGuest(c.req.GuestPath); err != nil {
		return err
	}
	if c.group, err = s.makeGroup(ctx, c.req, u); err != nil {
		return err
	}
	if err := c.openGroup(); err != nil {
		return stepError("open cgroup", err)
	}
	return c.endpoints(u)
}

// openGroup opens what of the cgroup is handed over.
func (c *parts) openGroup() (err error) {
	if c.join, err = c.group.Join(); err != nil {
		return err
	}
	if c.dir, err = c.group.Dir(); err != nil {
		return err
	}
	if c.user, err = c.group.UserJoin(); err != nil {
		return err
	}
	c.oom, err = c.group.OOM()
	return err
}

// fork clones the child and has it watched.
func (s *Spawner) fork(ctx context.Context, c *parts, g *guest, u *undo) error {
	opt := sysprog.ForkOptions{Pidfd: true, Timeout: c.req.Deadline}
	if c.dir != nil {
		opt.Cgroup = int(c.dir.Fd())
	}
	pid, pidfd, err := c.program().Fork(unix.CLONE_NEWNS|unix.CLONE_NEWPID, opt)
	if err != nil {
		return fail("start the guest", err)
	}
	g.pidfd = pidfd
	u.push(func() {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) // gone already is fine
		_ = waitPidfd(pidfd, nil)
		_ = unix.Close(pidfd)
	})
	st, err := readStat(pid)
	if err != nil {
		return stepError("read the start time of the guest", err)
	}
	g.record = spawn.Record{Pid: pid, StartTime: st.start, BootID: s.host.bootID, Cgroup: c.req.Cgroup, IDBase: c.req.IDBase}
	if err := writeRecord(c.req.RunDir, g.record); err != nil {
		return stepError("write the record", err)
	}
	u.push(func() { _ = os.Remove(filepath.Join(c.req.RunDir, spawn.RecordFile)) })
	if g.log, err = pumpLog(c.req.RunDir); err != nil {
		return stepError("read the guest's log", err)
	}
	u.push(g.log.stop)
	if err := s.watch(ctx, g); err != nil {
		return stepError("watch the guest", err)
	}
	return nil
}

// fail gives the step of the child, if it was one that failed.
func fail(step string, err error) error {
	var child *sysprog.StepError
	if errors.As(err, &child) {
		return &spawn.Error{Code: spawn.CodeFailed, Step: child.Step, Errno: int(child.Errno), Message: child.Error()}
	}
	return stepError(step, err)
}

// openGuest opens the guest's binary. It must be root's and not readable by others:
// the kernel then guards the memory of the process from everybody inside.
func openGuest(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, stepError("open the guest's program", err)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, stepError("open the guest's program", err)
	}
	if st.Uid != 0 || st.Mode&0o7777 != 0o711 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, &spawn.Error{Code: spawn.CodeInvalid, Step: "open the guest's program",
			Message: fmt.Sprintf("%s has owner %d and mode %o; it must be root's with mode 711", path, st.Uid, st.Mode&0o7777)}
	}
	return f, nil
}

// makeGroup makes the cgroups, after removing what an earlier run of this id left.
func (s *Spawner) makeGroup(ctx context.Context, req spawn.Create, u *undo) (cgroup.Group, error) {
	limits := cgroup.Limits{CPU: req.Limits.CPU, Memory: req.Limits.Memory, PIDs: req.Limits.PIDs}
	group, err := s.tree.Create(req.Cgroup, limits)
	if errors.Is(err, os.ErrExist) {
		if err := s.sweep(ctx, req.Cgroup); err != nil {
			return nil, stepError("remove an old cgroup", err)
		}
		group, err = s.tree.Create(req.Cgroup, limits)
	}
	if err != nil {
		return nil, stepError("make cgroup", err)
	}
	u.push(func() {
		if err := s.sweep(context.WithoutCancel(ctx), req.Cgroup); err != nil {
			s.cfg.Log.Error("remove a cgroup", "sandbox", req.ID, "err", err)
		}
	})
	return group, nil
}

// sweep kills what is in a group and removes it.
func (s *Spawner) sweep(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	g := s.tree.Open(name)
	return errors.Join(g.Kill(ctx), g.Remove(ctx))
}

func (c *parts) close() {
	if c.bundle != nil {
		c.bundle.Close()
	}
	closeAll(c.trees)
	closeAll(c.join)
	closeAll(c.user)
	for _, f := range []*os.File{c.dir, c.oom, c.guest} {
		if f != nil {
			_ = f.Close()
		}
	}
	for _, fd := range []int{c.listen, c.log} {
		if fd > 0 {
			_ = unix.Close(fd)
		}
	}
}
