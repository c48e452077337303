package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/sysprog"
)

// withUserNamespace makes a user namespace that maps one range of host ids,
// calls f with its descriptor, and lets it go again.
func withUserNamespace(base uint32, f func(fd int) error) error {
	// The child dies with the thread that made it, or soon when that ended before it
	// could ask for that.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := sysprog.New()
	p.Call("set the parent's death signal", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	soon := binary.NativeEndian.AppendUint64(nil, 60) // seconds
	soon = binary.NativeEndian.AppendUint64(soon, 0)  // nanoseconds
	p.Call("wait to be killed", unix.SYS_PPOLL, 0, 0, p.Ptr(soon), 0, 0)
	pid, pidfd, err := p.Fork(unix.CLONE_NEWUSER, sysprog.ForkOptions{Pidfd: true})
	if err != nil {
		return err
	}
	defer p.Release()
	defer func() {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		_ = unix.Waitid(unix.P_PIDFD, pidfd, nil, unix.WEXITED, nil)
		unix.Close(pidfd)
	}()
	line := fmt.Appendf(nil, "0 %d %d\n", base, rangeSize)
	for _, name := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, name), line, 0); err != nil {
			return err
		}
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	return f(int(ns.Fd()))
}

// probeUserNamespace says whether a user namespace with a range of ids can be made.
func probeUserNamespace() error {
	return withUserNamespace(idBase(lastRange), func(int) error { return nil })
}

// probeIDMap says whether directories on the data directory's filesystem can be
// shown with shifted ids, as the read-only layers of images are.
func probeIDMap(data string) (err error) {
	dir, err := os.MkdirTemp(data, "probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eraseTree(dir)) }()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		return err
	}
	base := idBase(lastRange)
	return withUserNamespace(base, func(ns int) error {
		tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open_tree: %w", err)
		}
		defer unix.Close(tree)
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY, Userns_fd: uint64(ns)}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return fmt.Errorf("mount_setattr: %w", err)
		}
		var st unix.Stat_t
		if err := unix.Fstatat(tree, "file", &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		if st.Uid != base {
			return fmt.Errorf("a file of user 0 is shown as user %d, not %d", st.Uid, base)
		}
		return nil
	})
}
