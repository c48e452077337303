package server

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// process is one command, standalone or of a session. Its fields are under
// Guest.mu but where said.
type process struct {
	g       *Guest
	id      string
	session string
	streams []*stream

	startedAt time.Time // zero: it does not run yet
	exit      *sos.Exit // nil: it has not ended
	endedAt   time.Time
	drained   bool
	forgotten bool

	// What this connection was told.
	resumed, queued                      bool
	saidStarted, saidExited, saidDrained bool

	kills    chan killRequest // standalone: to the owner; buffered 1
	progress chan struct{}    // buffered 1: output came or ended
	child    *child           // standalone; set before startedAt

	treeMu sync.Mutex // guards tree: what is being killed, nil before
	tree   *tree
}

func newProcess(g *Guest, id, session string, kinds ...sos.Stream) *process {
	p := &process{g: g, id: id, session: session, kills: make(chan killRequest, 1), progress: make(chan struct{}, 1)}
	for _, k := range kinds {
		p.streams = append(p.streams, newStream(p, k))
	}
	return p
}

// moved tells the owner that output came or ended.
func (p *process) moved() {
	select {
	case p.progress <- struct{}{}:
	default:
	}
}

// run is the life of a standalone command; the goroutine that runs it owns it.
func (p *process) run(cmd guest.Command) {
	g := p.g
	pipes, err := p.pipes()
	if err != nil {
		p.spawnFailed("no pipe for its output: " + err.Error())
		return
	}
	kills := oomKills(g.cfg.OOM)
	c, err := g.startCommand(cmd, pipes)
	for _, pp := range pipes {
		unix.Close(pp.write)
	}
	if err != nil {
		for _, pp := range pipes {
			unix.Close(pp.read)
		}
		p.spawnFailed(err.Error())
		return
	}
	limit, grace := cmd.Timeout, cmd.Grace
	cmd = guest.Command{} // its input may be long
	p.began(c)
	var readers sync.WaitGroup
	for i, pp := range pipes {
		readers.Go(func() { p.read(p.streams[i], pp.read) })
	}
	exit := p.await(limit, grace, kills)
	exit.Survivors = p.settle(pipes)
	p.ended(exit)
	readers.Wait()
	p.finished()
}

// pipe is one output pipe.
type pipe struct{ read, write int }

// pipes makes one for each stream.
func (p *process) pipes() ([]pipe, error) {
	var list []pipe
	for range p.streams {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			for _, pp := range list {
				unix.Close(pp.read)
				unix.Close(pp.write)
			}
			return nil, err
		}
		unix.SetNonblock(fds[0], true) // its end only: the command's blocks
		list = append(list, pipe{fds[0], fds[1]})
	}
	return list, nil
}

func (p *process) read(s *stream, fd int) {
	p.g.copyFrom(s, os.NewFile(uintptr(fd), "output"))
	p.g.mu.Lock()
	s.eof = true
	p.g.mu.Unlock()
	p.moved()
}

func (p *process) began(c *child) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.child, p.startedAt = c, time.Now()
	p.g.hasStarted(p)
}

func (p *process) spawnFailed(why string) {
	p.g.mu.Lock()
	for _, s := range p.streams {
		s.eof = true
	}
	p.g.mu.Unlock()
	p.ended(sos.Exit{Reason: sos.EndSpawnFailed, Message: why})
	p.finished()
}

// ended records the end. All that the process wrote before is in its rings.
func (p *process) ended(e sos.Exit) {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	for _, s := range p.streams {
		s.mark = s.ring.end
	}
	p.exit, p.endedAt = &e, time.Now()
	p.g.dirty(p)
}

// finished: no more output.
func (p *process) finished() {
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.drained = true
	p.g.dirty(p)
}

// settle waits after the end of a command until all that it wrote is in the rings,
// and then a moment for its pipes to end. It says whether somebody still holds
// one. What survivors write meanwhile does not prolong it, a host that does not
// take the output does: an end never overtakes output.
func (p *process) settle(pipes []pipe) (survivors bool) {
	g := p.g
	target := make([]int64, len(p.streams))
	g.mu.Lock()
	for i, s := range p.streams {
		if target[i] = s.ring.end; !s.eof {
			n, err := unix.IoctlGetInt(pipes[i].read, unix.TIOCINQ)
			if err == nil {
				target[i] += int64(n)
			}
		}
	}
	g.mu.Unlock()
	grace := time.NewTimer(guest.DrainGrace)
	defer grace.Stop()
	for over := false; ; {
		there, open := true, false
		g.mu.Lock()
		for i, s := range p.streams {
			there = there && (s.eof || s.ring.end >= target[i] || p.forgotten)
			open = open || !s.eof
		}
		g.mu.Unlock()
		if !open || there && over {
			return open
		}
		select {
		case <-p.progress:
		case <-grace.C:
			over = true
		}
	}
}
