package session

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watch finds a shell that waits for its next command although it gave no status
// for this one: a DEBUG trap under extdebug that refuses every command, one that
// moves stderr. It looks often at first and seldom later, so that a long command
// costs nothing.
type watch struct {
	began, next time.Time
	idle        int    // looks in a row that found it waiting
	ticks       uint64 // cpu time at the last look
}

const (
	firstLook = 200 * time.Millisecond
	lookAgain = 100 * time.Millisecond
	lookMost  = 2 * time.Second
)

func newWatch(now time.Time) watch { return watch{began: now, next: now.Add(firstLook)} }

// silent takes one look. Found waiting twice, the shell is asked again; if it
// goes on waiting, it is silent.
func (w *watch) silent(r *run, now time.Time) bool {
	w.next = now.Add(min(max(lookAgain, now.Sub(w.began)/8), lookMost))
	if !w.waits(r) {
		w.idle = 0
		return false
	}
	w.next = now.Add(lookAgain)
	if w.idle++; w.idle == 2 {
		r.ask()
	}
	return w.idle > 3
}

// waits: bash sits in read(0, …), its descriptor 0 is the control socket, and it
// has eaten everything that was sent.
func (w *watch) waits(r *run) bool {
	s := r.s
	if len(r.send) > 0 || unread(s.ctl) > 0 || s.gone() {
		return false
	}
	if !s.noPeek {
		return s.atReader(r.old)
	}
	// Of another user's process only this can be seen: it sleeps, has used no cpu
	// since the last look, and somebody still has the other end of the control
	// channel. A wrong yes does no harm: the question waits unread, which the next
	// look sees.
	p, ok := look(s.child.Pid)
	was := w.ticks
	w.ticks = p.ticks
	return ok && p.state == 'S' && p.ticks == was && !s.hungUp()
}

// hungUp: nobody reads the control channel any more.
func (s *Shell) hungUp() bool {
	p := []unix.PollFd{{Fd: int32(s.ctl)}}
	poll(p, 0)
	return p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// atReader says whether bash waits for its next command; false where that cannot
// be seen.
func (s *Shell) atReader(old map[int]uint64) bool {
	if s.noPeek {
		p, ok := look(s.child.Pid)
		return ok && p.state == 'S' && unread(s.ctl) == 0 && len(tree(s.child.Pid, old)) == 0 && !s.hungUp()
	}
	if unread(s.ctl) > 0 {
		return false
	}
	pid := strconv.Itoa(s.child.Pid)
	var buf [256]byte
	b, err := readFile("/proc/"+pid+"/syscall", buf[:])
	if err != nil || !bytes.HasPrefix(b, []byte(strconv.Itoa(unix.SYS_READ)+" 0x0 ")) {
		return false
	}
	n, err := unix.Readlink("/proc/"+pid+"/fd/0", buf[:])
	return err == nil && strings.HasPrefix(string(buf[:n]), "socket:")
}

// ask sends the status line again, with a nonce of its own.
func (r *run) ask() {
	if !r.s.gone() {
		r.send = append(r.send, statusLine(r.scan.nonce(), true)...)
	}
}
