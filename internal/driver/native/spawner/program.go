package spawner

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
	"github.com/seaofsimulation/sos/internal/sysprog"
)

// oomScore of everything in a sandbox: when the host runs out of memory it goes
// before the host's own processes. Set as host root it is a floor, too.
const oomScore = "300"

// Limits on descriptors: as with systemd, low enough by default that select(2)
// and loops over all descriptors work, and free to be raised far.
const (
	softFiles = 65536
	hardFiles = 1048576
)

// parts is what a sandbox's process is made from.
type parts struct {
	req    spawn.Create
	host   *host
	bundle *Bundle
	group  cgroup.Group
	dir    *os.File // of the cgroup that the guest is born in, or nil
	trees  []*os.File
	join   []*os.File // cgroup files of the guest's level
	user   []*os.File // cgroup files for the guest's children
	oom    *os.File   // or nil
	listen int
	log    int
	guest  *os.File // the guest's binary, O_PATH
}

// program gives what the child does until it is the guest.
func (c *parts) program() *sysprog.Program {
	p := sysprog.New()
	// While it is set up the child dies with the spawner. The thread that waits in the
	// clone is its parent, so this is no other thread's end.
	p.Call("set the parent's death signal", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	c.namespaces(p)
	p.Call("set umask", unix.SYS_UMASK, 0)
	c.root(p)
	c.mounts(p)
	c.files(p)
	n := c.descriptors(p)
	p.Call("reset umask", unix.SYS_UMASK, 0o022)
	c.privileges(p)
	p.ExecFD(int(c.guest.Fd()), []string{"sos-guest"}, c.env(n))
	return p
}

// namespaces puts the child into its cgroups and namespaces.
func (c *parts) namespaces(p *sysprog.Program) {
	for _, f := range c.join {
		p.Write("join cgroup "+f.Name(), int(f.Fd()), "0")
	}
	// After joining, so that the sandbox's own group is the root that it sees.
	p.Call("unshare cgroup namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	const fd = 0
	p.Call("open oom_score_adj", unix.SYS_OPENAT, sysprog.AtCWD, p.Str("/proc/self/oom_score_adj"),
		unix.O_WRONLY|unix.O_CLOEXEC, 0).Save(fd)
	p.Call("set oom_score_adj", unix.SYS_WRITE, 0, p.Ptr([]byte(oomScore)), uintptr(len(oomScore))).Use(0, fd)
	p.Call("join ipc namespace", unix.SYS_SETNS, c.bundle.IPC.Fd(), unix.CLONE_NEWIPC)
	p.Call("join uts namespace", unix.SYS_SETNS, c.bundle.UTS.Fd(), unix.CLONE_NEWUTS)
	p.Call("join net namespace", unix.SYS_SETNS, c.bundle.Net.Fd(), unix.CLONE_NEWNET)
	name := []byte(c.req.Hostname)
	p.Call("set host name", unix.SYS_SETHOSTNAME, p.Ptr(name), uintptr(len(name)))
	// One byte and not zero: at zero the kernel would still run a core_pattern helper,
	// on the host and as its root; at one it gives up. The filter of system calls
	// keeps it there.
	p.Rlimit("core", unix.RLIMIT_CORE, 1, 1)
	p.Rlimit("nofile", unix.RLIMIT_NOFILE, min(softFiles, c.host.maxFiles), c.host.maxFiles)
}

// root mounts the overlay and makes it the root. Everything else is mounted after
// that, so that no name or symbolic link of an image is ever resolved outside of
// it.
func (c *parts) root(p *sysprog.Program) {
	p.Call("make mounts private", unix.SYS_MOUNT, p.Str("none"), p.Str("/"), 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	// By its path: a descriptor of the spawner's would lead into the spawner's mounts.
	p.Call("enter the state directory", unix.SYS_CHDIR, p.Str(c.req.StateDir))
	on := mountOverlay(p, c.host.overlay, c.trees)
	p.Call("enter the root", unix.SYS_CHDIR, p.Str(on))
	p.Call("pivot_root", unix.SYS_PIVOT_ROOT, p.Str("."), p.Str("."))
	p.Call("detach the host's root", unix.SYS_UMOUNT2, p.Str("."), unix.MNT_DETACH)
	p.Call("enter /", unix.SYS_CHDIR, p.Str("/"))
}

// descriptors puts the guest's descriptors in place and gives their number.
func (c *parts) descriptors(p *sysprog.Program) int {
	const null, first = 2, 3 // slots
	p.Call("open /dev/null", unix.SYS_OPENAT, sysprog.AtCWD, p.Str("/dev/null"), unix.O_RDWR|unix.O_CLOEXEC, 0).Save(null)
	slots := []int{null}
	fds := []int{c.log, c.log, c.listen}
	for _, f := range c.user {
		fds = append(fds, int(f.Fd()))
	}
	if c.oom != nil {
		fds = append(fds, int(c.oom.Fd()))
	}
	for i, fd := range fds {
		p.Set(first+i, uintptr(fd))
		slots = append(slots, first+i)
	}
	p.FilesFromSlots(slots)
	p.CloseOnExecFrom(len(slots))
	return len(slots)
}

// env tells the guest what its descriptors are.
func (c *parts) env(n int) []string {
	facts := []string{"listen=3"}
	var join []string
	for i := range c.user {
		join = append(join, strconv.Itoa(4+i))
	}
	if len(join) > 0 {
		facts = append(facts, "join="+strings.Join(join, ","))
	}
	if c.oom != nil {
		facts = append(facts, "oom="+strconv.Itoa(n-1))
	}
	facts = append(facts, "dir="+guestDir)
	return []string{"SOS_GUEST=" + strings.Join(facts, ";"), "GOMAXPROCS=1"}
}

// privileges gives up everything that the sandbox must not have. The order matters:
// each step needs what a later one takes away.
func (c *parts) privileges(p *sysprog.Program) {
	p.Call("setsid", unix.SYS_SETSID)
	// A session keyring of its own; at worst the host has no keyrings or no room.
	p.Call("new session keyring", unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0).
		Ignore(unix.ENOSYS, unix.EDQUOT, unix.EPERM)
	p.Call("join user namespace", unix.SYS_SETNS, c.bundle.User.Fd(), unix.CLONE_NEWUSER)
	p.Call("setgroups", unix.SYS_SETGROUPS, 0, 0)
	p.Call("setresgid", unix.SYS_SETRESGID, 0, 0, 0)
	p.Call("setresuid", unix.SYS_SETRESUID, 0, 0, 0)
	mask := capMask()
	for n := 0; n <= c.host.lastCap; n++ {
		if mask&(1<<n) == 0 {
			p.Call(fmt.Sprintf("drop capability %d", n), unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0)
		}
	}
	p.Call("clear ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	head := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{
		{Effective: uint32(mask), Permitted: uint32(mask)},
		{Effective: uint32(mask >> 32), Permitted: uint32(mask >> 32)},
	}
	p.Keep(head)
	p.Keep(data)
	p.Call("set capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(data)))
	p.Call("clear the parent's death signal", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
	p.Call("set no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	prog := &unix.SockFprog{Len: uint16(len(c.host.filter)), Filter: &c.host.filter[0]}
	p.Keep(prog)
	p.Call("install the seccomp filter", unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(prog)))
}
