package session

import (
	"slices"
	"testing"
	"time"

	"github.com/seaofsimulation/sos/internal/guest"
)

// BenchmarkRun is the round trip of one command; p50 and p99 beside the mean.
func BenchmarkRun(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"colon", ":"}, {"echo", "echo x"}, {"false", "false"}, {"loop", "for i in 1 2 3; do echo $i; done"},
		{"heredoc", "while read l; do echo $l; done <<EOF\na\nb\nEOF"}, {"cat-heredoc", "cat <<EOF\na\nEOF"}, {"true", "/bin/true"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := open(b)
			out := &record{each: func([]byte) {}}
			var d []time.Duration
			for b.Loop() {
				t := time.Now()
				if r := s.Run(guest.SessionCommand{Text: c.text}, out, func() {}); r.Exit.ExitCode == nil {
					b.Fatal(show(r.Exit))
				}
				d = append(d, time.Since(t))
			}
			report(b, d)
		})
	}
}

// BenchmarkOpen is the time from nothing to a session that has answered, with
// the cost of the stub that stands in for the guest here.
func BenchmarkOpen(b *testing.B) {
	var d []time.Duration
	for b.Loop() {
		t := time.Now()
		s, err := Open(config(b))
		if err != nil {
			b.Fatal(err)
		}
		d = append(d, time.Since(t))
		s.Close()
	}
	report(b, d)
}

func report(b *testing.B, d []time.Duration) {
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(d[len(d)*99/100].Nanoseconds())/1e3, "p99-µs")
}

// BenchmarkOutput is what a session passes on per second.
func BenchmarkOutput(b *testing.B) {
	s := open(b)
	out := &record{each: func([]byte) {}}
	b.SetBytes(100 << 20)
	for b.Loop() {
		s.Run(guest.SessionCommand{Text: "head -c 100M /dev/zero"}, out, func() {})
	}
}
