package image

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	whiteoutPrefix = ".wh."
	whiteoutOpaque = ".wh..wh..opq"
	whiteoutMeta   = ".wh..wh." // other bookkeeping of aufs
)

// whiteoutEntry does an entry that hides something of the layers below. By the
// OCI specification it never hides what its own layer has, in either order.
func (a *applier) whiteoutEntry(e entry) error {
	parent := parentOf(e.path)
	if e.base == whiteoutOpaque {
		if parent == "" {
			return a.hideAll()
		}
		return a.makeOpaque(e.dir)
	}
	if strings.HasPrefix(e.base, whiteoutMeta) {
		return nil
	}
	name := strings.TrimPrefix(e.base, whiteoutPrefix)
	if name == "" || name == "." || name == ".." {
		return failed("", "it is a whiteout of nothing")
	}
	return a.hide(e.dir, parent, name)
}

// hide makes what the layers below have at parent/name invisible.
func (a *applier) hide(dir int, parent, name string) error {
	below, err := a.view.lookup(join(parent, name), 1)
	if err != nil {
		return err
	}
	if !below.found {
		// A whiteout of nothing would show as a device in a directory that overlay
		// does not merge.
		return nil
	}
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		if err := unix.Mknodat(dir, name, unix.S_IFCHR, 0); err != nil {
			return fmt.Errorf("whiteout: %w", err)
		}
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil // hides what is below already
	}
	fd, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return a.makeOpaque(fd)
}

// hideAll is the opaque mark of the root, where overlayfs does not look for the
// attribute: each name below is hidden on its own.
func (a *applier) hideAll() error {
	names, err := a.view.names(1)
	if err != nil {
		return err
	}
	for name := range names {
		if err := a.hide(a.root, "", name); err != nil {
			return err
		}
	}
	return nil
}

// makeOpaque hides what the layers below have in a directory of this layer.
func (a *applier) makeOpaque(fd int) error {
	if err := unix.Fsetxattr(fd, opaqueXattr, []byte("y"), 0); err != nil {
		return fmt.Errorf("opaque mark: %w", err)
	}
	return dropWhiteouts(fd)
}
