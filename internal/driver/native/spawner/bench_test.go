package spawner

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestCreateTime reports what a create costs; it holds nothing but that it works.
func TestCreateTime(t *testing.T) {
	r := newRig(t)
	var create, first, kill []time.Duration
	for i := range 20 {
		req := r.request(fmt.Sprintf("sb-%d", i))
		start := time.Now()
		r.create(req)
		create = append(create, time.Since(start))
		if out := r.sh(req.ID, "echo x"); out != "x\n" {
			t.Fatal(out)
		}
		first = append(first, time.Since(start))
		start = time.Now()
		if err := r.client.Kill(r.ctx(), req.ID); err != nil {
			t.Fatal(err)
		}
		kill = append(kill, time.Since(start))
	}
	t.Logf("median: create %v, with the first command %v, kill %v", median(create), median(first), median(kill))
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
