package server

import (
	"encoding/hex"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/guest"
)

// Guest is the state of process 1 of a sandbox.
type Guest struct {
	cfg      Config
	instance string
	reap     *reaper
	null     int // /dev/null as it was at the start

	mu       sync.Mutex // guards all below, every process, stream, session and connection
	procs    map[string]*process
	released guest.Recent // ids that were let go: a late repetition must not run them again
	sessions map[string]*session
	conn     *conn // the newest that said hello
	calls    calls
	stopping bool
	memory   int    // bytes of rings above the smallest size
	scratch  []byte // first reads, before a stream has a ring
	burst    bool   // there was such memory since it was last given back
	sweeping bool
}

// Serve is the whole life of the guest. It returns only when it could not begin.
// It must be called from the main goroutine: the reaper stays on its thread.
func Serve(cfg Config) error {
	runtime.LockOSThread()
	if err := secure(cfg); err != nil {
		return err
	}
	g, err := newGuest(cfg)
	if err != nil {
		return err
	}
	listener, err := listen(cfg.Listen)
	if err != nil {
		return err
	}
	go g.accept(listener)
	g.reap.loop()
	return nil
}

func newGuest(cfg Config) (*Guest, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var random [16]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil {
		return nil, err
	}
	return &Guest{
		cfg:      cfg,
		instance: hex.EncodeToString(random[:]),
		reap:     newReaper(),
		null:     null,
		procs:    map[string]*process{},
		sessions: map[string]*session{},
		scratch:  make([]byte, 64<<10),
	}, nil
}

// admit enters a new process. False: it is known already, or was.
func (g *Guest) admit(p *process) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.procs[p.id] != nil || g.released.Has(p.id) {
		return false
	}
	p.resumed = g.conn != nil
	g.procs[p.id] = p
	return true
}

// release forgets a process: the host has all of it, or does not want it. What
// still runs then is ended, for nobody could see it any more; survivors of an
// ended one stay, and their output is read and dropped.
func (g *Guest) release(id string) {
	g.mu.Lock()
	p := g.procs[id]
	if p == nil {
		g.mu.Unlock()
		return
	}
	delete(g.procs, id)
	g.released.Add(id)
	p.forgotten = true
	running := p.exit == nil
	for _, s := range p.streams {
		g.shrink(s)
		s.poke()
	}
	g.mu.Unlock()
	if running {
		go g.cancel(p, killRequest{grace: defaultGrace})
	}
}
