package spawner

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/sysprog"
)

// guestDir is a place for the guest's own files inside.
const guestDir = "/dev/.sos"

const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

func mount(p *sysprog.Program, what, source, target, fstype string, flags uintptr, data string) {
	d := uintptr(0)
	if data != "" {
		d = p.Str(data)
	}
	p.Call("mount "+what, unix.SYS_MOUNT, p.Str(source), p.Str(target), p.Str(fstype), flags, d)
}

// mounts appends /proc, /dev and /sys with what is protected in them. The root is
// the sandbox's already.
func (c *parts) mounts(p *sysprog.Program) {
	base := c.req.IDBase
	owned := func(options string) string { return fmt.Sprintf("%s,uid=%d,gid=%d", options, base, base) }

	place(p, "/proc")
	mount(p, "/proc", "proc", "/proc", "proc", noExec, "")
	place(p, "/dev")
	mount(p, "/dev", "tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_STRICTATIME, owned("mode=755,size=65536k"))
	c.nodes(p)
	for _, m := range []struct {
		dir, fstype string
		flags       uintptr
		data        string
	}{
		// Group 5 is tty in the images that have one.
		{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,gid=%d", base+5)},
		{"/dev/shm", "tmpfs", noExec, owned("mode=1777,size=65536k")},
		{"/dev/mqueue", "mqueue", noExec, ""},
	} {
		p.Call("make "+m.dir, unix.SYS_MKDIRAT, sysprog.AtCWD, p.Str(m.dir), 0o755)
		mount(p, m.dir, m.fstype, m.dir, m.fstype, m.flags, m.data)
	}
	c.own(p, "/dev/pts")
	c.own(p, "/dev/pts/ptmx")
	c.own(p, "/dev/mqueue")
	place(p, "/sys")
	mount(p, "/sys", "sysfs", "/sys", "sysfs", noExec|unix.MS_RDONLY, "")
	c.protect(p)
}

// place makes a mount point and refuses one that is a symbolic link: where /proc is
// must not be an image's choice.
func place(p *sysprog.Program, dir string) {
	p.Call("make "+dir, unix.SYS_MKDIRAT, sysprog.AtCWD, p.Str(dir), 0o755).Ignore(unix.EEXIST)
	p.Call("check that the image's "+dir+" is a directory", unix.SYS_OPENAT, sysprog.AtCWD, p.Str(dir),
		unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// nodes makes the usual devices and links in /dev. Only the initial user namespace
// may make devices, so nobody inside can add any.
func (c *parts) nodes(p *sysprog.Program) {
	for _, n := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		path := "/dev/" + n.name
		p.Call("make "+path, unix.SYS_MKNODAT, sysprog.AtCWD, p.Str(path), unix.S_IFCHR|0o666,
			uintptr(unix.Mkdev(n.major, n.minor)))
		c.own(p, path)
	}
	for _, l := range [][2]string{
		{"/dev/fd", "/proc/self/fd"}, {"/dev/stdin", "/proc/self/fd/0"}, {"/dev/stdout", "/proc/self/fd/1"},
		{"/dev/stderr", "/proc/self/fd/2"}, {"/dev/ptmx", "pts/ptmx"},
	} {
		p.Call("make "+l[0], unix.SYS_SYMLINKAT, p.Str(l[1]), sysprog.AtCWD, p.Str(l[0]))
		c.own(p, l[0])
	}
}

// own gives a path, itself and not what it links to, to the sandbox's root.
func (c *parts) own(p *sysprog.Program, path string) *sysprog.Step {
	id := uintptr(c.req.IDBase)
	return p.Call("give away "+path, unix.SYS_FCHOWNAT, sysprog.AtCWD, p.Str(path), id, id, unix.AT_SYMLINK_NOFOLLOW)
}

// protect covers what tells of the host, and makes read-only what changes it.
func (c *parts) protect(p *sysprog.Program) {
	for _, m := range c.host.masked {
		if m.dir {
			mount(p, "a mask on "+m.path, "tmpfs", m.path, "tmpfs", noExec|unix.MS_RDONLY, "size=4k")
			continue
		}
		p.Call("mount a mask on "+m.path, unix.SYS_MOUNT, p.Str("/dev/null"), p.Str(m.path), 0, unix.MS_BIND, 0)
	}
	for _, path := range c.host.readonly {
		p.Call("bind "+path, unix.SYS_MOUNT, p.Str(path), p.Str(path), 0, unix.MS_BIND|unix.MS_REC, 0)
		p.Call("make "+path+" read-only", unix.SYS_MOUNT, 0, p.Str(path), 0,
			unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|noExec, 0)
	}
}

// files appends the files that a sandbox has whatever its image.
func (c *parts) files(p *sysprog.Program) {
	p.Call("make "+guestDir, unix.SYS_MKDIRAT, sysprog.AtCWD, p.Str(guestDir), 0o711)
	c.etc(p)
	mount(p, guestDir, "tmpfs", guestDir, "tmpfs", noExec,
		fmt.Sprintf("mode=711,size=16m,uid=%d,gid=%d", c.req.IDBase, c.req.IDBase))
	// The work directory of those that have no other. Root's, as an image's own
	// WORKDIR would be; one that the image has stays as it is.
	p.Call("make /workspace", unix.SYS_MKDIRAT, sysprog.AtCWD, p.Str("/workspace"), 0o755).Ignore(unix.EEXIST)
	c.own(p, "/workspace").Then()
	p.Call("make /tmp", unix.SYS_MKDIRAT, sysprog.AtCWD, p.Str("/tmp"), 0o1777).Ignore(unix.EEXIST)
	c.own(p, "/tmp").Then()
}

// etc binds resolv.conf, hosts and hostname from outside of the image, as Docker does:
// they are right at every start whatever a run before did to them, they are no part
// of the sandbox's saved files, and the image stays as it is. They lie in /dev, below
// the directory that the guest's own is mounted on next.
func (c *parts) etc(p *sysprog.Program) {
	name := c.req.Hostname
	p.Call("make /etc", unix.SYS_MKDIRAT, sysprog.AtCWD, p.Str("/etc"), 0o755).Ignore(unix.EEXIST)
	c.own(p, "/etc").Then()
	for _, f := range [][2]string{
		{"hostname", name + "\n"},
		{"hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t" + name + "\n"},
		{"resolv.conf", "# No network beyond loopback.\n"},
	} {
		const fd = 0
		source, target, body := guestDir+"/"+f[0], "/etc/"+f[0], []byte(f[1])
		p.Call("write "+target, unix.SYS_OPENAT, sysprog.AtCWD, p.Str(source),
			unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644).Save(fd)
		p.Call("write "+target, unix.SYS_WRITE, 0, p.Ptr(body), uintptr(len(body))).Use(0, fd)
		p.Call("write "+target, unix.SYS_CLOSE, 0).Use(0, fd)
		c.own(p, source)
		c.target(p, target)
		p.Call("bind "+target, unix.SYS_MOUNT, p.Str(source), p.Str(target), 0, unix.MS_BIND, 0)
		p.Call("protect "+target, unix.SYS_MOUNT, 0, p.Str(target), 0, unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RELATIME|noExec, 0)
	}
}

// target makes sure that there is something to bind on. A link into a directory
// that is not there yet (resolv.conf of systemd) gives way to a file.
func (c *parts) target(p *sysprog.Program, path string) {
	create := func() *sysprog.Step {
		return p.Call("make "+path, unix.SYS_OPENAT, sysprog.AtCWD, p.Str(path),
			unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	}
	create().Ignore(unix.EEXIST)
	c.own(p, path).Then()
	p.Call("look at "+path, unix.SYS_OPENAT, sysprog.AtCWD, p.Str(path), unix.O_PATH|unix.O_CLOEXEC, 0).
		Ignore(unix.ENOENT, unix.ELOOP, unix.ENOTDIR)
	p.Call("remove the link "+path, unix.SYS_UNLINKAT, sysprog.AtCWD, p.Str(path), 0).Else()
	create().Else()
	c.own(p, path).Else()
}
