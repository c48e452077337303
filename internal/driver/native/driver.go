package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// Driver is the native driver of one data directory.
type Driver struct {
	cfg  Config
	dirs layout
	log  *slog.Logger
	boot string

	checks   []sos.Check // of Open; the host does not change under a server
	groups   cgroup.Tree // nil when a check failed
	features []string    // of Info
	limit    string      // disk limit: "watched" or "none"
	guest    string      // path of the extracted guest
	ids      idTable
	locks    locks
	spawn    *supervisor
	sync     syncer
	trash    *trash // nil when the data directory cannot be used

	cancel context.CancelFunc // ends background work

	usageMu sync.Mutex
	usage   map[string]usageCache
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Freezer = (*Driver)(nil)
	_ driver.Statser = (*Driver)(nil)
	_ driver.Killer  = (*Driver)(nil)
)

// cleanupTimeout bounds what is done to take a failed call back, which goes on
// when the caller is gone.
const cleanupTimeout = 30 * time.Second

// Open makes the driver, takes over what runs, and clears away what a crash left.
// On a host that lacks something it succeeds all the same: Info says what is
// missing, and Start fails with the same words. An error means that cfg is wrong.
func Open(ctx context.Context, cfg Config) (*Driver, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &Driver{
		cfg: cfg, log: cfg.Log, dirs: layout{data: cfg.DataDir, run: cfg.RunDir},
		usage: map[string]usageCache{}, limit: "none", cancel: cancel,
	}
	d.ids = idTable{dir: cfg.IDsDir, owner: d.dirs.sandboxes()}
	d.sync.sync = func() error { return syncFilesystem(d.dirs.sandboxes()) }
	var r report
	d.prepare(ctx, background, &r)
	d.checks = r.checks
	for _, c := range d.checks {
		if !c.OK {
			d.log.Error("the native driver lacks something", "op", "open", "check", c.Name, "err", c.Message, "fix", c.Fix)
		}
	}
	return d, nil
}

// prepare takes the steps of Open. Each needs those before it, so the first that
// fails ends it, and its check says why.
func (d *Driver) prepare(ctx, background context.Context, r *report) {
	h := thisHost(d.cfg.DataDir)
	if !h.checkRoot(r) {
		return
	}
	if err := d.makeDirs(); err != nil {
		r.bad("data directory", "use a local, writable filesystem: sos serve --data-dir DIR", "the directories of sandboxes cannot be made: %v", err)
		return
	}
	if n := len(filepath.Join(d.dirs.run, spawn.Socket)); n > maxSocketPath {
		r.bad("run directory", "name a directory with a shorter path: sos serve --run-dir DIR",
			"the path of the run directory is too long for sockets in it: %d bytes are possible, not %d", len(d.dirs.run)-(n-maxSocketPath), len(d.dirs.run))
	}
	h.checkRest(r)
	d.checkGroups(r)
	spawner := d.checkPrograms(r)
	var err error
	if d.trash, err = openTrash(background, d.dirs.trash(), d.log); err != nil {
		r.bad("data directory", "look at the filesystem of the data directory", "the trash cannot be used: %v", err)
	}
	d.checkUsage(ctx, r)
	if d.boot, err = bootID(); err != nil {
		r.bad("proc", "mount /proc", "/proc cannot be read: %v", err)
	}
	if failed(r.checks) != nil {
		return
	}
	d.spawn = &supervisor{dirs: d.dirs, log: d.log, instance: d.cfg.Instance, program: spawner}
	err = d.spawn.call(ctx, func(c *spawn.Client) error {
		h, err := c.Hello(ctx)
		d.features = append(h.Features, "seccomp")
		return err
	})
	if err != nil {
		r.bad("spawner", "look at "+d.spawn.logFile(), "the spawner cannot be started: %v", err)
		return
	}
	r.ok("spawner", "runs")
	if err := d.recover(ctx); err != nil {
		r.bad("recovery", "look at the log; sos down ends everything of this data directory", "what an earlier server left could not be taken over: %v", err)
	}
	if err := removeOldPrograms(d.dirs.bin(), d.guest, spawner); err != nil {
		d.log.Warn("old programs could not be removed", "op", "open", "err", err)
	}
}

// maxSocketPath is what the address of a Unix socket has room for.
const maxSocketPath = 107

func (d *Driver) makeDirs() error {
	return errors.Join(
		makeDir(d.dirs.sandboxes(), 0o700), makeDir(d.dirs.trash(), 0o700),
		makeDir(d.dirs.bin(), 0o711), makeDir(d.dirs.run, 0o711), makeBase(d.dirs.base()))
}

// checkGroups finds the cgroups and makes the instance's.
func (d *Driver) checkGroups(r *report) {
	h, err := cgroup.Detect()
	if err == nil {
		d.groups, err = h.Tree(groupName(d.cfg.Instance))
	}
	if err != nil {
		where := thisHost("").inContainer()
		fix := "mount the controllers cpu, memory and pids (and freezer with version 1), or boot with cgroup_enable=memory"
		if where != "" {
			fix = "give the container write access to cgroups: docker run --privileged --cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup:rw"
		}
		r.bad("cgroups", fix, "limits cannot be set: %v%s", err, where)
		return
	}
	r.ok("cgroups", "version %d, writable", h.Version)
}

func groupName(instance string) string { return "sos-" + instance }

// checkPrograms extracts guest and spawner; it gives the spawner's path.
func (d *Driver) checkPrograms(r *report) (spawner string) {
	put := func(name string, content func() ([]byte, error)) string {
		b, err := content()
		if err != nil {
			r.bad(name, "run make build", "%v", err)
			return ""
		}
		path, err := extract(d.dirs.bin(), "sos-"+name, b)
		if err != nil {
			r.bad(name, "look at the filesystem of the data directory", "%v", err)
		}
		return path
	}
	d.guest = put("guest", d.cfg.guest)
	return put("spawner", d.cfg.spawner)
}

// checkUsage only advises: where bytes cannot be counted there is no disk limit.
func (d *Driver) checkUsage(ctx context.Context, r *report) {
	_, err := diskUsage(ctx, d.dirs.bin())
	if d.limit = "watched"; err == nil {
		r.ok("disk limit", "watched: the files of each sandbox are counted")
		return
	}
	d.limit = "none"
	r.checks = append(r.checks, sos.Check{Name: "disk limit", OK: true,
		Message: fmt.Sprintf("none: this filesystem (%s) has no file handles to count by", filesystemName(d.cfg.DataDir)),
		Fix:     "put the data directory on ext4, xfs or btrfs for disk limits"})
}

// Info says what was found at Open.
func (d *Driver) Info(context.Context) driver.Info {
	i := driver.Info{Name: "native", Checks: d.checks, DiskLimit: d.limit}
	if i.Healthy() {
		i.Features = d.features
	}
	return i
}

// unavailable is why nothing can be started here, or nil.
func (d *Driver) unavailable() error { return failed(d.checks) }

// Close gives up the driver. What runs goes on running.
func (d *Driver) Close() error {
	d.cancel()
	if d.trash != nil {
		d.trash.wait()
	}
	d.sync.wait()
	if d.spawn != nil {
		return d.spawn.close()
	}
	return nil
}
