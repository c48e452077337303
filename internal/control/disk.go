package control

import (
	"context"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

// A watched disk limit: what a sandbox has written is measured from time to time,
// and what writes beyond the limit is ended. First the commands; when it grows
// all the same, because of something that an earlier command left behind, the
// sandbox is stopped.
const (
	idleLooks     = 10 // looks at busy sandboxes for one at those that run no command
	lookPart      = 10 // all looks together may take one part in so many of the time
	lookTimeout   = 20 * time.Second
	glances       = 20       // at the host's free disk, within the time of one look
	quietStrikes  = 2        // looks at a growing sandbox without commands before it is stopped
	strikesToStop = 5        // the same with commands, which were ended
	grownBytes    = 64 << 20 // of the host's disk, after which idle sandboxes are looked at
)

// diskGrew says whether the host's disk has filled noticeably since it last said
// so: a thousand idle sandboxes cost nothing while it has not. It is the watch's own.
func (p *Plane) diskGrew() bool {
	if p.cfg.DiskFree == nil {
		return true
	}
	free, _, err := p.cfg.DiskFree()
	switch {
	case err != nil:
		return true
	case free > p.diskFree:
		p.diskFree = free
		return false
	case p.diskFree-free < grownBytes:
		return false
	}
	p.diskFree = free
	return true
}

// look is when and how the disk of a life was measured; guarded by its mu.
type look struct {
	under   bool // one is under way
	last    time.Time
	took    time.Duration
	bytes   int64
	strikes int // looks in a row at which it was over its limit and grew
}

// lookDue says whether it is time to measure, and if so takes the turn.
// grew: something on the host's disk has grown, which may be an idle sandbox.
// others is how many share the time for looking.
func (l *life) lookDue(now time.Time, busy, grew bool, interval time.Duration, others int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch idle := !busy && l.look.strikes == 0; {
	case idle && !grew:
		return false
	case idle:
		interval *= idleLooks
	case grew:
		interval /= glances
	}
	if l.look.under || now.Sub(l.look.last) < max(interval, lookPart*l.look.took*time.Duration(max(others, 1))) {
		return false
	}
	l.look.under, l.look.last = true, now
	return true
}

func (l *life) looked(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look.under, l.look.took = false, took
}

// checkDisk measures, and ends what writes beyond the limit, or at all while the
// host has hardly any room left.
func (l *life) checkDisk(s driver.Statser, hostLow bool) {
	began := time.Now()
	defer func() { l.looked(time.Since(began)) }()
	ctx, cancel := context.WithTimeout(l.ctx, lookTimeout)
	defer cancel()
	st, err := s.Stats(ctx, l.b.id)
	if l.ctx.Err() != nil {
		return
	}
	unknown := err != nil || st.DiskBytes < 0
	l.b.mu.Lock()
	limit := int64(l.b.row.Limits.WithDefaults().Disk)
	l.b.mu.Unlock()
	l.mu.Lock()
	grew := unknown || st.DiskBytes > l.look.bytes
	if !unknown {
		l.look.bytes = st.DiskBytes
	}
	over := grew && (hostLow || !unknown && st.DiskBytes > limit)
	if !over {
		l.look.strikes = 0
		l.mu.Unlock()
		return
	}
	l.look.strikes++
	strikes := l.look.strikes
	var running []*proc
	alive := 0
	for _, pr := range l.procs {
		if pr.ended || pr.rec == nil || pr.p.StartedAt == nil {
			continue
		}
		if alive++; !pr.overdue {
			pr.overdue = true
			running = append(running, pr)
		}
	}
	l.mu.Unlock()
	l.p.cfg.Log.Warn("no room on the disk", "sandbox", l.b.id, "bytes", st.DiskBytes, "limit", limit, "host_low", hostLow, "commands", len(running))
	for _, pr := range running {
		l.force(pr, sos.EndDiskLimit)
	}
	if strikes >= strikesToStop || alive == 0 && strikes >= quietStrikes {
		l.p.beginEnd(l.b, &endOp{reason: sos.ReasonDiskLimit, grace: l.p.cfg.StopGrace, cause: errStopped(),
			message: "something in the background wrote beyond the disk limit of " + sos.Size(limit).String() + "; its files are kept"})
	}
}
