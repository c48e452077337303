package spawner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// directories makes the run directory and, unless it is there, the writable layer.
func (c *parts) directories(u *undo) error {
	if err := c.runDir(u); err != nil {
		return err
	}
	if _, err := makeDir(c.req.StateDir, 0o700, u); err != nil {
		return stepError("make the state directory", err)
	}
	if err := c.upper(u); err != nil {
		return err
	}
	if err := c.work(u); err != nil {
		return err
	}
	if c.host.overlay != overlayAttach {
		return nil // the root is mounted on what is there
	}
	if _, err := makeDir(filepath.Join(c.req.StateDir, attachPoint), 0o700, u); err != nil {
		return stepError("make the mount point", err)
	}
	return nil
}

// work makes the work directory, anew where there is one. What overlay keeps in it is
// of use only while it is mounted, but it refuses one that a volatile mount used
// before. Its owner has ended, so the files are whole; sync them before that mark
// goes.
func (c *parts) work(u *undo) error {
	work := filepath.Join(c.req.StateDir, "w")
	fresh, err := makeDir(work, 0o700, u)
	if err != nil {
		return stepError("make the work directory", err)
	}
	if fresh {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(work, "work/incompat/volatile")); err == nil {
		if err := syncFS(work); err != nil {
			return stepError("sync the writable layer", err)
		}
	}
	if err := os.RemoveAll(work); err != nil {
		return stepError("empty the work directory", err)
	}
	if _, err := makeDir(work, 0o700, u); err != nil {
		return stepError("make the work directory", err)
	}
	return nil
}

// runDir makes <run>/<id> and removes what an earlier run left in it.
func (c *parts) runDir(u *undo) error {
	fresh, err := makeDir(c.req.RunDir, 0o711, u)
	if err != nil {
		return stepError("make the run directory", err)
	}
	if fresh {
		return nil
	}
	for _, name := range []string{spawn.GuestSock, spawn.RecordFile, spawn.ExitFile, spawn.LogFile, spawn.LogFile + ".1", logPipe} {
		if err := os.Remove(filepath.Join(c.req.RunDir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return stepError("clear the run directory", err)
		}
	}
	return nil
}

// upper makes the writable layer. Its own owner and mode are those of / inside, so
// they follow the highest layer.
func (c *parts) upper(u *undo) error {
	path := filepath.Join(c.req.StateDir, "u")
	if _, err := os.Lstat(path); err == nil {
		return nil // of an earlier run
	} else if !errors.Is(err, os.ErrNotExist) {
		return stepError("look at the writable layer", err)
	}
	mode := os.FileMode(0o755)
	if info, err := os.Stat(c.req.Layers[len(c.req.Layers)-1]); err == nil {
		mode = info.Mode().Perm()
	}
	if _, err := makeDir(path, mode, u); err != nil {
		return stepError("make the writable layer", err)
	}
	if err := os.Chown(path, int(c.req.IDBase), int(c.req.IDBase)); err != nil {
		return stepError("give away the writable layer", err)
	}
	return nil
}

// makeDir makes a directory with exactly this mode. One that is there is taken as
// it is, and is not undone; it is not fresh.
func makeDir(path string, mode os.FileMode, u *undo) (fresh bool, err error) {
	err = os.Mkdir(path, mode)
	if errors.Is(err, os.ErrExist) {
		info, err := os.Lstat(path)
		if err == nil && !info.IsDir() {
			err = unix.ENOTDIR
		}
		return false, err
	}
	if err != nil {
		return false, err
	}
	u.push(func() { _ = os.RemoveAll(path) }) // mounts on it are in namespaces that are gone
	return true, os.Chmod(path, mode)
}

// endpoints makes the guest's listening socket and its log.
func (c *parts) endpoints(u *undo) error {
	var err error
	if c.listen, err = listen(c.req.RunDir); err != nil {
		return stepError("listen for the guest", err)
	}
	u.push(func() { _ = os.Remove(filepath.Join(c.req.RunDir, spawn.GuestSock)) })
	u.push(func() { _ = os.Remove(filepath.Join(c.req.RunDir, logPipe)) })
	if c.log, err = makeLog(c.req.RunDir); err != nil {
		return stepError("make the guest's log", err)
	}
	return nil
}

// backlog of the guest's socket: calls that come before the guest runs wait there.
const backlog = 128

func listen(dir string) (int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return -1, err
	}
	defer d.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// By the descriptor: the name of a socket has 107 bytes at most.
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), spawn.GuestSock)})
	if err == nil {
		err = os.Chmod(filepath.Join(dir, spawn.GuestSock), 0o600)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// syncFS writes the file system of a directory to its disk.
func syncFS(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
