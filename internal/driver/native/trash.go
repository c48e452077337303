package native

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// trash deletes trees in the background. A tree is gone from everybody's view
// once it has been renamed into the trash directory, and its deletion survives
// crashes: what lies there at the start is deleted then.
type trash struct {
	dir  string
	log  *slog.Logger
	wake chan struct{}
	done sync.WaitGroup
}

// trashRetry is the pause before files that could not be deleted are tried again.
const trashRetry = time.Minute

func openTrash(ctx context.Context, dir string, log *slog.Logger) (*trash, error) {
	if err := makeDir(dir, 0o700); err != nil {
		return nil, err
	}
	t := &trash{dir: dir, log: log, wake: make(chan struct{}, 1)}
	t.poke()
	t.done.Go(func() { t.run(ctx) })
	return t, nil
}

// put takes the tree at path, which is on the trash's filesystem. Nil when there
// is none.
func (t *trash) put(path string) error {
	err := moveToTrash(t.dir, path)
	t.poke()
	return err
}

func moveToTrash(dir, path string) error {
	name := filepath.Base(path) + "-" + rand.Text()
	if err := os.Rename(path, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("move %s to the trash: %w", path, err)
	}
	return nil
}

// wait ends when run has, which its context makes it do.
func (t *trash) wait() { t.done.Wait() }

func (t *trash) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *trash) run(ctx context.Context) {
	var again <-chan time.Time // set while something could not be deleted
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-again:
		}
		again = nil
		if err := emptyTrash(ctx, t.dir); err != nil && ctx.Err() == nil {
			t.log.Error("files of removed sandboxes could not be deleted; it is tried again", "op", "trash", "err", err)
			again = time.After(trashRetry)
		}
	}
}

// emptyTrash deletes what lies in dir. It never enters a mount and never follows
// a link: the trees were written by sandboxes, and a mount below one would hold
// somebody else's files. Trees deeper than maxDepth are cut there and their
// lower part is put beside the rest, so that no depth needs more descriptors.
func emptyTrash(ctx context.Context, dir string) error {
	root, err := openDirAt(unix.AT_FDCWD, dir, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	e := eraser{ctx: ctx, root: int(root.Fd())}
	var errs []error
	for failed := map[string]bool{}; ; {
		names, err := readNames(root)
		if err != nil {
			return err
		}
		left := 0
		for _, name := range names {
			if failed[name] {
				continue
			}
			left++
			if err := e.erase(e.root, name, 0); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				failed[name] = true
				errs = append(errs, err)
			}
		}
		if left == 0 {
			return errors.Join(errs...)
		}
	}
}

const maxDepth = 100

// eraseTree deletes the tree at path in the manner of emptyTrash.
func eraseTree(path string) error {
	parent, err := openDirAt(unix.AT_FDCWD, filepath.Dir(path), 0)
	if err != nil {
		return err
	}
	defer parent.Close()
	fd := int(parent.Fd())
	return eraser{ctx: context.Background(), root: fd}.erase(fd, filepath.Base(path), 0)
}

type eraser struct {
	ctx  context.Context
	root int // where too deep parts are moved to
}

// erase deletes name in the directory dirfd, whatever it is.
func (e eraser) erase(dirfd int, name string, depth int) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	err := unix.Unlinkat(dirfd, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return fmt.Errorf("delete %q: %w", name, err)
	}
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err == nil || err == unix.ENOENT {
		return nil
	} else if err != unix.ENOTEMPTY && err != unix.EEXIST {
		return fmt.Errorf("delete directory %q: %w", name, err)
	}
	if depth >= maxDepth {
		if err := unix.Renameat(dirfd, name, e.root, rand.Text()); err != nil {
			return fmt.Errorf("move %q: %w", name, err)
		}
		return nil
	}
	return e.eraseDir(dirfd, name, depth)
}

func (e eraser) eraseDir(dirfd int, name string, depth int) error {
	d, err := openDirAt(dirfd, name, unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	defer d.Close()
	names, err := readNames(d)
	if err != nil {
		return fmt.Errorf("read %q: %w", name, err)
	}
	var first error // the rest goes all the same
	for _, n := range names {
		if err := e.erase(int(d.Fd()), n, depth+1); err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return first
	}
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return fmt.Errorf("delete directory %q: %w", name, err)
	}
	return nil
}

// openDirAt opens a directory for reading its names.
func openDirAt(dirfd int, name string, resolve uint64) (*os.File, error) {
	fd, err := unix.Openat2(dirfd, name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: resolve,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func readNames(d *os.File) ([]string, error) {
	if _, err := d.Seek(0, 0); err != nil {
		return nil, err
	}
	return d.Readdirnames(-1)
}
