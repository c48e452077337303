package fake

import (
	"context"
	"fmt"
	"net"
	"sort"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

// Driver is a driver.Driver in memory. The zero value is not usable: see New.
type Driver struct {
	mu    sync.Mutex
	boxes map[string]*box
	plans map[string]Plan
	info  driver.Info
}

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Freezer = (*Driver)(nil)
	_ driver.Statser = (*Driver)(nil)
)

// box is what the driver has of one id.
type box struct {
	busy   chan struct{} // holds a token while no Start, Stop or Remove works on the id
	files  *files        // nil: no writable layer
	guest  *guest        // nil: never ran
	starts int
}

// New makes a driver without sandboxes.
func New() *Driver {
	return &Driver{
		boxes: map[string]*box{},
		plans: map[string]Plan{},
		info: driver.Info{
			Name: "fake", DiskLimit: "none", Features: []string{"freeze"},
			Checks: []sos.Check{{Name: "memory", OK: true, Message: "sandboxes are only simulated"}},
		},
	}
}

// Close ends every sandbox and waits for what runs in them.
func (d *Driver) Close() {
	d.mu.Lock()
	var guests []*guest
	for _, b := range d.boxes {
		if b.guest != nil {
			guests = append(guests, b.guest)
		}
	}
	d.mu.Unlock()
	for _, g := range guests {
		g.end(driver.Exit{Known: true, Signal: 9, Stopped: true})
	}
}

// Info is what SetInfo said, or a healthy host.
func (d *Driver) Info(context.Context) driver.Info {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.info
}

// lock serialises calls for one id, and makes its box.
func (d *Driver) lock(ctx context.Context, id string) (*box, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	d.mu.Lock()
	b := d.boxes[id]
	if b == nil {
		b = &box{busy: make(chan struct{}, 1)}
		b.busy <- struct{}{}
		d.boxes[id] = b
	}
	d.mu.Unlock()
	select {
	case <-b.busy:
		return b, func() { b.busy <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// running is the guest that lives in id, or nil.
func (d *Driver) running(id string) *guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.boxes[id]; b != nil && b.guest != nil && b.guest.alive() {
		return b.guest
	}
	return nil
}

func notStarted(id string) error {
	return sos.Errorf(sos.CodeNotStarted, "sandbox %s does not run", id)
}

// Start follows the plan of the id.
func (d *Driver) Start(ctx context.Context, id string, s driver.Spec) error {
	if !sos.IsID(id, sos.SandboxIDPrefix) {
		return sos.Errorf(sos.CodeInvalid, "%q is not the id of a sandbox", id)
	}
	b, unlock, err := d.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("start %s: %w", id, err)
	}
	defer unlock()
	if d.running(id) != nil {
		return nil
	}
	p := d.planOf(id)
	if err := sleep(ctx, p.StartDelay); err != nil {
		return fmt.Errorf("start %s: %w", id, err)
	}
	if p.StartErr != nil {
		return p.StartErr
	}
	if s.Image.Digest == BrokenImage {
		return sos.Errorf(sos.CodeStartFailed, "the image %s cannot be started", BrokenImage)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.files == nil {
		b.files = newFiles()
	}
	b.starts++
	b.guest = newGuest(fmt.Sprintf("%s-%d", id, b.starts), b.files)
	b.guest.hangs(p.Hang)
	return nil
}

// Stop ends the guest as by SIGKILL.
func (d *Driver) Stop(ctx context.Context, id string) error {
	if d.unknown(id) {
		return ctx.Err()
	}
	b, unlock, err := d.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("stop %s: %w", id, err)
	}
	defer unlock()
	d.end(b)
	return nil
}

// Remove ends the guest and forgets the files.
func (d *Driver) Remove(ctx context.Context, id string) error {
	if d.unknown(id) {
		return ctx.Err()
	}
	b, unlock, err := d.lock(ctx, id)
	if err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	defer unlock()
	d.end(b)
	d.mu.Lock()
	defer d.mu.Unlock()
	b.files, b.guest = nil, nil
	return nil
}

func (d *Driver) unknown(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boxes[id] == nil
}

func (d *Driver) end(b *box) {
	d.mu.Lock()
	g := b.guest
	d.mu.Unlock()
	if g != nil {
		g.end(driver.Exit{Known: true, Signal: 9, Stopped: true})
	}
}

// List is in order of ids.
func (d *Driver) List(ctx context.Context) ([]driver.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var l []driver.Status
	for id, b := range d.boxes {
		if b.files != nil {
			l = append(l, driver.Status{ID: id, HasData: true, Running: b.guest != nil && b.guest.alive()})
		}
	}
	sort.Slice(l, func(i, j int) bool { return l[i].ID < l[j].ID })
	return l, nil
}

// Wait gives the end of the guest that runs now, or of the last one.
func (d *Driver) Wait(ctx context.Context, id string) (driver.Exit, error) {
	d.mu.Lock()
	var g *guest
	if b := d.boxes[id]; b != nil {
		g = b.guest
	}
	d.mu.Unlock()
	if g == nil {
		return driver.Exit{}, nil
	}
	select {
	case <-g.done:
		return g.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, fmt.Errorf("wait for %s: %w", id, ctx.Err())
	}
}

// Dial connects to the scripted guest.
func (d *Driver) Dial(ctx context.Context, id string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g := d.running(id)
	if g == nil {
		return nil, notStarted(id)
	}
	if err := d.planOf(id).DialErr; err != nil {
		return nil, err
	}
	host, inside := net.Pipe()
	if !g.serve(inside) {
		host.Close()
		return nil, notStarted(id)
	}
	return host, nil
}

// Freeze holds the processes of the guest.
func (d *Driver) Freeze(ctx context.Context, id string) error { return d.freeze(ctx, id, true) }

// Thaw lets them go on.
func (d *Driver) Thaw(ctx context.Context, id string) error { return d.freeze(ctx, id, false) }

func (d *Driver) freeze(ctx context.Context, id string, frozen bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g := d.running(id)
	if g == nil {
		return notStarted(id)
	}
	g.freeze(frozen)
	return nil
}

// Stats counts the processes and the bytes of the files.
func (d *Driver) Stats(ctx context.Context, id string) (driver.Stats, error) {
	if err := ctx.Err(); err != nil {
		return driver.Stats{}, err
	}
	g := d.running(id)
	if g == nil {
		return driver.Stats{}, notStarted(id)
	}
	n := g.running()
	return driver.Stats{
		CPU: time.Since(g.born), PIDs: n, Memory: int64(n) << 20, PeakMem: int64(n) << 20,
		OOMKills: g.oomKills(), DiskBytes: g.files.size(),
	}, nil
}
