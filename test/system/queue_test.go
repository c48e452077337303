package system

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// crowd is many sandboxes that were started at once under a limit.
type crowd struct {
	*rig
	boxes []*box
	err   []chan error // the answers to their starts
	quit  []context.CancelFunc
}

// rush creates n sandboxes and starts all of them at the same time.
func (r *rig) rush(n int) *crowd {
	r.t.Helper()
	c := &crowd{rig: r}
	for range n {
		c.boxes = append(c.boxes, r.created(sos.SandboxSpec{}))
	}
	for _, b := range c.boxes {
		ctx, quit := context.WithTimeout(r.t.Context(), 2*long)
		r.t.Cleanup(quit)
		done := make(chan error, 1)
		c.err, c.quit = append(c.err, done), append(c.quit, quit)
		go func() {
			_, err := r.c.StartSandbox(ctx, b.id)
			done <- err
		}()
	}
	return c
}

// look gives the sandboxes by status and those that are queued in their order.
func (c *crowd) look() (queue []string, byStatus map[sos.Status][]string) {
	c.t.Helper()
	list, err := c.c.ListSandboxes(deadline(c.t), sos.SandboxFilter{})
	if err != nil {
		c.t.Fatal(err)
	}
	byStatus = map[sos.Status][]string{}
	position := map[string]int{}
	for _, s := range list {
		byStatus[s.Status] = append(byStatus[s.Status], s.ID)
		if s.QueuePosition > 0 {
			position[s.ID] = s.QueuePosition
			queue = append(queue, s.ID)
		}
	}
	slices.SortFunc(queue, func(a, b string) int { return position[a] - position[b] })
	return queue, byStatus
}

// full waits until the limit is reached and everybody else queues.
func (c *crowd) full(limit int) (queue []string) {
	c.t.Helper()
	eventually(c.t, "the others queue", func() bool {
		q, by := c.look()
		queue = q
		return len(by[sos.StatusStarted]) == limit && len(q) == len(c.boxes)-limit
	})
	for i, id := range queue {
		if s := (&box{c.rig, id}).seen(); s.QueuePosition != i+1 || s.Reason != sos.ReasonServerLimit {
			c.t.Errorf("%s is at %d (%s), want %d", id, s.QueuePosition, s.Reason, i+1)
		}
	}
	return queue
}

func (c *crowd) index(id string) int {
	return slices.IndexFunc(c.boxes, func(b *box) bool { return b.id == id })
}

// TestQueue starts 100 sandboxes at once where 10 may run.
func TestQueue(t *testing.T) {
	const limit = 10
	r := newRig(t, "--max-sandboxes", fmt.Sprint(limit), "--stop-grace", "1")
	c := r.rush(100)
	queue := c.full(limit)
	last := c.boxes[c.index(queue[len(queue)-1])]

	// What needs no place is answered at once.
	if _, err := r.c.StartSandbox(deadline(t), "sb-aaaaaaaaaaaaaaaa"); sos.ErrorCode(err) != sos.CodeNotFound {
		t.Errorf("start of an unknown id while full: %v", err)
	}
	if _, err := r.c.StartSandbox(deadline(t), last.id); sos.ErrorCode(err) != sos.CodeAlreadyStarted {
		t.Errorf("second start while queued: %v", err)
	}
	_, by := c.look()
	if _, err := r.c.StartSandbox(deadline(t), by[sos.StatusStarted][0]); sos.ErrorCode(err) != sos.CodeAlreadyStarted {
		t.Errorf("start of a started one while full: %v", err)
	}
	if _, err := r.c.Exec(deadline(t), last.id, sos.ExecRequest{Command: "true"}); sos.ErrorCode(err) != sos.CodeNotStarted {
		t.Errorf("exec while queued: %v", err)
	}

	// A client that goes away frees its place, and can come back: at the end.
	quitter := queue[4]
	c.quit[c.index(quitter)]()
	if err := <-c.err[c.index(quitter)]; sos.ErrorCode(err) != sos.CodeCanceled {
		t.Errorf("the client that went away got %v", err)
	}
	want := slices.Delete(slices.Clone(queue), 4, 5)
	eventually(t, "the queue closes up", func() bool { q, _ := c.look(); return slices.Equal(q, want) })
	if s := (&box{r, quitter}).seen(); s.Status != sos.StatusCreated || s.QueuePosition != 0 {
		t.Errorf("who left the queue is %s at %d", s.Status, s.QueuePosition)
	}
	// A stop takes a sandbox out of the queue, and its start is answered.
	stopped := want[7]
	if _, err := r.c.StopSandbox(deadline(t), stopped, sos.StopRequest{}); err != nil {
		t.Errorf("stop while queued: %v", err)
	}
	if err := <-c.err[c.index(stopped)]; sos.ErrorCode(err) != sos.CodeSandboxStopped {
		t.Errorf("the start of a stopped one got %v", err)
	}
	want = slices.Delete(want, 7, 8)
	c.again(quitter)
	want = append(want, quitter)
	eventually(t, "it queues at the end", func() bool { q, _ := c.look(); return slices.Equal(q, want) })

	// One place becomes free at a time: the first in the queue gets it.
	for range 20 {
		_, by := c.look()
		c.finish(by[sos.StatusStarted][0])
		if err := <-c.err[c.index(want[0])]; err != nil {
			t.Fatalf("start of %s: %v", want[0], err)
		}
		if q, _ := c.look(); !slices.Equal(q, want[1:]) {
			t.Fatalf("the queue is %v, want %v", q, want[1:])
		}
		want = want[1:]
	}
	c.race(want)
	r.clean()
}

// again starts one anew.
func (c *crowd) again(id string) {
	done := make(chan error, 1)
	c.err[c.index(id)] = done
	ctx := deadline(c.t)
	go func() {
		_, err := c.c.StartSandbox(ctx, id)
		done <- err
	}()
}

// finish uses a started sandbox and removes it.
func (c *crowd) finish(id string) {
	b := &box{c.rig, id}
	b.sh("echo $((6*7))", "42", 0)
	b.alone("echo alone", "alone\n", 0)
	if _, err := c.c.StopSandbox(deadline(c.t), id, sos.StopRequest{Remove: true}); err != nil {
		c.t.Errorf("remove %s: %v", id, err)
	}
}

// race lets all the rest through as fast as it goes: nobody overtakes.
func (c *crowd) race(queue []string) {
	c.t.Helper()
	_, by := c.look()
	var wg sync.WaitGroup
	for _, id := range by[sos.StatusStarted] {
		wg.Go(func() { c.finish(id) })
	}
	for _, id := range queue {
		wg.Go(func() {
			if err := <-c.err[c.index(id)]; err != nil {
				c.t.Errorf("start of %s: %v", id, err)
				return
			}
			c.finish(id)
		})
	}
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		c.watchOrder(queue, stop)
	}()
	wg.Wait()
	close(stop)
	<-watched
	if list, err := c.c.ListSandboxes(deadline(c.t), sos.SandboxFilter{Status: []sos.Status{sos.StatusQueued, sos.StatusStarted}}); err != nil || len(list) > 0 {
		c.t.Errorf("left in the end: %+v, %v", list, err)
	}
	left, _ := c.look()
	if len(left) > 0 {
		c.t.Errorf("still queued: %v", left)
	}
	for _, b := range c.boxes { // the one that was stopped
		if err := c.c.RemoveSandbox(deadline(c.t), b.id); err != nil && sos.ErrorCode(err) != sos.CodeNotFound {
			c.t.Errorf("remove %s: %v", b.id, err)
		}
	}
}

// watchOrder demands that nobody waits who stood before somebody that an earlier
// look saw admitted.
func (c *crowd) watchOrder(queue []string, stop chan struct{}) {
	admitted := -1 // the last of the queue that was seen to be in
	for {
		select {
		case <-stop:
			return
		default:
		}
		waiting, _ := c.look()
		first := len(queue)
		for i, id := range queue {
			isWaiting := slices.Contains(waiting, id)
			if isWaiting && i < admitted {
				c.t.Errorf("%s (%d) waits although %d was admitted before", id, i, admitted)
			}
			if isWaiting {
				first = min(first, i)
			}
		}
		// Only what was in before this look began counts for the next one.
		admitted = max(admitted, first-1)
		for i := len(queue) - 1; i > first; i-- {
			if !slices.Contains(waiting, queue[i]) {
				admitted = max(admitted, i)
				break
			}
		}
	}
}

// TestCrowds: full lives of many sandboxes at once, again and again.
func TestCrowds(t *testing.T) {
	testutil.Full(t)
	r := newRig(t, "--stop-grace", "1")
	for range testutil.Scale(5) {
		c := r.rush(100)
		c.race(c.full(10))
	}
	r.clean()
}
