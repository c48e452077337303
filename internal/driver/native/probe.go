package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// probeOverlay makes an overlay of the kind that a sandbox's root is on the data
// directory's filesystem, and uses it: creates, deletes a file of the lower
// layer, and replaces a directory of it. The mount is attached nowhere and gone
// with its descriptor.
func probeOverlay(data string) (err error) {
	dir, err := os.MkdirTemp(data, "probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eraseTree(dir)) }()
	for _, d := range []string{"l/gone", "u", "w"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, f := range []string{"l/file", "l/gone/old"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			return err
		}
	}
	mnt, err := mountOverlay(dir)
	if err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	defer unix.Close(mnt)
	return useOverlay(mnt)
}

func mountOverlay(dir string) (int, error) {
	fd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	for _, kv := range [][2]string{{"lowerdir", "l"}, {"upperdir", "u"}, {"workdir", "w"}} {
		if err := unix.FsconfigSetString(fd, kv[0], filepath.Join(dir, kv[1])); err != nil {
			return -1, fmt.Errorf("%s: %w", kv[0], err)
		}
	}
	if err := unix.FsconfigSetFlag(fd, "volatile"); err != nil {
		return -1, fmt.Errorf("volatile: %w", err)
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return -1, err
	}
	return unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, 0)
}

func useOverlay(mnt int) error {
	f, err := unix.Openat(mnt, "new", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create a file: %w", err)
	}
	unix.Close(f)
	if err := unix.Unlinkat(mnt, "file", 0); err != nil {
		return fmt.Errorf("delete a file of the image (whiteouts): %w", err)
	}
	if err := errors.Join(unix.Unlinkat(mnt, "gone/old", 0), unix.Unlinkat(mnt, "gone", unix.AT_REMOVEDIR),
		unix.Mkdirat(mnt, "gone", 0o755)); err != nil {
		return fmt.Errorf("replace a directory of the image: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(mnt, "gone/old", &st, unix.AT_SYMLINK_NOFOLLOW); err != unix.ENOENT {
		return fmt.Errorf("a replaced directory still shows the image's files (extended attributes): %v", err)
	}
	return nil
}

// filesystemName is the type of the filesystem at path, for messages.
func filesystemName(path string) string {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return "unknown"
	}
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs",
		unix.F2FS_SUPER_MAGIC: "f2fs", unix.V9FS_MAGIC: "9p", unix.FUSE_SUPER_MAGIC: "fuse",
		unix.RAMFS_MAGIC: "ramfs", unix.SMB2_SUPER_MAGIC: "smb", 0x2fc12fc1: "zfs", 0x6a656a63: "virtiofs",
	}
	if n := names[int64(st.Type)]; n != "" {
		return n
	}
	return fmt.Sprintf("type %#x", st.Type)
}
