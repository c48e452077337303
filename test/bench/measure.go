package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// latencies measures the systems in turn, A B A B …, so that a machine whose
// speed drifts treats both alike.
func latencies(ctx context.Context, t *table, peers []system, runs int) error {
	for range runs {
		for _, p := range peers {
			var id string
			d, err := timed(func() (err error) {
				if id, err = p.start(ctx); err != nil {
					return err
				}
				return expect(ctx, p, id)
			})
			if err != nil {
				return fmt.Errorf("%s: create: %w", p.name(), err)
			}
			t.add("create → first result", "ms", p, ms(d))
			for range 3 {
				d, err := timed(func() error { _, err := p.run(ctx, id, "/bin/true"); return err })
				if err != nil {
					return fmt.Errorf("%s: exec: %w", p.name(), err)
				}
				t.add("exec /bin/true", "ms", p, ms(d))
			}
			d, err = timed(func() error { return p.remove(ctx, id) })
			if err != nil {
				return fmt.Errorf("%s: remove: %w", p.name(), err)
			}
			t.add("stop and remove", "ms", p, ms(d))
		}
	}
	return nil
}

func expect(ctx context.Context, p system, id string) error {
	out, err := p.run(ctx, id, "/bin/echo ready")
	if err == nil && strings.TrimSpace(out) != "ready" {
		err = fmt.Errorf("output %q, want ready", out)
	}
	return err
}

// cycles measures whole lives: create, start, one command, remove.
func cycles(ctx context.Context, t *table, peers []system, runs int) error {
	for _, c := range []int{1, 2, 10} {
		for range 3 {
			for _, p := range peers {
				n := max(c, runs)
				if p.name() != "sos" {
					n = max(c, runs/5)
				}
				d, err := timed(func() error { return parallel(c, n, func() error { return cycle(ctx, p) }) })
				if err != nil {
					return fmt.Errorf("%s: cycles at %d: %w", p.name(), c, err)
				}
				t.add(fmt.Sprintf("cycles at concurrency %d", c), "/s", p, float64(n)/d.Seconds())
			}
		}
	}
	return nil
}

func cycle(ctx context.Context, p system) error {
	id, err := p.start(ctx)
	if err != nil {
		return err
	}
	if err := expect(ctx, p, id); err != nil {
		return err
	}
	return p.remove(ctx, id)
}

// parallel calls f n times, c at once, and gives the first error.
func parallel(c, n int, f func() error) error {
	var wg sync.WaitGroup
	work, errs := make(chan struct{}, n), make(chan error, c)
	for range n {
		work <- struct{}{}
	}
	close(work)
	for range c {
		wg.Go(func() {
			for range work {
				if err := f(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// memories measures several at once: what a sandbox alone on a host maps from the
// files of its image would count as private to it.
// memories lets some sandboxes live at once: what they map of the same files is
// then private to none.
func memories(ctx context.Context, t *table, peers []system) error {
	for _, p := range peers {
		var ids []string
		for range 8 {
			id, err := p.start(ctx)
			if err != nil {
				return err
			}
			ids = append(ids, id)
			if err := expect(ctx, p, id); err != nil {
				return err
			}
		}
		for _, id := range ids {
			n, err := p.memory(ctx, id)
			if err != nil {
				return fmt.Errorf("%s: memory: %w", p.name(), err)
			}
			t.add("private memory of an idle sandbox", "MiB", p, float64(n)/(1<<20))
		}
		for _, id := range ids {
			if err := p.remove(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// outputs lets a command write much. Ours is what reached the journal, by the
// recorded times of the process; Docker's what reached the client, since its
// engine keeps no record of an exec.
func outputs(ctx context.Context, t *table, peers []system) error {
	const mb = 512
	for _, p := range peers {
		id, err := p.start(ctx)
		if err != nil {
			return err
		}
		// The content comes from the page cache: neither side waits for a producer.
		if _, err := p.run(ctx, id, fmt.Sprintf("dd if=/dev/zero of=/big bs=1000000 count=%d status=none", mb)); err != nil {
			return fmt.Errorf("%s: output: %w", p.name(), err)
		}
		for range 3 {
			d, err := timed(func() error { _, err := p.run(ctx, id, "cat /big"); return err })
			if r, ok := p.(recorder); ok && err == nil {
				d, err = r.lastDuration(ctx, id)
			}
			if err != nil {
				return fmt.Errorf("%s: output: %w", p.name(), err)
			}
			t.add("output of one command", "MB/s", p, mb/d.Seconds())
		}
		if err := p.remove(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// recorder is a system that records when its processes started and ended.
type recorder interface {
	lastDuration(ctx context.Context, id string) (time.Duration, error)
}

// sessions measures what only we have.
func sessions(ctx context.Context, t *table, s *sosSystem, runs int) error {
	id, err := s.start(ctx)
	if err != nil {
		return err
	}
	for label, text := range map[string]string{
		"session: echo":      "echo x",
		"session: :":         ":",
		"session: loop":      "for i in 1 2 3; do\n  echo $i\ndone",
		"session: heredoc":   "while read l; do echo \"$l\"; done <<E\na\nb\nE",
		"session: /bin/true": "/bin/true",
	} {
		for range runs {
			d, err := timed(func() error { _, err := s.exec(ctx, id, text, false); return err })
			if err != nil {
				return fmt.Errorf("%s: %w", label, err)
			}
			t.add(label, "ms", s, ms(d))
		}
	}
	return s.remove(ctx, id)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
