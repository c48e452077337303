package fake

import (
	"context"
	"time"

	"github.com/seaofsimulation/sos/internal/driver"
)

// BrokenImage is the digest of an image with which Start always fails.
const BrokenImage = "sha256:broken"

// Plan says what goes wrong with a sandbox. The zero Plan: nothing.
type Plan struct {
	StartDelay time.Duration // Start takes this long, or until its context ends
	StartErr   error         // Start fails with it
	DialErr    error         // Dial fails with it
	Hang       bool          // the guest takes connections and answers nothing
}

// Plan sets what happens to one sandbox from now on, or with "" to every sandbox
// without a plan of its own. Hang takes effect in a guest that runs already.
func (d *Driver) Plan(id string, p Plan) {
	d.mu.Lock()
	d.plans[id] = p
	var g *guest
	if b := d.boxes[id]; b != nil {
		g = b.guest
	}
	d.mu.Unlock()
	if g != nil {
		g.hangs(p.Hang)
	}
}

func (d *Driver) planOf(id string) Plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.plans[id]; ok {
		return p
	}
	return d.plans[""]
}

// Crash ends the guest of a running sandbox in the given way, as if nobody had
// asked for it. It does nothing when the sandbox does not run.
func (d *Driver) Crash(id string, e driver.Exit) {
	if g := d.running(id); g != nil {
		g.end(e)
	}
}

// Disconnect breaks the streams to the guest; the guest lives on and can be
// dialled again.
func (d *Driver) Disconnect(id string) {
	if g := d.running(id); g != nil {
		g.disconnect()
	}
}

// Starts is the number of times that the sandbox was really started.
func (d *Driver) Starts(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.boxes[id]; b != nil {
		return b.starts
	}
	return 0
}

// SetInfo sets what Info gives.
func (d *Driver) SetInfo(i driver.Info) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.info = i
}

func sleep(ctx context.Context, t time.Duration) error {
	if t <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
