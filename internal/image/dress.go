package image

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const paxXattr = "SCHILY.xattr."

// dress gives an open file or directory its owner, mode, attributes and time, in
// the order in which one does not undo the other: a change of owner drops the
// set-uid bits and the capabilities. dir is the path of a directory, whose time
// is set when all is written.
func (a *applier) dress(fd int, dir string, hdr *tar.Header) error {
	if err := unix.Fchown(fd, hdr.Uid, hdr.Gid); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	if err := unix.Fchmod(fd, uint32(hdr.Mode)&0o7777); err != nil {
		return fmt.Errorf("mode: %w", err)
	}
	for key, value := range hdr.PAXRecords {
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok || !keepXattr(name, []byte(value)) {
			continue
		}
		if err := setXattr(fd, name, []byte(value)); err != nil {
			return err
		}
	}
	t := timespec(hdr.ModTime)
	if hdr.Typeflag == tar.TypeDir {
		a.times[dir] = t
		return nil
	}
	return setTimes(fd, t)
}

// dressAt is dress for what cannot be opened: symlinks and pipes. No attributes
// are carried for them.
func (a *applier) dressAt(e entry, mode bool) error {
	if err := unix.Fchownat(e.dir, e.base, e.Uid, e.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	if mode { // just made here as a pipe, so no symlink is followed
		if err := unix.Fchmodat(e.dir, e.base, uint32(e.Mode)&0o7777, 0); err != nil {
			return fmt.Errorf("mode: %w", err)
		}
	}
	t := timespec(e.ModTime)
	return unix.UtimesNanoAt(e.dir, e.base, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}

// keepXattr says which attributes an image may bring. trusted.* and user.overlay.*
// steer overlayfs; the other security.* belong to the host's security modules.
func keepXattr(name string, value []byte) bool {
	switch {
	case name == "security.capability":
		return true
	case strings.HasPrefix(name, "user."):
		return !strings.HasPrefix(name, "user.overlay.")
	case name == "system.posix_acl_access", name == "system.posix_acl_default":
		return aclInRange(value)
	}
	return false
}

// aclInRange checks the ids of a POSIX ACL: a version, then (tag, permissions, id)
// of 2, 2 and 4 bytes.
func aclInRange(b []byte) bool {
	if len(b) < 4 || (len(b)-4)%8 != 0 {
		return false
	}
	for b = b[4:]; len(b) > 0; b = b[8:] {
		if id := binary.LittleEndian.Uint32(b[4:]); id > maxID && id != 0xffffffff {
			return false
		}
	}
	return true
}

// setXattr leaves an attribute out where the filesystem has none of its kind,
// except capabilities, without which a program does not work.
func setXattr(fd int, name string, value []byte) error {
	err := unix.Fsetxattr(fd, name, value, 0)
	if errors.Is(err, unix.ENOTSUP) && name != "security.capability" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("attribute %s: %w", name, err)
	}
	return nil
}

func timespec(t time.Time) unix.Timespec {
	if t.IsZero() {
		return unix.Timespec{}
	}
	return unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
}

func setTimes(fd int, t unix.Timespec) error {
	tv := []unix.Timespec{t, t}
	if err := unix.UtimesNanoAt(fd, "", tv, unix.AT_EMPTY_PATH); err == nil || !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Kernels before 5.8 know no empty path here.
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), tv, 0)
}
