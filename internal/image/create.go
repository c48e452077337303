package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// create makes what an entry describes, in place of what the layer had there.
func (a *applier) create(e entry, r io.Reader) error {
	switch e.Typeflag {
	case tar.TypeDir:
		return a.directory(e)
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		return a.file(e, r)
	case tar.TypeSymlink:
		return a.symlink(e)
	case tar.TypeLink:
		return a.hardlink(e)
	case tar.TypeFifo:
		if _, err := a.clear(e.dir, e.base, false); err != nil {
			return err
		}
		if err := unix.Mknodat(e.dir, e.base, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
		return a.dressAt(e, true)
	case tar.TypeChar, tar.TypeBlock:
		// A root filesystem made by a bootstrap tool has the usual nodes; each
		// sandbox gets a /dev of its own. Any other could reach the host's devices,
		// and 0:0 would be a whiteout.
		if strings.HasPrefix(e.full, "dev/") {
			return nil
		}
		return failed("build the image without it: sandboxes have their own /dev", "it is a device node outside of /dev")
	}
	return failed("", "its type %q is not known", e.Typeflag)
}

// clear removes what this layer has at a name. A directory is kept when a
// directory comes. It says whether the new directory must be opaque: something of
// this layer stood there that hid the layers below.
func (a *applier) clear(dir int, base string, wantDir bool) (opaque bool, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.Unlinkat(dir, base, 0)
		return wantDir, err
	}
	if wantDir {
		return false, nil
	}
	err = removeTree(dir, base)
	return false, err
}

func (a *applier) directory(e entry) error {
	opaque, err := a.clear(e.dir, e.base, true)
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(e.dir, e.base, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := openBeneath(e.dir, e.base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if opaque {
		if err := a.makeOpaque(fd); err != nil {
			return err
		}
	}
	return a.dress(fd, e.path, e.Header)
}

func (a *applier) file(e entry, r io.Reader) error {
	if err := a.budget.spend(e.Size); err != nil {
		return err
	}
	if err := a.replace(e); err != nil {
		return err
	}
	fd, err := unix.Openat(e.dir, e.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = a.fill(fd, r, e.Size)
	if err == nil {
		err = a.dress(fd, "", e.Header)
	}
	return errors.Join(err, unix.Close(fd))
}

// fill writes size bytes of r; blocks of zeros become holes.
func (a *applier) fill(fd int, r io.Reader, size int64) error {
	hole := false
	for at := int64(0); at < size; {
		n, err := io.ReadFull(r, a.buf[:min(int64(len(a.buf)), size-at)])
		if err != nil {
			return errors.Join(errDamaged, err)
		}
		if err := a.ctx.Err(); err != nil {
			return canceled(err)
		}
		if hole = n >= 4096 && allZero(a.buf[:n]); !hole {
			if err := writeAt(fd, a.buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	if hole {
		return unix.Ftruncate(fd, size)
	}
	return nil
}

func writeAt(fd int, b []byte, at int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

func (a *applier) symlink(e entry) error {
	if e.Linkname == "" || strings.IndexByte(e.Linkname, 0) >= 0 {
		return failed("", "it is a symbolic link to nothing")
	}
	if err := a.replace(e); err != nil {
		return err
	}
	if err := unix.Symlinkat(e.Linkname, e.dir, e.base); err != nil {
		return err
	}
	return a.dressAt(e, false)
}

// hardlink links to a file of this layer, or to one below, which is then copied
// here: a link cannot reach into another layer.
func (a *applier) hardlink(e entry) error {
	target, err := cleanName(e.Linkname)
	if err != nil || target == "" {
		return failed("", "it is a hard link to %s, out of the image", quote(shorten(e.Linkname)))
	}
	// Both parents are needed at once, so this one stays open on its own.
	dir, err := unix.FcntlInt(uintptr(e.dir), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	to, toPath, err := a.enter(parentOf(target))
	if err != nil {
		return err
	}
	base := target[strings.LastIndexByte(target, '/')+1:]
	toPath = join(toPath, base)
	if toPath == e.path {
		return nil
	}
	var st unix.Stat_t
	err = unix.Fstatat(to, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		err = a.copyUp(to, base, toPath)
		if err == nil {
			err = unix.Fstatat(to, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		}
	}
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR || isWhiteout(&st) {
		return failed("", "it is a hard link to %s, which is no file", quote(shorten(e.Linkname)))
	}
	to, err = unix.FcntlInt(uintptr(to), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	// What e replaces may hold the directory that is remembered now.
	a.forget()
	e.dir = dir
	if err := a.replace(e); err != nil {
		return err
	}
	if err := unix.Linkat(to, base, dir, e.base, 0); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return failed("", "it is a hard link to %s, which is not there", quote(shorten(e.Linkname)))
		}
		return err
	}
	return nil
}

// replace makes room for something that is no directory.
func (a *applier) replace(e entry) error {
	_, err := a.clear(e.dir, e.base, false)
	return err
}

func join(dir, base string) string {
	if dir == "" {
		return base
	}
	return dir + "/" + base
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
