package server

import (
	"syscall"
	"time"

	"github.com/seaofsimulation/sos"
)

// killRequest asks the owner of a process to end it.
type killRequest struct {
	reason sos.EndReason
	grace  time.Duration
}

const (
	defaultGrace = time.Second
	// killTime bounds the rounds of KILL: an answer comes within timeout, grace and
	// a second.
	killTime = 800 * time.Millisecond
	// huntTime bounds the rounds that go on after the answer, where the machine was
	// too busy, or the command too quick, for those before it.
	huntTime = time.Minute
)

// terminate ends everything that a command started: TERM, grace, KILL. False: the
// command had ended before the first signal, and nothing was done. When it
// returns true the whole tree is gone, or its time is up.
func (p *process) terminate(grace time.Duration) bool {
	if grace <= 0 {
		grace = defaultGrace
	}
	r := p.g.reap
	t := newTree(p.child.pid, func() bool { return r.owns(p.child.pid, p.child) }, func(pid int) bool { return r.owns(pid, nil) })
	before := t.alive()
	if !r.signal(p.child, syscall.SIGTERM, false) {
		return false
	}
	p.treeMu.Lock()
	p.tree = t
	p.treeMu.Unlock()
	t.end(before)
	end := time.NewTimer(grace)
	defer end.Stop()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		p.treeMu.Lock()
		list := t.alive()
		t.end(list)
		p.treeMu.Unlock()
		if len(list) == 0 {
			return true
		}
		select {
		case <-time.After(pause):
			continue
		case <-p.kills: // asked again: no more patience
		case <-end.C:
		}
		p.killTree()
		return true
	}
}

// end tells each of list once to end. A stopped one is continued, or it would not
// hear it.
func (t *tree) end(list []stat) {
	var fresh []stat
	for _, s := range list {
		if !t.seen[s.ident] {
			t.seen[s.ident] = true
			fresh = append(fresh, s)
		}
	}
	send(fresh, syscall.SIGTERM)
	send(fresh, syscall.SIGCONT)
}

// killTree sends KILL until nothing is left for two rounds. The command itself is
// stopped and killed last: while it lives, orphans stay below it.
func (p *process) killTree() {
	r := p.g.reap
	r.signal(p.child, syscall.SIGSTOP, false)
	quiet := 0
	for round, begun := 0, time.Now(); time.Since(begun) < killTime; round++ {
		left := p.killRound(round)
		if quiet++; left > 0 {
			quiet = 0
		}
		if quiet > 0 || round > 8 {
			r.signal(p.child, syscall.SIGKILL, false)
		}
		if quiet > 1 && !r.owns(p.child.pid, p.child) {
			return
		}
		select {
		case <-p.child.done:
			time.Sleep(time.Millisecond) // the others have no channel
		case <-time.After(min(time.Duration(round+1)*time.Millisecond, 10*time.Millisecond)):
		}
	}
	// Where rounds take long it was only stopped so far, and would stand there for ever.
	r.signal(p.child, syscall.SIGKILL, false)
	go p.hunt()
}

// hunt goes on killing what is left of a command that was to be gone by now, the
// command too. It ends when nothing was left for three rounds, or with huntTime.
func (p *process) hunt() {
	r := p.g.reap
	for quiet, begun := 0, time.Now(); quiet < 3 && time.Since(begun) < huntTime; time.Sleep(10 * time.Millisecond) {
		quiet++
		left := p.killRound(3) // from the third round on they are stopped first
		if r.signal(p.child, syscall.SIGKILL, false) || left > 0 {
			quiet = 0
		}
	}
}

// killRound kills all but the command itself and returns how many there were.
// Those that multiply faster than they are killed are stopped first.
func (p *process) killRound(round int) int {
	p.treeMu.Lock()
	defer p.treeMu.Unlock()
	list := p.others()
	for pass := 0; round > 2 && pass < 20; pass++ {
		send(list, syscall.SIGSTOP)
		list = p.others()
		running := false
		for _, s := range list {
			running = running || s.state != 'T' && s.state != 't'
		}
		if !running {
			break
		}
	}
	send(list, syscall.SIGKILL)
	return len(list)
}

func (p *process) others() (list []stat) {
	for _, s := range p.tree.alive() {
		if s.pid != p.child.pid {
			list = append(list, s)
		}
	}
	return list
}

func (p *process) treeStarted() bool {
	p.treeMu.Lock()
	defer p.treeMu.Unlock()
	return p.tree != nil
}

// killAgain sends KILL once more to all that is known, also when the end was
// already recorded: for a host that thaws what was frozen.
func (p *process) killAgain() {
	p.killRound(0)
	p.g.reap.signal(p.child, syscall.SIGKILL, false)
}

// cancel asks the owner to end a process, or kills at once what is being ended.
func (g *Guest) cancel(p *process, k killRequest) {
	if p.session != "" {
		g.cancelSessionCommand(p, k.reason)
		return
	}
	select {
	case p.kills <- k:
	default:
	}
	if p.treeStarted() {
		p.killAgain()
	}
}
