package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

// Bounds of the recovery.
const (
	reconcileWide = 16              // sandboxes dealt with at once
	storeWide     = 64              // processes stored at once: they share commits
	listTries     = 5               // of the first listing, half a second apart
	adoptWait     = 5 * time.Second // for a guest that does not answer; it is waited for further in the background
	checkTimeout  = 5 * time.Second // of one look at one sandbox
)

// recover loads the records and takes over or cleans up all that they tell of.
func (p *Plane) recover(ctx context.Context) error {
	rows, err := p.cfg.Store.Sandboxes(ctx)
	if err != nil {
		return fmt.Errorf("load sandboxes: %w", err)
	}
	for _, row := range rows {
		b := newBox(row)
		b.exists = true
		close(b.inserted)
		if err := p.storeNotes(ctx, row.ID); err != nil {
			p.cfg.Log.Error("cannot take up what was noted of processes", "sandbox", row.ID, "err", err)
		}
		if err := p.count(ctx, b); err != nil {
			return err
		}
		p.mu.Lock()
		p.boxes[b.id] = b
		if b.name != "" {
			p.names[b.name] = b
		}
		p.mu.Unlock()
	}
	for try := range listTries {
		if err = p.reconcile(ctx, true); err == nil || try == listTries-1 || !sleep(ctx, 500*time.Millisecond) {
			break
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil { // a sick host: the server says so, and the reconciler goes on
		p.cfg.Log.Error("cannot take over sandboxes yet", "err", err)
	}
	return p.removeStrayOutput()
}

// storeNotes puts into the store what an earlier server noted of processes and did
// not get to store: those that run, and the ends of the last moments.
func (p *Plane) storeNotes(ctx context.Context, sandbox string) error {
	notes, err := p.cfg.Journal.Notes(sandbox)
	if err != nil {
		return err
	}
	list, err := p.cfg.Store.Processes(ctx, sandbox)
	if err != nil {
		return err
	}
	for _, q := range list {
		if q.Status == sos.ProcessExited || q.Status == sos.ProcessLost {
			delete(notes, q.ID)
		}
	}
	var g errgroup.Group
	g.SetLimit(storeWide)
	for id, data := range notes {
		var q sos.Process
		if err := json.Unmarshal(data, &q); err != nil || q.ID != id || q.Sandbox != sandbox {
			p.cfg.Log.Error("a note of a process cannot be read", "sandbox", sandbox, "process", id, "err", err)
			continue
		}
		g.Go(func() error { return p.cfg.Store.PutProcess(ctx, q) })
	}
	return g.Wait()
}

// count learns from the processes what the sandbox's counters were.
func (p *Plane) count(ctx context.Context, b *box) error {
	list, err := p.cfg.Store.Processes(ctx, b.id)
	if err != nil {
		return fmt.Errorf("load processes of %s: %w", b.id, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var last time.Time
	for _, q := range list {
		b.seq = max(b.seq, q.Seq)
		switch {
		case q.Kind == sos.KindSession:
			b.sessionCommands++
		case q.ExitCode != nil && q.EndedAt != nil && !q.EndedAt.Before(last):
			last, b.lastStandalone = *q.EndedAt, q.ExitCode
		}
	}
	return nil
}

// removeStrayOutput deletes output whose sandbox has no record.
func (p *Plane) removeStrayOutput() error {
	ids, err := p.cfg.Journal.Sandboxes()
	if err != nil {
		return fmt.Errorf("list output: %w", err)
	}
	for _, id := range ids {
		p.mu.Lock()
		known := p.boxes[id] != nil
		p.mu.Unlock()
		if known {
			continue
		}
		if err := p.cfg.Journal.RemoveSandbox(id); err != nil {
			p.cfg.Log.Error("cannot remove output without a sandbox", "sandbox", id, "err", err)
		}
	}
	return nil
}

// reconcile compares all records with one listing of the driver and does what
// next says. A sandbox that somebody works on is left to him.
func (p *Plane) reconcile(ctx context.Context, first bool) error {
	lctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	boxes := p.all() // before the listing: what is newer is not judged by it
	list, err := p.cfg.Driver.List(lctx)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	seen := make(map[string]driver.Status, len(list))
	for _, s := range list {
		seen[s.ID] = s
	}
	var g errgroup.Group
	g.SetLimit(reconcileWide)
	for _, b := range boxes {
		g.Go(func() error {
			p.settle(ctx, b, seen[b.id])
			return nil
		})
	}
	_ = g.Wait() // settle logs what it cannot do
	p.removeOrphans(list)
	return nil
}

// settle brings one sandbox nearer to what is wanted of it.
func (p *Plane) settle(ctx context.Context, b *box, s driver.Status) {
	if !b.tryLock() {
		return
	}
	defer b.unlock()
	b.mu.Lock()
	busy := !b.exists || b.phase != "" || b.start != nil || b.end != nil || b.life != nil
	row := b.row
	b.mu.Unlock()
	if busy { // what lives is watched by its life
		return
	}
	o := observed{Status: row.Status, Started: row.StartedAt != nil, Running: s.Running, HasData: s.HasData}
	act := next(row.Desired, o)
	if act == actLost && p.answers(ctx, b.id) {
		act = actAdopt // one listing is not enough to give up a sandbox
	}
	var err error
	switch act {
	case actNone:
	case actAdopt:
		err = p.adopt(ctx, b)
	case actStop:
		err = p.stop(b, &endOp{reason: row.Reason, message: row.Message, grace: p.cfg.StopGrace, cause: errStopped()})
		b.setPhase("")
	case actRemove:
		err = p.remove(b, &endOp{remove: true, reason: row.Reason, message: row.Message, cause: errStopped()})
		b.setPhase("")
	case actLost:
		p.cfg.Log.Warn("a sandbox does not run any more", "sandbox", b.id)
		reason, cause := lostReason(p.lastExit(ctx, b.id))
		p.markLost(b, nil, reason, cause)
	case actUndoStart:
		err = p.undoStart(b, row)
	case actKill:
		err = p.retry(func(ctx context.Context) error { return p.cfg.Driver.Stop(ctx, b.id) })
	case actClear:
		err = p.retry(func(ctx context.Context) error { return p.cfg.Driver.Remove(ctx, b.id) })
	}
	if err != nil {
		p.cfg.Log.Error("cannot settle a sandbox", "sandbox", b.id, "op", act, "err", err)
	}
}

// answers says whether the guest of a sandbox can be reached, or may be.
func (p *Plane) answers(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	conn, err := p.cfg.Driver.Dial(ctx, id)
	if err == nil {
		conn.Close()
		return true
	}
	c := sos.ErrorCode(err)
	return c != sos.CodeNotStarted && c != sos.CodeSandboxLost
}

// lastExit is how the guest of a sandbox that does not run ended, if the driver knows.
func (p *Plane) lastExit(ctx context.Context, id string) driver.Exit {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	exit, err := p.cfg.Driver.Wait(ctx, id)
	if err != nil {
		return driver.Exit{}
	}
	return exit
}

// undoStart cleans up after a start that was interrupted by the server's end.
func (p *Plane) undoStart(b *box, row sos.Sandbox) error {
	first := row.StartedAt == nil
	if err := p.takeDown(b, first); err != nil {
		return err
	}
	p.admission.release(b.id)
	p.endLeft(b, endStopped(sos.Errorf(sos.CodeSandboxStopped, "the start was interrupted")))
	return p.edit(b, false, func(s *sos.Sandbox) {
		s.Desired, s.Status = sos.DesiredStopped, before(!first)
		if first {
			s.Desired = sos.DesiredCreated
		}
		s.Reason, s.Message = sos.ReasonStartFailed, "the start was interrupted by the end of the server; start it again"
	})
}

// endLeft gives an end to the processes and sessions that an earlier server left
// without one.
func (p *Plane) endLeft(b *box, e ending) {
	p.storer.flush()
	ctx, cancel := p.write()
	defer cancel()
	list, err := p.cfg.Store.Processes(ctx, b.id)
	var g errgroup.Group
	for _, q := range list {
		if q.Status != sos.ProcessExited && q.Status != sos.ProcessLost {
			g.Go(func() error { return p.endRecord(ctx, q, e) })
		}
	}
	err = errors.Join(err, g.Wait())
	sessions, serr := p.cfg.Store.Sessions(ctx, b.id)
	now := p.cfg.Now()
	for _, s := range sessions {
		if s.Status == sessionRunning {
			s.Status, s.EndedAt = sessionExited, &now
			serr = errors.Join(serr, p.cfg.Store.PutSession(ctx, s))
		}
	}
	if err := errors.Join(err, serr); err != nil {
		p.cfg.Log.Error("cannot record what ended", "sandbox", b.id, "err", err)
	}
}

// endRecord gives one recorded process an end; its output is what was recorded.
func (p *Plane) endRecord(ctx context.Context, q sos.Process, e ending) error {
	q.Status, q.Exit = e.status, e.exit
	if e.status == sos.ProcessExited {
		now := p.cfg.Now()
		q.EndedAt = &now
	}
	rec, err := p.cfg.Journal.Create(q.Sandbox, q.ID)
	if err == nil {
		q.Output = rec.Output()
		err = rec.Finish()
	}
	return errors.Join(err, p.cfg.Store.PutProcess(ctx, q))
}

// removeOrphans removes what the driver has and no record tells of, at the second
// look.
func (p *Plane) removeOrphans(list []driver.Status) {
	suspects := map[string]bool{}
	for _, s := range list {
		p.mu.Lock()
		known := p.boxes[s.ID] != nil
		p.mu.Unlock()
		if known {
			continue
		}
		if !p.suspects[s.ID] {
			suspects[s.ID] = true
			continue
		}
		p.cfg.Log.Warn("removing a sandbox without a record", "sandbox", s.ID)
		ctx, cancel := p.step()
		if err := p.cfg.Driver.Remove(ctx, s.ID); err != nil {
			p.cfg.Log.Error("cannot remove a sandbox without a record", "sandbox", s.ID, "err", err)
			suspects[s.ID] = true
		}
		cancel()
	}
	p.suspects = suspects
}

// processOwner says whether a sandbox other than this one has the process.
func (p *Plane) processOwner(id, sandbox string) (owner string, ok bool) {
	ctx, cancel := p.step()
	defer cancel()
	for _, b := range p.all() {
		if b.id == sandbox {
			continue
		}
		if _, err := p.cfg.Store.Process(ctx, b.id, id); sos.ErrorCode(err) != sos.CodeNotFound {
			return b.id, true // also when it cannot be known
		}
	}
	return "", false
}
