package control

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/journal"
)

// proc is a process of a life: running, or ended while something it started
// still holds its output. Its fields are guarded by the life's mu.
type proc struct {
	life    *life
	id      string
	rec     *journal.Record // nil: ours, in no record
	session *session
	timeout time.Duration
	slot    bool // it holds one of the life's slots

	p        sos.Process
	ended    bool
	head     []byte // all of its output at its end, when that is little
	whole    bool   // head is all
	overdue  bool   // its end is being forced
	done     chan struct{}
	answered error // set before done: there is no result because of this
}

// ending is how a process ends whose own end was not seen.
type ending struct {
	status sos.ProcessStatus
	exit   sos.Exit
	err    error // what its waiter gets
}

func endStopped(err *sos.Error) ending {
	return ending{sos.ProcessExited, sos.Exit{Reason: sos.EndSandboxStopped, Message: err.Message}, err}
}

func endLost(err *sos.Error) ending {
	return ending{sos.ProcessLost, sos.Exit{Message: err.Message}, err}
}

// newProc records that a command was accepted; visible to everybody from now on.
// Callers hold the life's mu and give the record afterwards.
func (l *life) newProc(id string, kind sos.ProcessKind, seq int64, now time.Time) *proc {
	pr := &proc{life: l, id: id, done: make(chan struct{})}
	pr.p = sos.Process{ID: id, Seq: seq, Sandbox: l.b.id, Kind: kind, Status: sos.ProcessRunning, CreatedAt: now}
	if !l.since.IsZero() {
		pr.p.SinceStart = sos.Duration(max(0, now.Sub(l.since)))
	}
	return pr
}

// smallAnswer is how much output an answer keeps in memory, so that it needs no file.
const smallAnswer = 32 << 10

// setEnd notes the end; false: it has one already. Callers hold the life's mu.
func (pr *proc) setEnd(status sos.ProcessStatus, e sos.Exit, at time.Time) bool {
	if pr.ended {
		return false
	}
	pr.ended = true
	pr.p.Status, pr.p.Exit = status, e
	if status != sos.ProcessLost { // of a lost one the end was not seen
		pr.p.EndedAt = &at
	}
	if pr.rec != nil {
		pr.p.Output = pr.rec.Output()
		if data, total, err := pr.rec.Head(sos.StreamOut, smallAnswer); err == nil && total == int64(len(data)) {
			pr.head, pr.whole = data, true
		}
	}
	if pr.session != nil {
		pr.session.left(pr)
	}
	if pr.slot {
		pr.slot = false
		<-pr.life.slots
	}
	return true
}

// note puts the process, as it is now, down in the journal: cheap, and enough to
// find it again after a crash. The store follows with its end.
func (pr *proc) note(p sos.Process) error {
	if pr.rec == nil {
		return nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("process %s: %w", p.ID, err)
	}
	return pr.rec.Note(data)
}

// end gives the process an end that the guest did not report.
func (pr *proc) end(e ending, record bool) {
	l := pr.life
	l.mu.Lock()
	first := pr.setEnd(e.status, e.exit, l.p.cfg.Now())
	p := pr.p
	if first {
		pr.answered = e.err
	}
	l.mu.Unlock()
	if !first {
		return
	}
	if record {
		pr.noteEnd(p)
	}
	l.p.stats.ended(p)
	close(pr.done)
}

// noteEnd records the end.
func (pr *proc) noteEnd(p sos.Process) {
	if err := pr.note(p); err != nil {
		pr.life.p.cfg.Log.Error("cannot note the end of a process", "sandbox", pr.life.b.id, "process", pr.id, "err", err)
	}
	if pr.rec != nil {
		pr.life.p.storer.put(p)
	}
}

// drain closes its record: no more output comes.
func (pr *proc) drain() {
	l := pr.life
	if pr.rec != nil {
		if err := pr.rec.Finish(); err != nil {
			l.p.cfg.Log.Error("cannot finish an output", "sandbox", l.b.id, "process", pr.id, "err", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.procs, pr.id)
}

// abandon lets its waiter go without an end. Callers hold the life's mu.
func (pr *proc) abandon() {
	if !pr.ended {
		pr.ended = true
		pr.answered = &sos.Error{Code: sos.CodeUnavailable, Message: "the server stops; the command goes on", Fix: "read its result from the list of processes later"}
		close(pr.done)
	}
}

// snapshot is the process as callers see it now; late: with what survivors have
// written since its end.
func (pr *proc) snapshot(late bool) sos.Process {
	pr.life.mu.Lock()
	defer pr.life.mu.Unlock()
	p := pr.p
	if pr.rec != nil && (late || !pr.ended) {
		p.Output = pr.rec.Output()
	}
	return p
}
