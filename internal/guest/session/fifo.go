package session

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// fifo is the reading end of one command's output. Each command has its own, so
// that what it leaves in the background can never write into another's record.
type fifo struct {
	fd     int
	opened bool   // somebody has had it open for writing
	over   bool   // all writers are gone and everything was read
	held   []byte // read, but may be the beginning of stray
	stray  []byte // how a report of ours begins when it comes here; see clean
	cut    bool   // it came: nothing after it is the command's
	buf    []byte // the shell's
}

// pump passes on what there is, at most as much as out has space for and most
// bytes. It returns the number of bytes read.
func (f *fifo) pump(out Output, most int) (total int) {
	for !f.over && total < most {
		space := out.Space()
		if space <= len(f.held) {
			f.flush(out)
			return total
		}
		n := min(space-len(f.held), len(f.buf), most-total)
		got, err := unix.Read(f.fd, f.buf[:n])
		switch {
		case got > 0:
			f.opened = true
			total += got
			f.clean(out, f.buf[:got], got == n)
		case err == unix.EINTR:
		case err == unix.EAGAIN: // a writer is there
			f.opened = true
			return total
		default:
			f.look()
			return total
		}
	}
	return total
}

// look asks for the state without reading: before the first writer there is no
// hang-up, after the last one there is.
func (f *fifo) look() {
	p := []unix.PollFd{{Fd: int32(f.fd)}}
	poll(p, 0)
	f.hup(p[0].Revents)
}

// hup takes in what poll said. It says whether all writers are gone.
func (f *fifo) hup(revents int16) bool {
	if revents&unix.POLLHUP == 0 {
		return false
	}
	f.opened = true
	f.over = queued(f.fd) == 0
	return true
}

// clean passes p on. A shell whose saved descriptors were destroyed by the
// command prints our status report into the output: that is cut off, found by
// its nonce. full: the read was bounded, so the report may go on in the next.
func (f *fifo) clean(out Output, p []byte, full bool) {
	if f.cut {
		return
	}
	if len(f.held) > 0 {
		p = append(f.held, p...)
		f.held = nil
	}
	if i := bytes.Index(p, f.stray); i >= 0 {
		f.cut = true
		p = p[:i]
	} else if full {
		for k := min(len(f.stray)-1, len(p)); k > 0; k-- {
			if bytes.HasSuffix(p, f.stray[:k]) {
				f.held = append([]byte(nil), p[len(p)-k:]...)
				p = p[:len(p)-k]
				break
			}
		}
	}
	if len(p) > 0 {
		out.Write(p)
	}
}

// flush passes on what was held back.
func (f *fifo) flush(out Output) {
	if n := min(len(f.held), out.Space()); n > 0 {
		out.Write(f.held[:n])
		f.held = f.held[n:]
	}
}
