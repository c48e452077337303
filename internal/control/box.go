package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
)

// box is one sandbox. Its record is in row, as it was last stored; what only
// this server knows (a start that waits, a stop under way) lies over it.
type box struct {
	id, name string
	inserted chan struct{} // closed when the record was stored or could not be

	op     chan struct{} // holds one token: the right to change the life cycle
	editMu sync.Mutex    // one edit of the record at a time

	mu     sync.Mutex // guards what follows; never held over a wait
	row    sos.Sandbox
	exists bool       // the record is stored and not deleted
	phase  sos.Status // queued, starting, stopping or removing; else empty
	start  *startOp   // the start under way
	end    *endOp     // the stop or removal under way
	life   *life      // while it runs
	digest string     // image of the start under way

	seq             int64 // of the newest process
	sessionCommands int
	lastStandalone  *int
	deadline        time.Time // with its monotonic part; zero: none
}

func newBox(row sos.Sandbox) *box {
	return &box{id: row.ID, name: row.Name, row: row, inserted: make(chan struct{}), op: make(chan struct{}, 1)}
}

// recorded says whether the sandbox exists for callers.
func (b *box) recorded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exists
}

// lock takes the right to change the life cycle.
func (b *box) lock(ctx context.Context) error {
	select {
	case b.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *box) unlock() { <-b.op }

// tryLock is lock where somebody else at work is reason enough to leave it.
func (b *box) tryLock() bool {
	select {
	case b.op <- struct{}{}:
		return true
	default:
		return false
	}
}

// status is what callers see. Callers hold mu.
func (b *box) status() sos.Status {
	if b.phase != "" {
		return b.phase
	}
	return b.row.Status
}

func (b *box) setPhase(s sos.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phase = s
}

// view is the sandbox as callers see it; position is its place in the queue.
func (b *box) view(position int) sos.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.row
	s.Status = b.status()
	s.SessionCommandCount, s.LastStandaloneExitCode = b.sessionCommands, b.lastStandalone
	switch s.Status {
	case sos.StatusQueued:
		s.QueuePosition = position
		s.Reason, s.Message = sos.ReasonServerLimit, "waits for admission"
		if position > 0 {
			s.Message = fmt.Sprintf("waits for admission as number %d", position)
		}
	case sos.StatusStarting:
		s.Reason, s.Message = "", ""
	}
	return s
}

// get is the view of one sandbox.
func (p *Plane) get(b *box) sos.Sandbox { return b.view(p.admission.position(b.id)) }

// edit changes the stored record; durable: it survives a power loss on return.
func (p *Plane) edit(b *box, durable bool, fn func(*sos.Sandbox)) error {
	ctx, cancel := p.write()
	defer cancel()
	store := p.cfg.Store.TouchSandbox
	if durable {
		store = p.cfg.Store.UpdateSandbox
	}
	b.editMu.Lock()
	defer b.editMu.Unlock()
	b.mu.Lock()
	count, last, limit := b.sessionCommands, b.lastStandalone, b.row.DiskLimit
	b.mu.Unlock()
	row, err := store(ctx, b.id, func(s *sos.Sandbox) error {
		fn(s)
		s.SessionCommandCount, s.LastStandaloneExitCode = count, last
		return nil
	})
	if err != nil {
		return fmt.Errorf("record sandbox %s: %w", b.id, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	row.DiskLimit = limit // of this host, not stored
	b.row = row
	return nil
}

// running gives the life of a sandbox that takes commands.
func (b *box) running() (*life, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.phase == sos.StatusRemoving:
		return nil, notFound(b.id)
	case b.phase != "" || !b.row.Status.Running():
		return nil, errNotStarted()
	case b.life == nil:
		return nil, &sos.Error{Code: sos.CodeUnavailable, Message: "the sandbox is being taken over", Fix: "try again in a moment"}
	}
	return b.life, nil
}

// nextSeq numbers the processes of the sandbox.
func (b *box) nextSeq(session bool) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	if session {
		b.sessionCommands++
	}
	return b.seq
}

func (b *box) setLastStandalone(code *int) {
	if code == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastStandalone = code
}
