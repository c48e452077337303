package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// diskUsage counts the bytes that the tree at path takes on disk: blocks, not
// lengths, and files with several names once. The sandbox may be writing all the
// while, so the answer is a good estimate and no more.
//
// Directories wait in a queue as file handles: however deep a sandbox nests its
// directories, and however it moves them meanwhile, one descriptor is open at a
// time and nothing outside the tree is reached.
func diskUsage(ctx context.Context, path string) (int64, error) {
	root, err := openDirAt(unix.AT_FDCWD, path, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return 0, fmt.Errorf("disk usage: %w", err)
	}
	defer root.Close()
	w := usageWalk{root: int(root.Fd()), seen: map[uint64]struct{}{}}
	var st unix.Statx_t
	if err := unix.Statx(w.root, "", unix.AT_EMPTY_PATH, statxMask, &st); err != nil {
		return 0, fmt.Errorf("disk usage: %w", err)
	}
	w.major, w.minor = st.Dev_major, st.Dev_minor
	w.bytes = int64(st.Blocks) * 512
	h, _, err := unix.NameToHandleAt(w.root, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return 0, fmt.Errorf("disk usage: file handles: %w", err)
	}
	w.queue = append(w.queue, h)
	for len(w.queue) > 0 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		last := len(w.queue) - 1
		h := w.queue[last]
		w.queue = w.queue[:last]
		if err := w.dir(h); err != nil {
			return 0, fmt.Errorf("disk usage: %w", err)
		}
	}
	return w.bytes, nil
}

const statxMask = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS

type usageWalk struct {
	root         int
	major, minor uint32 // of the tree's filesystem
	queue        []unix.FileHandle
	seen         map[uint64]struct{} // inodes of directories and of files with several names
	bytes        int64
}

// dir counts what a directory holds and queues its directories.
func (w *usageWalk) dir(h unix.FileHandle) error {
	fd, err := unix.OpenByHandleAt(w.root, h, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	if err == unix.ESTALE || err == unix.ENOENT {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), "dir")
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if err := w.entry(fd, name); err != nil {
				return err
			}
		}
		if len(names) == 0 || err != nil {
			// A directory that was deleted while it is read ends early.
			return nil
		}
	}
}

func (w *usageWalk) entry(dirfd int, name string) error {
	var st unix.Statx_t
	err := unix.Statx(dirfd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, statxMask, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Dev_major != w.major || st.Dev_minor != w.minor || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return nil // a mount is not the sandbox's
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir || st.Nlink > 1 {
		if _, again := w.seen[st.Ino]; again {
			return nil
		}
		w.seen[st.Ino] = struct{}{}
	}
	w.bytes += int64(st.Blocks) * 512
	if !isDir {
		return nil
	}
	h, _, err := unix.NameToHandleAt(dirfd, name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	w.queue = append(w.queue, h)
	return nil
}

// usageCache keeps the last count of one tree.
type usageCache struct {
	bytes          int64
	blocks, inodes uint64 // free on the filesystem at the count
	at             time.Time
	took           time.Duration
}

// usageShare bounds the work: counting takes at most one part in that many of
// the time, so a tree with very many files is counted less often.
const usageShare = 10

// diskUsageOf counts the files of a sandbox that runs with this guest, those
// without a name too. It gives what was counted before when nothing was written to
// the filesystem since, or when counting just took long.
func (d *Driver) diskUsageOf(ctx context.Context, id string, guest int) (int64, error) {
	var fsStat unix.Statfs_t
	if err := unix.Statfs(d.dirs.upper(id), &fsStat); err != nil {
		return 0, fmt.Errorf("disk usage of %s: %w", id, err)
	}
	d.usageMu.Lock()
	c, ok := d.usage[id]
	d.usageMu.Unlock()
	same := fsStat.Bfree == c.blocks && fsStat.Ffree == c.inodes
	if ok && (same || time.Since(c.at) < usageShare*c.took) {
		return c.bytes, nil
	}
	start := time.Now()
	named, err := diskUsage(ctx, d.dirs.upper(id))
	if err != nil {
		return 0, err
	}
	deleted, err := deletedUsage(ctx, guest)
	if err != nil {
		return 0, err
	}
	d.usageMu.Lock()
	defer d.usageMu.Unlock()
	d.usage[id] = usageCache{bytes: named + deleted, blocks: fsStat.Bfree, inodes: fsStat.Ffree, at: time.Now(), took: time.Since(start)}
	return named + deleted, nil
}

func (d *Driver) forgetUsage(id string) {
	d.usageMu.Lock()
	defer d.usageMu.Unlock()
	delete(d.usage, id)
}
