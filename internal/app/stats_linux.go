package app

import (
	"context"

	"github.com/seaofsimulation/sos/internal/control"
	"github.com/seaofsimulation/sos/internal/server"
)

// planeStats gives what the control plane counts to /metrics. What is there now
// (sandboxes by status, places, the queue) the server asks by itself. Labels are
// codes and reasons of the vocabulary, never ids.
type planeStats struct{ counts func() control.Stats }

// Samples implements server.Stats.
func (p planeStats) Samples(context.Context) []server.Sample {
	s := p.counts()
	var list []server.Sample
	for code, n := range s.Starts {
		outcome := string(code)
		if outcome == "" {
			outcome = "ok"
		}
		list = append(list, server.Sample{Name: "starts_total", Help: "Starts that got their place, by outcome: ok or the code of the error.",
			Counter: true, Value: float64(n), Labels: map[string]string{"outcome": outcome}})
	}
	for end, n := range s.Processes {
		reason := string(end)
		if reason == "" {
			reason = "lost"
		}
		list = append(list, server.Sample{Name: "processes_ended_total", Help: "Commands that have ended, by reason; lost: nobody saw the end.",
			Counter: true, Value: float64(n), Labels: map[string]string{"reason": reason}})
	}
	return append(list,
		histogram("start_seconds", "Time of successful starts, with the wait for a place.", s.StartSeconds),
		histogram("process_seconds", "Time of commands from acceptance to end.", s.ExecSeconds),
		server.Sample{Name: "output_dropped_total", Help: "Pieces of output that could not be recorded.", Counter: true, Value: float64(s.OutputDropped)})
}

// histogram makes counts of each bucket cumulative, as Prometheus has them.
func histogram(name, help string, h control.Histogram) server.Sample {
	buckets := make(map[float64]uint64, len(control.DurationBuckets))
	var sum uint64
	for i, bound := range control.DurationBuckets {
		sum += h.Counts[i]
		buckets[bound] = sum
	}
	return server.Sample{Name: name, Help: help, Value: h.Sum, Count: h.Count, Buckets: buckets}
}
