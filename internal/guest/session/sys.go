package session

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poll waits for an event on one of the descriptors, at most d; d < 0 waits
// without a limit. An interrupted wait is an early return: callers look again.
func poll(p []unix.PollFd, d time.Duration) {
	var ts *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(int64(d))
		ts = &t
	}
	if n, err := unix.Ppoll(p, ts, nil); n <= 0 || err != nil {
		for i := range p {
			p[i].Revents = 0
		}
	}
}

// pair gives two connected sockets, ours not blocking. Sockets, not pipes:
// nobody can open them again through /proc/PID/fd.
func pair() (ours, theirs int, err error) {
	fd, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	return fd[0], fd[1], unix.SetNonblock(fd[0], true)
}

// queued is the number of bytes that wait in a pipe to be read.
func queued(fd int) int { return ioctlInt(fd, unix.TIOCINQ) }

// unread is the number of bytes we wrote to a socket that its peer has not read.
func unread(fd int) int { return ioctlInt(fd, unix.TIOCOUTQ) }

func ioctlInt(fd int, req uint) int {
	n, err := unix.IoctlGetInt(fd, req)
	if err != nil {
		return 0
	}
	return n
}

// touch sets the access time of an open file to 0, older than its modification,
// so that reading it moves the access time under relatime too.
func touch(fd int) error {
	ts := [2]unix.Timespec{{}, {Nsec: unix.UTIME_OMIT}}
	_, _, e := syscall.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// readFile reads at most len(buf) bytes of a small file such as those in /proc.
func readFile(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return buf[:n], err
		}
		if m <= 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

// list gives the names in a directory, without "." and "..".
func list(path string) []string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	return listOpen(fd)
}

// listOpen is list for a directory that was just opened.
func listOpen(fd int) []string {
	var names []string
	var buf [4096]byte
	for {
		n, err := unix.ReadDirent(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return names
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

// random gives n hexadecimal digits that nobody can guess.
func random(n int) string {
	const digits = "0123456789abcdef"
	b := make([]byte, n)
	for got := 0; got < n; {
		m, err := unix.Getrandom(b[got:], 0)
		if err != nil && err != unix.EINTR {
			panic("session: no random bytes: " + err.Error()) // cannot happen since Linux 3.17
		}
		got += max(m, 0)
	}
	for i := range b {
		b[i] = digits[b[i]&15]
	}
	return string(b)
}

// closeAll closes what is open.
func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
