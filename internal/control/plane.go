package control

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
)

// Plane is the control plane. Make it with New, run it with Run.
type Plane struct {
	cfg       Config
	admission *admission
	storer    *storer
	stats     counters
	ready     chan struct{} // closed when recovery is done

	base context.Context // of all work that outlives a request
	halt context.CancelFunc
	work group

	mu    sync.Mutex // guards the two tables only; never held over a wait
	boxes map[string]*box
	names map[string]*box

	diskFree int64           // of the host when the watch last took note
	suspects map[string]bool // ids that the driver has and we do not, at the last look; the reconciler's own

	randomMu sync.Mutex // Config.Random need not be safe for concurrent use
}

var _ sos.Service = (*Plane)(nil)

// New makes a Plane. It does nothing before Run.
func New(cfg Config) (*Plane, error) {
	if cfg.Driver == nil || cfg.Store == nil || cfg.Journal == nil || cfg.Images == nil {
		return nil, fmt.Errorf("control: driver, store, journal and images are required")
	}
	cfg.setDefaults()
	p := &Plane{cfg: cfg, ready: make(chan struct{}), boxes: map[string]*box{}, names: map[string]*box{}}
	p.base, p.halt = context.WithCancel(context.Background())
	p.admission = newAdmission(cfg.MaxSandboxes, p.memoryEnough)
	p.storer = newStorer(p)
	return p, nil
}

// Ready is closed when all that an earlier server left has been taken over.
func (p *Plane) Ready() <-chan struct{} { return p.ready }

// await lets a request wait for the recovery.
func (p *Plane) await(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	default:
	}
	t := time.NewTimer(readyWait)
	defer t.Stop()
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		return gone(ctx)
	case <-t.C:
		return &sos.Error{Code: sos.CodeUnavailable, Message: "the server is still taking over its sandboxes", Fix: "try again in a moment"}
	}
}

// gone is the error of a call whose caller went away, or whose deadline passed.
func gone(ctx context.Context) error {
	return &sos.Error{Code: sos.CodeCanceled, Message: "the caller went away", Cause: context.Cause(ctx)}
}

func (p *Plane) newID(prefix string) string {
	p.randomMu.Lock()
	defer p.randomMu.Unlock()
	return sos.NewID(prefix, p.cfg.Random)
}

// find gives the sandbox of a reference: an id, a name, or the beginning of an id
// that only one has.
func (p *Plane) find(ctx context.Context, ref string) (*box, error) {
	if err := p.await(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.boxes[ref]
	if b == nil {
		b = p.names[ref]
	}
	if b == nil && sos.IsIDPrefix(ref, sos.SandboxIDPrefix) {
		for id, o := range p.boxes {
			if !strings.HasPrefix(id, ref) {
				continue
			}
			if b != nil {
				return nil, &sos.Error{Code: sos.CodeInvalid, Message: fmt.Sprintf("%s is the beginning of more than one sandbox's id", ref), Fix: "give more of the id"}
			}
			b = o
		}
	}
	if b == nil || !b.recorded() {
		return nil, notFound(ref)
	}
	return b, nil
}

func notFound(ref string) *sos.Error {
	return sos.Errorf(sos.CodeNotFound, "Sandbox %s not found", ref)
}

func errNotStarted() *sos.Error { return sos.Errorf(sos.CodeNotStarted, "Sandbox not started") }

func errAlreadyStarted() *sos.Error {
	return sos.Errorf(sos.CodeAlreadyStarted, "Sandbox already started")
}

func errSessionExited() *sos.Error {
	return sos.Errorf(sos.CodeSessionExited, "Sandbox session already exited")
}

func errStopped() *sos.Error {
	return sos.Errorf(sos.CodeSandboxStopped, "the sandbox was stopped")
}

// all gives every sandbox, in no order.
func (p *Plane) all() []*box {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*box, 0, len(p.boxes))
	for _, b := range p.boxes {
		list = append(list, b)
	}
	return list
}

// forget takes a removed sandbox out of the tables: its name is free.
func (p *Plane) forget(b *box) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.boxes, b.id)
	if name := b.name; name != "" && p.names[name] == b {
		delete(p.names, name)
	}
}

// step gives the context of one step that must be done whatever becomes of the
// call that wanted it.
func (p *Plane) step() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.base, stepTimeout)
}

// write gives the context of one write to the store. It is not given up half-way,
// also when the server ends.
func (p *Plane) write() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(p.base), stepTimeout)
}

// group counts goroutines; unlike a WaitGroup it can be closed to new ones.
type group struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // made by wait, closed when n is 0
}

// begin says whether there is still somebody who will wait.
func (g *group) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// spawn runs f in a goroutine of the group; false: the group is closed.
func (g *group) spawn(f func()) bool {
	if !g.begin() {
		return false
	}
	go func() {
		defer g.end()
		f()
	}()
	return true
}

// close lets no more in.
func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// wait blocks until nothing of a closed group runs, or ctx is done.
func (g *group) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
