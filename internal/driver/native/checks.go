package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// MinLinux is the oldest kernel: 5.19 is the first on which an overlay may stand
// on idmapped layers. Everything else that the driver uses is older (openat2 5.6,
// close_range 5.9, volatile overlays 5.10, idmapped mounts 5.12).
const MinLinux = "5.19"

// report gathers checks. A fatal one that failed makes Start impossible.
type report struct{ checks []sos.Check }

func (r *report) ok(name, format string, args ...any) {
	r.checks = append(r.checks, sos.Check{Name: name, OK: true, Message: fmt.Sprintf(format, args...)})
}

func (r *report) bad(name, fix, format string, args ...any) {
	r.checks = append(r.checks, sos.Check{Name: name, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// failed is the first failed check as the error of a start, or nil.
func failed(checks []sos.Check) error {
	for _, c := range checks {
		if !c.OK {
			return &sos.Error{Code: sos.CodeUnavailable, Message: c.Message, Fix: c.Fix}
		}
	}
	return nil
}

// host is what the checks read, so that tests can show them other hosts.
type host struct {
	root    string // of /proc, /sys, /etc: "/" but in tests
	euid    int
	release string // of the kernel
	dataDir string
	userns  func() error
	overlay func(dir string) error
	idmap   func(dir string) error
	seccomp func() error
	capEff  func() (uint64, error)
}

func thisHost(dataDir string) host {
	var u unix.Utsname
	release := ""
	if unix.Uname(&u) == nil {
		release = unix.ByteSliceToString(u.Release[:])
	}
	return host{
		root: "/", euid: os.Geteuid(), release: release, dataDir: dataDir,
		userns: probeUserNamespace, overlay: probeOverlay, idmap: probeIDMap,
		seccomp: probeSeccomp, capEff: effectiveCapabilities,
	}
}

// check looks at the host without changing it. Later checks are left out where
// an earlier one makes their answer meaningless.
func (h host) check(r *report) {
	if h.checkRoot(r) {
		h.checkRest(r)
	}
}

func (h host) checkRest(r *report) {
	h.checkKernel(r)
	h.checkUserns(r)
	h.checkSeccomp(r)
	h.checkData(r)
	h.checkInotify(r)
}

func (h host) checkRoot(r *report) bool {
	if h.euid != 0 {
		r.bad("root", "run it as root: sudo sos serve", "the native driver needs root; this process runs as user %d", h.euid)
		return false
	}
	caps, err := h.capEff()
	const need = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_MKNOD | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID |
		1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_KILL
	if err == nil && caps&need != need {
		r.bad("root", h.containerFix("run it on the host itself, or give the container all privileges (docker run --privileged --cgroupns=host)"),
			"this root user lacks capabilities that starting sandboxes needs (SYS_ADMIN and others)%s", h.inContainer())
		return false
	}
	m, err := os.ReadFile(h.path("proc/self/uid_map"))
	if f := strings.Fields(string(m)); err == nil && (len(f) != 3 || f[0] != "0" || f[1] != "0" || f[2] != "4294967295") {
		r.bad("root", "run it as root of the host, outside rootless containers",
			"this root user is only root of a user namespace%s", h.inContainer())
		return false
	}
	r.ok("root", "runs as root")
	return true
}

func (h host) checkKernel(r *report) {
	if !kernelAtLeast(h.release, MinLinux) {
		r.bad("linux", "use a newer kernel", "Linux %s is too old; the native driver needs %s or newer", h.release, MinLinux)
		return
	}
	r.ok("linux", "Linux %s", h.release)
}

func (h host) checkUserns(r *report) {
	const name = "user namespaces"
	if n, err := h.number("proc/sys/user/max_user_namespaces"); err == nil && n == 0 {
		r.bad(name, "sysctl -w user.max_user_namespaces=15000", "user namespaces are switched off: user.max_user_namespaces is 0")
		return
	}
	err := h.userns()
	switch {
	case err == nil:
		r.ok(name, "one per sandbox, with 65536 ids of its own")
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		r.bad(name, "use a kernel with CONFIG_USER_NS", "this kernel has no user namespaces")
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS):
		r.bad(name, "raise user.max_user_namespaces", "no more user namespaces can be made: the limit user.max_user_namespaces is reached")
	default:
		r.bad(name, h.containerFix("look for a security module or a seccomp filter that forbids it"),
			"user namespaces cannot be made here (%v)%s", err, h.inContainer())
	}
}

func (h host) checkSeccomp(r *report) {
	if err := h.seccomp(); err != nil {
		r.bad("seccomp", "use a kernel with CONFIG_SECCOMP_FILTER", "system call filters are not available (%v)", err)
		return
	}
	r.ok("seccomp", "system call filters are available")
}

func (h host) checkData(r *report) {
	fsName := filesystemName(h.dataDir)
	elsewhere := "put the data directory on ext4, xfs or btrfs: sos serve --data-dir DIR"
	var st unix.Statfs_t
	if err := unix.Statfs(h.dataDir, &st); err == nil && st.Flags&unix.ST_NOEXEC != 0 {
		r.bad("data directory", "remount it with exec, or use --data-dir", "programs cannot run from the data directory: its filesystem is mounted noexec")
	}
	if err := h.overlay(h.dataDir); err != nil {
		r.bad("overlay", elsewhere, "the data directory cannot hold sandboxes: overlays do not work on its filesystem (%s): %v", fsName, err)
		return
	}
	r.ok("overlay", "works on the data directory's filesystem (%s)", fsName)
	if err := h.idmap(h.dataDir); err != nil {
		r.bad("idmapped mounts", elsewhere, "the data directory cannot hold images: idmapped mounts do not work on its filesystem (%s): %v", fsName, err)
		return
	}
	r.ok("idmapped mounts", "work on the data directory's filesystem (%s)", fsName)
}

// checkInotify only advises: sandboxes share the host's watches.
func (h host) checkInotify(r *report) {
	const low = 1024
	n, err := h.number("proc/sys/fs/inotify/max_user_instances")
	if err == nil && n < low {
		r.checks = append(r.checks, sos.Check{Name: "inotify", OK: true,
			Message: fmt.Sprintf("all sandboxes together have %d inotify instances; one can use them up", n),
			Fix:     "sysctl -w fs.inotify.max_user_instances=8192 fs.inotify.max_user_watches=1048576"})
		return
	}
	r.ok("inotify", "limits are high enough")
}

func (h host) path(name string) string { return filepath.Join(h.root, name) }

func (h host) number(name string) (int64, error) {
	b, err := os.ReadFile(h.path(name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// inContainer is ": …" when this process seems to be in a container, for
// messages that would puzzle somebody who sees root and a new kernel.
func (h host) inContainer() string {
	for _, f := range []string{".dockerenv", "run/.containerenv"} {
		if exists(h.path(f)) {
			return "; it runs inside a container"
		}
	}
	env, err := os.ReadFile(h.path("proc/1/environ"))
	if err == nil && strings.Contains(string(env), "container=") {
		return "; it runs inside a container"
	}
	return ""
}

func (h host) containerFix(other string) string {
	if h.inContainer() != "" {
		return "run it on the host itself, or give the container all privileges (docker run --privileged --cgroupns=host)"
	}
	return other
}

// kernelAtLeast compares "6.1.0-18-amd64" with "5.19". What cannot be read passes:
// the probes tell more than a name.
func kernelAtLeast(release, minimum string) bool {
	var a, b, x, y int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return true
	}
	if n, _ := fmt.Sscanf(minimum, "%d.%d", &x, &y); n != 2 {
		return true
	}
	return a > x || a == x && b >= y
}

func effectiveCapabilities() (uint64, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// probeSeccomp asks for an action that only a kernel with filters knows.
func probeSeccomp() error {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}
