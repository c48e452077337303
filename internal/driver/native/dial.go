package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// dialRetry is the pause while the guest's queue of connections is full.
const dialRetry = 5 * time.Millisecond

func notStarted(id string) error {
	return sos.Errorf(sos.CodeNotStarted, "sandbox %s does not run", id)
}

// Dial connects to the socket that the guest listens on.
func (d *Driver) Dial(ctx context.Context, id string) (net.Conn, error) {
	if !isID(id) {
		return nil, notStarted(id)
	}
	for {
		c, err := dialUnix(ctx, "unix", d.dirs.socket(id))
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED):
			return nil, notStarted(id)
		case !errors.Is(err, unix.EAGAIN):
			return nil, fmt.Errorf("dial the guest of %s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dial the guest of %s: %w", id, ctx.Err())
		case <-time.After(dialRetry):
		}
	}
}

// dialUnix connects to a socket whose path may be longer than the 107 bytes that
// an address has room for: by way of a descriptor of its directory.
func dialUnix(ctx context.Context, network, path string) (net.Conn, error) {
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, fdPath(dir, filepath.Base(path)))
}

// fdPath is a short path of name in an open directory.
func fdPath(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}
