package session

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// interrupt ends the running command and keeps the shell. It says whether the
// shell has answered (or ended by itself); false: nothing but killing is left.
func (r *run) interrupt() bool {
	s := r.s
	mine := func() []process { return tree(s.child.Pid, r.old) }
	s.signal(unix.SIGCONT)
	ps := mine()
	// Bash 5.3 and later die of an INT during "wait" in a text that is read by
	// ".": end first what it waits for.
	if s.version >= 503 && len(ps) > 0 && !r.foreground() {
		send(unix.SIGKILL, ps)
		for i := 0; i < 20 && len(mine()) > 0; i++ {
			r.turn(time.Millisecond)
		}
	}
	// Bash first: it gives up its list only if it had the signal when the child
	// dies of it.
	s.signal(unix.SIGINT)
	send(unix.SIGINT, ps)
	send(unix.SIGCONT, ps)
	ok := r.try(25 * time.Millisecond)
	// What came up since then missed it: a loop goes on, or the text had not begun.
	for _, d := range []time.Duration{50 * time.Millisecond, 125 * time.Millisecond} {
		if fresh := without(mine(), ps); !ok && len(fresh) > 0 {
			s.signal(unix.SIGINT)
			send(unix.SIGINT, fresh)
			ps = append(ps, fresh...)
		}
		ok = ok || r.try(d)
	}
	if !ok && s.atReader() {
		r.ask()
		ok = r.try(200 * time.Millisecond)
	}
	for i := 0; !ok && i < 20; i++ {
		s.signal(unix.SIGCONT)
		send(unix.SIGKILL, mine())
		s.burst()
		if ok = r.try(time.Duration(5+i) * time.Millisecond); !ok && s.atReader() {
			r.ask()
			ok = r.try(20 * time.Millisecond)
		}
	}
	if ok && !s.gone() {
		killAll(mine) // whatever the command left behind
	}
	return ok
}

// without gives what is in ps and not in old.
func without(ps, old []process) []process {
	return slices.DeleteFunc(ps, func(p process) bool {
		return slices.ContainsFunc(old, func(o process) bool { return o.pid == p.pid && o.start == p.start })
	})
}

// try waits a while for the status.
func (r *run) try(d time.Duration) bool {
	o := r.await(time.Now().Add(d), false)
	return o == answered || o == gone
}

// burst sends many INTs over the short time in which bash, whose child has just
// been killed, starts the next one: an INT counts only while it waits for none.
// One at a time misses that window at random.
func (s *Shell) burst() {
	for t := time.Now(); time.Since(t) < 2*time.Millisecond; {
		s.signal(unix.SIGINT)
		for u := time.Now(); time.Since(u) < 40*time.Microsecond; {
		}
	}
}

// foreground says whether bash has a new child that does not ignore INT, which
// its background jobs do.
func (r *run) foreground() bool {
	for pid, start := range kids(r.s.child.Pid) {
		if was, ok := r.old[pid]; ok && was == start {
			continue
		}
		if !ignores(pid, unix.SIGINT) {
			return true
		}
	}
	return false
}
