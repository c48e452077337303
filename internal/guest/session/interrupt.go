package session

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// How long a shell that does not give up is asked to before it is killed; less
// for one that ignores INT, which can only be helped by the end of what it waits
// for, and for a program that has taken its place.
const (
	persist      = 4 * time.Second
	persistInert = 500 * time.Millisecond
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
	if !ok && s.atReader(r.old) {
		r.ask()
		ok = r.try(200 * time.Millisecond)
	}
	most := persist
	if ignores(s.child.Pid, unix.SIGINT) || s.hungUp() {
		most = persistInert
	}
	for end := time.Now().Add(most); !ok && time.Now().Before(end); {
		s.signal(unix.SIGCONT)
		send(unix.SIGKILL, mine())
		r.burst()
		if ok = r.try(5 * time.Millisecond); !ok && s.atReader(r.old) {
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
// been killed, starts the next one: an INT counts only while bash waits for no
// child, or when a child dies of it. A single one misses that moment at random,
// and on a busy machine the moment may be long in coming: it is over when the
// next child is there.
func (r *run) burst() {
	end := time.Now().Add(50 * time.Millisecond)
	for seen := false; r.scan.code < 0 && !r.s.gone(); {
		for range 16 {
			r.s.signal(unix.SIGINT)
			for u := time.Now(); time.Since(u) < 40*time.Microsecond; {
			}
		}
		now := time.Now()
		if !now.Before(end) {
			return
		}
		if !seen {
			if fresh := tree(r.s.child.Pid, r.old); len(fresh) > 0 {
				send(unix.SIGINT, fresh)
				seen, end = true, now.Add(2*time.Millisecond)
			}
		}
		r.turn(0)
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
