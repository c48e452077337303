package control

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/seaofsimulation/sos"
)

// ListProcesses implements sos.Service: from the store, with what is alive as it
// is now.
func (p *Plane) ListProcesses(ctx context.Context, ref string, f sos.ProcessFilter) ([]sos.Process, error) {
	b, err := p.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	all, err := p.processes(ctx, b, true)
	if err != nil {
		return nil, err
	}
	list := []sos.Process{}
	for _, q := range all {
		if (len(f.Kinds) == 0 || slices.Contains(f.Kinds, q.Kind)) && (f.Session == "" || f.Session == q.Session) &&
			(len(f.Statuses) == 0 || slices.Contains(f.Statuses, q.Status)) {
			list = append(list, q)
		}
	}
	return list, nil
}

// processes gives all processes of a sandbox in their order. late: with the output
// that survivors of ended ones have written since.
func (p *Plane) processes(ctx context.Context, b *box, late bool) ([]sos.Process, error) {
	alive := b.alive() // before the store: what ends in between is there twice, never not at all
	p.storer.flush()
	list, err := p.cfg.Store.Processes(ctx, b.id)
	if err != nil {
		return nil, internal("list processes of", b.id, err)
	}
	for i, q := range list {
		if pr := alive[q.ID]; pr != nil {
			list[i] = pr.snapshot(late)
			delete(alive, q.ID)
		}
	}
	for _, pr := range alive {
		list = append(list, pr.snapshot(late))
	}
	slices.SortFunc(list, func(a, b sos.Process) int { return int(a.Seq - b.Seq) })
	return list, nil
}

// alive gives what has no recorded end, or whose output is still open.
func (b *box) alive() map[string]*proc {
	b.mu.Lock()
	l := b.life
	b.mu.Unlock()
	m := map[string]*proc{}
	if l == nil {
		return m
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, pr := range l.procs {
		if pr.rec != nil {
			m[id] = pr
		}
	}
	return m
}

// GetProcess implements sos.Service.
func (p *Plane) GetProcess(ctx context.Context, ref, id string) (sos.Process, error) {
	b, err := p.find(ctx, ref)
	if err != nil {
		return sos.Process{}, err
	}
	if pr := b.alive()[id]; pr != nil {
		return pr.snapshot(true), nil
	}
	p.storer.flush()
	q, err := p.cfg.Store.Process(ctx, b.id, id)
	if err != nil {
		if sos.ErrorCode(err) == sos.CodeNotFound {
			return q, err
		}
		return q, internal("read process", id, err)
	}
	if q.Survivors { // they may have written since
		for i, o := range q.Output {
			if _, total, err := p.cfg.Journal.Head(b.id, id, o.Stream, 0); err == nil && !o.Truncated {
				q.Output[i].Bytes, q.Output[i].Seen = total, total
			}
		}
	}
	return q, nil
}

// ReadOutput implements sos.Service.
func (p *Plane) ReadOutput(ctx context.Context, ref, id string, stream sos.Stream, offset int64, follow bool, w io.Writer) (int64, error) {
	if stream == "" {
		stream = sos.StreamOut
	}
	if _, err := p.GetProcess(ctx, ref, id); err != nil {
		return offset, err
	}
	b, err := p.find(ctx, ref)
	if err != nil {
		return offset, err
	}
	n, err := p.cfg.Journal.Read(ctx, b.id, id, stream, offset, follow, w)
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return n, gone(ctx)
	}
	if _, ok := errors.AsType[*sos.Error](err); ok {
		return n, err
	}
	return n, internal("read the output of", id, err)
}

// Trajectory implements sos.Service: the commands of the sandbox's sessions in
// the order of their acceptance, with what their callers were told.
func (p *Plane) Trajectory(ctx context.Context, ref string) (sos.Trajectory, error) {
	b, err := p.find(ctx, ref)
	if err != nil {
		return sos.Trajectory{}, err
	}
	all, err := p.processes(ctx, b, false)
	if err != nil {
		return sos.Trajectory{}, err
	}
	t := sos.Trajectory{Sandbox: b.id, Entries: []sos.TrajectoryEntry{}}
	budget := 4 * p.cfg.MaxAnswer // of all answers together: they are held in memory
	for _, q := range all {
		if q.Kind != sos.KindSession {
			continue
		}
		e := sos.TrajectoryEntry{Index: len(t.Entries), Process: q, HasResult: q.Status == sos.ProcessExited}
		if e.HasResult {
			if e.Output, err = p.answerText(b, q, &budget); err != nil {
				return t, err
			}
		}
		t.Entries = append(t.Entries, e)
	}
	return t, nil
}

// answerText is the output of an ended process as its answer had it.
func (p *Plane) answerText(b *box, q sos.Process, budget *int64) (string, error) {
	size := answerSize(q)
	limit := min(size, p.cfg.MaxAnswer, *budget)
	if limit == 0 {
		return "", nil
	}
	data, _, err := p.cfg.Journal.Head(b.id, q.ID, sos.StreamOut, int(limit))
	if err != nil {
		return "", internal("read the output of", q.ID, err)
	}
	*budget -= int64(len(data))
	return outputText(q, data, int64(len(data)) < size), nil
}
