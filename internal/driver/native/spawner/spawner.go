package spawner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// Config is what a spawner is started with.
type Config struct {
	RunDir   string // <run> of the instance
	Instance string // cgroups are below "sos-<instance>"
	Build    string // said in hello
	Overlay  string // "fd", "attach", or empty: what the kernel can
	Log      *slog.Logger

	// Cgroups is where the controllers are; nil: found out.
	Cgroups *cgroup.Host
}

// Spawner clones sandboxes and knows the living and the dead ones.
type Spawner struct {
	cfg  Config
	host *host
	tree cgroup.Tree

	mu     sync.Mutex
	guests map[string]*guest
	busy   map[string]chan struct{} // ids with a call that changes them

	watchers sync.WaitGroup
	creating sync.WaitGroup
	life     context.Context // of Run: what a create is bound to, not its client
	quit     context.CancelFunc
	closing  bool // under mu
}

// New gives a spawner; it does nothing before Run.
func New(cfg Config) *Spawner {
	return &Spawner{cfg: cfg, guests: map[string]*guest{}, busy: map[string]chan struct{}{}}
}

// Run adopts what an earlier spawner left, then serves until ctx ends or a client
// says quit. It fails when another spawner serves this run directory.
func (s *Spawner) Run(ctx context.Context) error {
	ctx, s.quit = context.WithCancel(ctx)
	defer s.quit()
	s.life = ctx
	if err := os.MkdirAll(s.cfg.RunDir, 0o711); err != nil {
		return fmt.Errorf("make the run directory: %w", err)
	}
	lock, err := s.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if s.host, err = newHost(s.cfg); err != nil {
		return err
	}
	if s.tree, err = s.host.cgroups.Tree("sos-" + s.cfg.Instance); err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	if err := s.adopt(ctx); err != nil {
		return err
	}
	err = s.serve(ctx)
	s.quit()
	s.watchers.Wait()
	return err
}

// lock makes sure that there is one spawner for a run directory. The kernel frees
// the lock with the process.
func (s *Spawner) lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.cfg.RunDir, "spawner.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the run directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another spawner serves %s", s.cfg.RunDir)
		}
		return nil, fmt.Errorf("lock the run directory: %w", err)
	}
	return f, nil
}

func (s *Spawner) hello() *spawn.Hello {
	return &spawn.Hello{
		Protocol: spawn.Protocol, Build: s.cfg.Build, Pid: os.Getpid(),
		Cgroup: "v" + strconv.Itoa(s.tree.Version()), Overlay: s.host.overlay, Features: s.host.features(),
	}
}

// acquire waits for the right to change an id; the function that it gives back
// ends it.
func (s *Spawner) acquire(ctx context.Context, id string) (release func(), err error) {
	for {
		s.mu.Lock()
		held := s.busy[id]
		if held == nil {
			mine := make(chan struct{})
			s.busy[id] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				delete(s.busy, id)
				s.mu.Unlock()
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, &spawn.Error{Code: spawn.CodeClosing, Message: "the spawner is ending"}
		}
	}
}

func (s *Spawner) lookup(id string) *guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guests[id]
}

func (s *Spawner) put(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guests[g.id] = g
}
