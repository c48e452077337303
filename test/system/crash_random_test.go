package system

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/client"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// fate is what a client knows of its sandbox from the answers it got.
type fate struct {
	id       string
	started  bool // a start was answered with success
	stopping bool // a stop was sent since
	removing bool // a remove was sent
	removed  bool // a remove was answered with success
}

// TestKilledAtAnyMoment kills server and spawner at random moments while clients
// create, start, use, stop and remove. What was answered holds, what was not
// answered is done or not done, and nothing is half made.
func TestKilledAtAnyMoment(t *testing.T) {
	r := newRig(t, "--max-sandboxes", "1000", "--stop-grace", "1")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var all []*fate
	for round := range testutil.Scale(6) {
		all = append(all, r.storm(rnd, round)...)
		if t.Failed() {
			return
		}
	}
	r.settle(all)
	for _, f := range all {
		if err := r.c.RemoveSandbox(deadline(t), f.id); err != nil && sos.ErrorCode(err) != sos.CodeNotFound {
			t.Errorf("remove %s: %v", f.id, err)
		}
	}
	if list, err := r.c.ListSandboxes(deadline(t), sos.SandboxFilter{}); err != nil || len(list) > 0 {
		t.Errorf("listed after all were removed: %+v, %v", list, err)
	}
	r.clean()
}

// storm lets clients work until the server is killed under them, and boots the
// next one.
func (r *rig) storm(rnd *rand.Rand, round int) []*fate {
	const clients = 4
	ctx, stop := context.WithCancel(r.t.Context())
	defer stop()
	var mu sync.Mutex
	var all []*fate
	var wg sync.WaitGroup
	for range clients {
		own := rand.New(rand.NewPCG(rnd.Uint64(), 1))
		c := client.New(client.Config{URL: r.srv.URL})
		wg.Go(func() {
			for ctx.Err() == nil {
				s, err := c.CreateSandbox(ctx, sos.SandboxSpec{Image: ubuntu})
				if err != nil {
					return // the server is gone
				}
				f := &fate{id: s.ID}
				mu.Lock()
				all = append(all, f)
				mu.Unlock()
				if !f.live(ctx, c, own) {
					return
				}
			}
		})
	}
	time.Sleep(time.Duration(rnd.IntN(1200)) * time.Millisecond) // the random moment itself
	switch round % 3 {
	case 0:
		r.kill()
	case 1:
		r.killSpawner()
		r.kill()
	case 2: // the server goes on without its spawner for a while
		r.killSpawner()
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		r.kill()
	}
	stop()
	wg.Wait()
	r.boot()
	return all
}

// live takes a sandbox through its life and says whether the server still answers.
func (f *fate) live(ctx context.Context, c *client.Client, rnd *rand.Rand) bool {
	if _, err := c.StartSandbox(ctx, f.id); err != nil {
		return false
	}
	f.started = true
	if _, err := c.Exec(ctx, f.id, sos.ExecRequest{Command: "V=kept; echo " + f.id + " > /root/name; sync /root/name"}); err != nil {
		return false
	}
	if rnd.IntN(3) == 0 {
		return true // left running
	}
	f.stopping = true
	if _, err := c.StopSandbox(ctx, f.id, sos.StopRequest{}); err != nil {
		return false
	}
	if rnd.IntN(3) == 0 {
		return true // left stopped
	}
	f.removing = true
	if err := c.RemoveSandbox(ctx, f.id); err != nil {
		return false
	}
	f.removed = true
	return true
}

// settle holds what the server makes of each sandbox to what was answered.
func (r *rig) settle(all []*fate) {
	r.t.Helper()
	seen := map[string]sos.Sandbox{}
	eventually(r.t, "every sandbox comes to rest", func() bool {
		list, err := r.c.ListSandboxes(deadline(r.t), sos.SandboxFilter{})
		if err != nil {
			return false
		}
		clear(seen)
		for _, s := range list {
			seen[s.ID] = s
			switch s.Status {
			case sos.StatusQueued, sos.StatusStarting, sos.StatusStopping, sos.StatusRemoving:
				return false
			}
		}
		return true
	})
	for _, f := range all {
		s, there := seen[f.id]
		delete(seen, f.id)
		b := &box{r, f.id}
		switch {
		case !there && !f.removing:
			r.t.Errorf("%+v was lost", *f)
		case there && f.removed:
			r.t.Errorf("%+v was removed and is %s", *f, s.Status)
		case !there || f.removing:
		case f.started && !f.stopping && s.Status != sos.StatusStarted:
			r.t.Errorf("%+v is %s: %s %s", *f, s.Status, s.Reason, s.Message)
		case f.started && f.stopping && s.Status != sos.StatusStarted && s.Status != sos.StatusStopped:
			r.t.Errorf("%+v is %s: %s %s", *f, s.Status, s.Reason, s.Message)
		case s.Status == sos.StatusStarted || s.Status == sos.StatusExited:
			b.sh("echo $((6*7))", "42", 0)
		default: // created, stopped or failed: it can be started
			if _, err := r.c.StartSandbox(deadline(r.t), f.id); err != nil {
				r.t.Errorf("start %+v (%s): %v", *f, s.Status, err)
				break
			}
			want := "none"
			if f.stopping {
				want = f.id
			}
			if f.stopping || s.Status == sos.StatusCreated {
				b.sh("cat /root/name 2>/dev/null || echo none", want, 0)
			}
		}
	}
	for id, s := range seen {
		if s.Status != sos.StatusCreated { // an answer to its create may have been lost
			r.t.Errorf("nobody knows %s, which is %s", id, s.Status)
		}
		if err := r.c.RemoveSandbox(deadline(r.t), id); err != nil {
			r.t.Errorf("remove %s: %v", id, err)
		}
	}
}

// TestDownWithoutServer ends what a killed server and a killed spawner left.
func TestDownWithoutServer(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		b := r.started(sos.SandboxSpec{})
		b.sh(fmt.Sprintf("setsid sleep 1000 > /dev/null 2>&1 & echo %d", i), fmt.Sprint(i), 0)
	}
	r.killSpawner()
	r.kill()
	r.srv.TearDown(t.Errorf) // demands that nothing is left
	r.args = nil
	r.boot() // a new one on the same, now empty, directory
}
