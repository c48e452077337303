package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// copyRoot gives the new layer's root the looks of the root below it: overlay
// shows the topmost one, and most layers do not name their root.
func (a *applier) copyRoot() error {
	if len(a.view.layers) == 1 {
		if err := unix.Fchmod(a.root, 0o755); err != nil {
			return err
		}
		a.times[""] = unix.Timespec{}
		return nil
	}
	h, err := a.view.lookup("", 1)
	if err != nil {
		return err
	}
	return a.copyDir(a.root, "", h)
}

// copyDir gives fd the looks of the directory p of a layer below.
func (a *applier) copyDir(fd int, p string, h hit) error {
	from, err := openBeneath(a.view.layers[h.layer], p, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("copy directory %q: %w", p, err)
	}
	defer unix.Close(from)
	if err := copyLooks(fd, from, &h.stat); err != nil {
		return fmt.Errorf("copy directory %q: %w", p, err)
	}
	a.times[p] = h.stat.Mtim
	return nil
}

// copyUp copies the regular file p of a layer below to dir/base in this one.
func (a *applier) copyUp(dir int, base, p string) error {
	h, err := a.view.lookup(p, 0)
	if err != nil {
		return err
	}
	if !h.is(unix.S_IFREG) {
		return failed("", "it is a hard link to %s, which is not there", quote(shorten(p)))
	}
	if err := a.budget.spend(h.stat.Size); err != nil {
		return err
	}
	from, err := openBeneath(a.view.layers[h.layer], p, unix.O_RDONLY)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(from), p)
	defer src.Close()
	fd, err := unix.Openat(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), p)
	_, err = io.Copy(dst, src)
	if err == nil {
		err = copyLooks(fd, from, &h.stat)
	}
	if err == nil {
		err = setTimes(fd, h.stat.Mtim)
	}
	return errors.Join(err, dst.Close())
}

func copyLooks(to, from int, st *unix.Stat_t) error {
	if err := unix.Fchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(to, st.Mode&0o7777); err != nil {
		return err
	}
	list := make([]byte, 64<<10) // the kernel's limit for all names of a file
	n, err := unix.Flistxattr(from, list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return err
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.Trim(string(list[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		n, err := unix.Fgetxattr(from, name, value)
		if err != nil {
			return err
		}
		if keepXattr(name, value[:n]) {
			if err := setXattr(to, name, value[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}
