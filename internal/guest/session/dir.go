package session

import (
	"golang.org/x/sys/unix"
)

// dir is the directory of one session, in a tmpfs of the guest, so that a full
// disk of the sandbox changes nothing. Everything in it is reached through a
// held descriptor without following links. Root in the sandbox can remove or
// replace the directory; then the next command gets a new one.
type dir struct {
	base     string // where session directories are made
	path     string
	fd       int
	dev, ino uint64
	uid, gid int // of the session's user, who owns the files
}

func newDir(base string) (*dir, error) {
	for _, c := range []byte(base) {
		if !plain(c) && c != '/' { // the path goes into control lines without quotes
			return nil, unix.EINVAL
		}
	}
	d := &dir{base: base, fd: -1}
	return d, d.make()
}

// make makes a new directory in place of the old one, if any.
func (d *dir) make() error {
	if err := unix.Mkdir(d.base, 0o711); err == nil {
		// The umask may have cut the bit that lets other users in.
		if err := unix.Chmod(d.base, 0o711); err != nil {
			return err
		}
	}
	d.close()
	path := d.base + "/" + random(16)
	if err := unix.Mkdir(path, 0o711); err != nil {
		return err
	}
	d.path = path
	fd, err := unix.Open(d.path, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	d.fd = fd
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	d.dev, d.ino = uint64(st.Dev), st.Ino
	return unix.Fchmod(fd, 0o711)
}

// ensure makes a new directory when the path does not lead to ours any more.
func (d *dir) ensure() error {
	var st unix.Stat_t
	if err := unix.Lstat(d.path, &st); err == nil && uint64(st.Dev) == d.dev && st.Ino == d.ino {
		return nil
	}
	return d.make()
}

// put writes a file for bash to read and sets its access time to 0.
func (d *dir) put(name string, data []byte) error {
	unix.Unlinkat(d.fd, name, 0) // a reader of the old file keeps it
	fd, err := unix.Openat(d.fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			d.remove(name)
			return err
		}
		data = data[n:]
	}
	if err := unix.Fchmod(fd, 0o600); err != nil {
		return err
	}
	if err := unix.Fchown(fd, d.uid, d.gid); err != nil {
		return err
	}
	return touch(fd)
}

// wasRead says whether the access time of a file has moved since put. A file
// that is gone was removed by the command itself, which has to have run.
func (d *dir) wasRead(name string) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return true
	}
	return st.Atim.Sec != 0
}

// fifo makes a FIFO and opens its reading end. Mode 0600: a wider one would let
// other users of the sandbox write into the record.
func (d *dir) fifo(name string) (fd int, err error) {
	if err := unix.Mkfifoat(d.fd, name, 0o600); err != nil {
		return -1, err
	}
	if err := unix.Fchownat(d.fd, name, d.uid, d.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		d.remove(name)
		return -1, err
	}
	fd, err = unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		d.remove(name)
	}
	return fd, err
}

func (d *dir) remove(names ...string) {
	for _, n := range names {
		if n != "" {
			unix.Unlinkat(d.fd, n, 0)
		}
	}
}

// close removes the directory with what is left in it.
func (d *dir) close() {
	if d.fd < 0 {
		return
	}
	for _, n := range listOpen(d.fd) {
		if unix.Unlinkat(d.fd, n, 0) == unix.EISDIR {
			unix.Unlinkat(d.fd, n, unix.AT_REMOVEDIR)
		}
	}
	unix.Rmdir(d.path)
	closeAll(d.fd)
	d.fd = -1
}
