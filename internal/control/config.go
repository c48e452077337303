package control

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/journal"
	"github.com/seaofsimulation/sos/internal/store"
)

// Config is what a Plane is made of. Driver, Store, Journal and Images are
// required; the rest has defaults.
type Config struct {
	Driver  driver.Driver
	Store   *store.DB
	Journal *journal.Journal
	Images  Images

	Log    *slog.Logger     // default: slog.Default
	Now    func() time.Time // default: time.Now
	Random io.Reader        // default: crypto/rand

	Version, Commit, Instance string // what Info says

	MaxSandboxes int           // how many may run at once; default 10
	Timeout      time.Duration // lifetime of a running sandbox that names none; 0: none
	ExecTimeout  time.Duration // of a command that names none; 0: none
	StartTimeout time.Duration // longest wait for admission; default 1 hour
	StopGrace    time.Duration // between TERM and KILL at a stop; default 2 s
	MaxAnswer    int64         // bytes of output in an answer; default 64 MiB
	MaxProcesses int           // alive at once in a sandbox; default 256
	MaxQueue     int           // commands that wait, by session and by sandbox; default 256

	// MemAvailable gives the free part of the host's memory, 0 to 1; starts wait
	// below MinMemory. nil: not looked at.
	MemAvailable func() (float64, error)
	MinMemory    float64 // default 0.05
	// DiskFree gives the free and all bytes of the data directory's filesystem.
	// nil: not looked at.
	DiskFree func() (free, total int64, err error)

	WatchInterval     time.Duration // of limits and deadlines; default 1 s
	ReconcileInterval time.Duration // of the full comparison with the driver; default 30 s
}

// Images is the part of the image store that the control plane uses;
// *image.Store has it.
type Images interface {
	List(ctx context.Context) ([]sos.Image, error)
	Get(ctx context.Context, ref string) (sos.Image, error)
	Pull(ctx context.Context, ref string, progress func(sos.Progress)) (sos.Image, error)
	Resolve(ctx context.Context, ref string, progress func(sos.Progress)) (sos.Image, error)
	Import(ctx context.Context, r io.Reader, name string, progress func(sos.Progress)) (sos.Image, error)
	Remove(ctx context.Context, ref string) error
	LayerDirs(img sos.Image) ([]string, error)
}

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	setDefault(&c.MaxSandboxes, 10)
	setDefault(&c.StartTimeout, time.Hour)
	setDefault(&c.StopGrace, 2*time.Second)
	setDefault(&c.MaxAnswer, 64<<20)
	setDefault(&c.MaxProcesses, 256)
	setDefault(&c.MaxQueue, 256)
	setDefault(&c.MinMemory, 0.05)
	setDefault(&c.WatchInterval, time.Second)
	setDefault(&c.ReconcileInterval, 30*time.Second)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Deadlines of single steps. None is a policy: each only bounds a hang.
const (
	stepTimeout  = 30 * time.Second // one call of the driver or the store
	readyTimeout = 15 * time.Second // from the driver's Start to the guest's first answer
	callTimeout  = 15 * time.Second // one call to a guest
	readyWait    = 30 * time.Second // a request's wait for the server's recovery
	driverTries  = 5                // of a driver call that ends or removes
	killMargin   = 3 * time.Second  // what a guest may take beyond timeout and grace
	cancelGrace  = time.Second      // between TERM and KILL of a command that is ended
)
