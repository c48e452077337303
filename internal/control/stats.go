package control

import (
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
)

// DurationBuckets are the upper bounds, in seconds, of the counts of a Histogram;
// one more count is for what is above.
var DurationBuckets = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// Histogram counts durations.
type Histogram struct {
	Counts [len(DurationBuckets) + 1]uint64 // not cumulative
	Sum    float64                          // seconds
	Count  uint64
}

func (h *Histogram) add(d time.Duration) {
	s := d.Seconds()
	i := 0
	for i < len(DurationBuckets) && s > DurationBuckets[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += s
	h.Count++
}

// Stats is what the plane counts. Counters begin with the server.
type Stats struct {
	Sandboxes    map[sos.Status]int // now
	Running      int                // places taken
	Queued       int                // starts that wait
	MaxSandboxes int

	Starts        map[sos.Code]uint64      // by outcome; "" is success
	Processes     map[sos.EndReason]uint64 // ended, by reason; "" is lost
	StartSeconds  Histogram                // successful starts, with the wait for admission
	ExecSeconds   Histogram                // processes from acceptance to end
	OutputDropped uint64                   // pieces of output that could not be kept
}

// counters are the part of Stats that grows.
type counters struct {
	mu sync.Mutex
	s  Stats
}

func (c *counters) started(d time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s.Starts == nil {
		c.s.Starts = map[sos.Code]uint64{}
	}
	c.s.Starts[sos.ErrorCode(err)]++
	if err == nil {
		c.s.StartSeconds.add(d)
	}
}

func (c *counters) ended(p sos.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.s.Processes == nil {
		c.s.Processes = map[sos.EndReason]uint64{}
	}
	c.s.Processes[p.Reason]++
	if p.EndedAt != nil {
		c.s.ExecSeconds.add(p.EndedAt.Sub(p.CreatedAt))
	}
}

func (c *counters) lostOutput() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.s.OutputDropped++
}

// Stats gives a copy of all counts.
func (p *Plane) Stats() Stats {
	p.stats.mu.Lock()
	s := p.stats.s
	s.Starts, s.Processes = copyMap(s.Starts), copyMap(s.Processes)
	p.stats.mu.Unlock()
	s.Sandboxes = map[sos.Status]int{}
	for _, b := range p.all() {
		b.mu.Lock()
		if b.exists {
			s.Sandboxes[b.status()]++
		}
		b.mu.Unlock()
	}
	s.Running, s.Queued = p.admission.counts()
	s.MaxSandboxes = p.cfg.MaxSandboxes
	return s
}

func copyMap[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
