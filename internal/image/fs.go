package image

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// beneath keeps a lookup below its directory, off symlinks and off mounts.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openBeneath opens p below dir; the empty p is dir itself.
func openBeneath(dir int, p string, flags int) (int, error) {
	if p == "" {
		p = "."
	}
	for {
		fd, err := unix.Openat2(dir, p, &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: beneath})
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return fd, err
	}
}

func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func isOpaque(fd int) bool {
	var b [2]byte
	n, err := unix.Fgetxattr(fd, opaqueXattr, b[:])
	return err == nil && n == 1 && b[0] == 'y'
}

func readlinkAt(dir int, p string) (string, error) {
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, p, b)
	if err != nil {
		return "", fmt.Errorf("read link %q: %w", p, err)
	}
	return string(b[:n]), nil
}

func readNames(dir int) ([]string, error) {
	fd, err := openBeneath(dir, "", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "layer")
	defer f.Close()
	return f.Readdirnames(-1)
}

// removeTree deletes name below dir, whatever it is, and nothing when it is not
// there. It does not follow symlinks and refuses to cross into another mount.
func removeTree(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	fd, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	defer unix.Close(fd)
	names, err := readNames(fd)
	if err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	for _, n := range names {
		if err := removeTree(fd, n); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	return nil
}

// dropWhiteouts deletes the whiteouts in a tree that has become opaque: with
// nothing below they would show as devices.
func dropWhiteouts(dir int) error {
	names, err := readNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		switch {
		case isWhiteout(&st):
			err = unix.Unlinkat(dir, name, 0)
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			var fd int
			if fd, err = openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
				err = dropWhiteouts(fd)
				unix.Close(fd)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// syncDir makes renames in a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
