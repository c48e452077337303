package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// outcome is what a wait for the status ended with.
type outcome int

const (
	answered outcome = iota // the status is known
	gone                    // the shell has ended
	late                    // the time is over
	told                    // Interrupt or Close
	silent                  // the shell waits for commands and gives no status
)

// await waits for the status of the command; until zero: without a limit. heed:
// Interrupt and Close end it too.
func (r *run) await(until time.Time, heed bool) outcome {
	w := newWatch(time.Now())
	for {
		if r.scan.code >= 0 {
			return answered
		}
		if r.s.gone() {
			r.readStat() // a report may have come just before
			if r.scan.code >= 0 {
				return answered
			}
			return gone
		}
		if heed && r.s.interrupted() {
			return told
		}
		now := time.Now()
		if !until.IsZero() && !now.Before(until) {
			return late
		}
		next := w.next
		if !until.IsZero() && until.Before(next) {
			next = until
		}
		r.turn(next.Sub(now))
		if now = time.Now(); r.scan.code < 0 && !now.Before(w.next) {
			if w.silent(r, now) {
				return silent
			}
		}
	}
}

func (s *Shell) interrupted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing || s.asked != ""
}

// turn waits for one event, at most d, and takes in what there is, bounded, so
// that no flood holds up the clock.
func (r *run) turn(d time.Duration) {
	s := r.s
	p := [6]unix.PollFd{
		{Fd: int32(s.stat), Events: unix.POLLIN},
		{Fd: int32(s.pidfd), Events: unix.POLLIN},
		{Fd: int32(r.fifo.fd), Events: unix.POLLIN},
		{Fd: int32(s.wake), Events: unix.POLLIN},
		{Fd: int32(s.tail), Events: unix.POLLIN},
		{Fd: int32(s.ctl), Events: unix.POLLIN},
	}
	if s.statOver {
		p[0].Fd = -1
	}
	if r.fifo.over || r.out.Space() <= 0 {
		p[2].Fd = -1 // a full window: the command blocks on its pipe
	}
	if s.tailOver {
		p[4].Fd = -1
	}
	if len(r.send) > 0 {
		if r.write(); len(r.send) > 0 {
			p[5].Events |= unix.POLLOUT
		}
	}
	if s.ctlOver {
		p[5].Fd = -1
	}
	poll(p[:], max(d, 0))
	if p[3].Revents != 0 {
		s.clearWake()
	}
	if p[2].Revents != 0 {
		r.fifo.pump(r.out, 1<<20)
		r.fifo.hup(p[2].Revents)
	}
	if p[0].Revents != 0 {
		r.readStat()
	}
	if p[4].Revents != 0 {
		r.readTail()
	}
	if p[5].Revents&^unix.POLLOUT != 0 {
		// A command wrote to the shell's copy of the channel: nothing to us, but it
		// must not block there.
		n, err := unix.Read(s.ctl, s.buf)
		s.ctlOver = n <= 0 && err != unix.EAGAIN && err != unix.EINTR
	}
	if p[1].Revents != 0 {
		<-s.child.Done // it is dead; the guest's reaper has it in a moment
	}
}

// rest waits at most d for output, the end of its writers or a wake; for a wake
// only, without a limit, when there is output and no space but no writer any more.
func (r *run) rest(d time.Duration) {
	p := [2]unix.PollFd{{Fd: int32(r.fifo.fd)}, {Fd: int32(r.s.wake), Events: unix.POLLIN}}
	if r.out.Space() > len(r.fifo.held) {
		p[0].Events = unix.POLLIN
	} else if r.lastWriterGone() {
		p[0].Fd, d = -1, -1
	}
	poll(p[:], d)
	if p[1].Revents != 0 {
		r.s.clearWake()
	}
}

func (s *Shell) clearWake() {
	var b [8]byte
	unix.Read(s.wake, b[:])
}

// write sends what bash takes of the control text.
func (r *run) write() {
	for len(r.send) > 0 {
		n, err := unix.SendmsgN(r.s.ctl, r.send, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch {
		case n > 0:
			r.send = r.send[n:]
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return
		default: // nobody reads any more: the shell is ending or was replaced
			r.send = nil
		}
	}
}

// readStat reads the status channel.
func (r *run) readStat() {
	for range 16 {
		n, err := unix.Read(r.s.stat, r.s.buf)
		if err == unix.EINTR {
			continue
		}
		if n > 0 {
			r.scan.feed(r.s.buf[:n])
			continue
		}
		r.s.statOver = r.s.statOver || err != unix.EAGAIN
		return
	}
}

// readTail reads what the shell prints outside of commands.
func (r *run) readTail() {
	for range 16 {
		n, err := unix.Read(r.s.tail, r.s.buf)
		if err == unix.EINTR {
			continue
		}
		if n > 0 {
			r.tail = append(r.tail, r.s.buf[:min(n, maxTail-len(r.tail))]...)
			continue
		}
		r.s.tailOver = r.s.tailOver || err != unix.EAGAIN
		return
	}
}
