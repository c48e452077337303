package control

import (
	"maps"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// The methods of guest.Sink: what a guest says of its processes. Nothing of it is
// trusted: ids must be ones that we gave, times and codes are brought into range.

// Resume says how much of a process is recorded. A process that an earlier
// server started and did not get to record is taken up as it is.
func (l *life) Resume(info guest.ProcessInfo) (map[sos.Stream]int64, bool) {
	l.mu.Lock()
	pr, adopting := l.procs[info.ID], l.adopting
	l.mu.Unlock()
	if pr == nil && adopting {
		pr = l.adopt(info)
	}
	switch {
	case pr == nil:
		return nil, false
	case pr.rec == nil:
		return maps.Clone(info.Ends), true
	}
	return pr.rec.Offsets(), true
}

// adopt takes up a process that the guest holds.
func (l *life) adopt(info guest.ProcessInfo) *proc {
	if !sos.IsID(info.ID, sos.ProcessIDPrefix) {
		return nil
	}
	p, known := l.known[info.ID]
	if !known {
		// A guest may not claim a process of another sandbox, and one that is
		// full of lies gets no more records than a full sandbox has.
		if _, elsewhere := l.p.processOwner(info.ID, l.b.id); elsewhere || len(l.procs) >= 2*l.p.cfg.MaxProcesses {
			return nil
		}
		p = sos.Process{ID: info.ID, Sandbox: l.b.id, Kind: sos.KindStandalone, CreatedAt: l.clamp(info.Started), Seq: l.b.nextSeq(info.Session != "")}
		if info.Session != "" {
			p.Kind, p.Session = sos.KindSession, info.Session
		}
	}
	rec, err := l.p.cfg.Journal.Create(l.b.id, info.ID)
	if err != nil {
		l.p.cfg.Log.Error("cannot go on with an output", "sandbox", l.b.id, "process", info.ID, "err", err)
		return nil
	}
	pr := &proc{life: l, id: info.ID, rec: rec, p: p, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Status == sos.ProcessExited || p.Status == sos.ProcessLost {
		pr.ended = true // its output may still come
		close(pr.done)
	} else {
		pr.p.Status = sos.ProcessRunning
		if info.Started.IsZero() {
			pr.p.Status = sos.ProcessQueued
		} else {
			at := l.clamp(info.Started)
			pr.p.StartedAt = &at
		}
		if s := l.sessions[p.Session]; s != nil && p.Session != "" {
			pr.session = s
			s.queue = append(s.queue, pr)
		}
		select {
		case l.slots <- struct{}{}:
			pr.slot = true
		default:
		}
	}
	l.procs[pr.id] = pr
	return pr
}

// clamp keeps a guest's idea of the time within reason.
func (l *life) clamp(at time.Time) time.Time {
	now := l.p.cfg.Now()
	if at.After(now) || at.Before(now.Add(-365*24*time.Hour)) {
		return now
	}
	return at
}

func (l *life) lookup(id string) *proc {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.procs[id]
}

func (l *life) Started(id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pr := l.procs[id]; pr != nil && !pr.ended && pr.p.StartedAt == nil {
		at = l.clamp(at)
		pr.p.StartedAt, pr.p.Status = &at, sos.ProcessRunning
	}
}

func (l *life) Output(id string, s sos.Stream, offset int64, data []byte) {
	pr := l.lookup(id)
	if pr == nil || pr.rec == nil {
		return
	}
	if err := pr.rec.Append(s, offset, data); err != nil {
		l.p.stats.lostOutput()
		l.p.cfg.Log.Error("cannot keep output", "sandbox", l.b.id, "process", id, "err", err)
	}
}

// Exited records the end of a process, then tells whoever waits for it.
func (l *life) Exited(id string, e sos.Exit, at time.Time) {
	pr := l.lookup(id)
	if pr == nil {
		return
	}
	e = saneExit(e)
	l.mu.Lock()
	if !pr.setEnd(sos.ProcessExited, e, l.clamp(at)) {
		l.mu.Unlock()
		return
	}
	pr.answered = endError(l, pr)
	p := pr.p
	l.mu.Unlock()
	if pr.rec != nil && p.Kind == sos.KindStandalone {
		l.b.setLastStandalone(e.ExitCode)
	}
	// The session is over for everybody before the answer says so.
	if e.ShellEnded && pr.session != nil {
		l.sessionEnded(pr.session, e.ExitCode)
	}
	pr.noteEnd(p) // before the answer, and before the guest forgets it
	close(pr.done)
	if pr.rec == nil {
		pr.drain()
		return
	}
	l.p.stats.ended(p)
}

func (l *life) Drained(id string) {
	pr := l.lookup(id)
	if pr == nil {
		return
	}
	select {
	case <-pr.done:
		pr.drain()
	default: // an honest guest tells the end first
	}
}

func (l *life) SessionEnded(name string, e sos.Exit) {
	l.mu.Lock()
	s := l.sessions[name]
	l.mu.Unlock()
	if s == nil {
		return
	}
	// While a shell starts this is about the one before of the same name: the
	// guest says it ahead of its answer.
	select {
	case <-s.opened:
		l.sessionEnded(s, saneExit(e).ExitCode)
	default:
	}
}

// endError is the error that a waiter gets for an end that is no result.
func endError(l *life, pr *proc) error {
	switch {
	case pr.p.Reason == sos.EndSandboxStopped:
		if l.closing != nil {
			return l.closing
		}
		return errStopped()
	case pr.p.Reason == sos.EndSpawnFailed:
		return &sos.Error{Code: sos.CodeSpawnFailed, Message: pr.p.Message}
	case pr.p.Reason == sos.EndNotRun && pr.session != nil && pr.session.gone:
		return errSessionExited() // it waited behind the command that ended the shell
	}
	return nil
}

// maxMessage bounds what a guest says for people.
const maxMessage = 1 << 10

// saneExit brings what a guest said into range.
func saneExit(e sos.Exit) sos.Exit {
	if e.ExitCode != nil && (*e.ExitCode < 0 || *e.ExitCode > 255) {
		e.ExitCode = nil
	}
	switch e.Reason {
	case sos.EndExit, sos.EndSignal, sos.EndTimeout, sos.EndOOM, sos.EndCancelled, sos.EndDiskLimit,
		sos.EndSandboxStopped, sos.EndSpawnFailed, sos.EndNotRun, sos.EndShellBroken:
	default:
		e.Reason = sos.EndExit
	}
	if len(e.Message) > maxMessage {
		e.Message = decode([]byte(e.Message[:maxMessage]), true)
	}
	if len(e.Signal) > 16 {
		e.Signal = ""
	}
	return e
}
