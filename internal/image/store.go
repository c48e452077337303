package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// Config is what a Store needs. Only Dir is required.
type Config struct {
	Dir string // made if missing; root only

	// InUse says whether something (a sandbox) still needs the image; nil: nothing
	// does. Users, if set, is asked instead and gives names for the message.
	InUse func(digest string) bool
	Users func(digest string) []string

	Log      *slog.Logger
	Keychain authn.Keychain // default: the Docker configuration ($DOCKER_CONFIG, ~/.docker)
	Limits   Limits
	Arch     string           // Go's name; default: this program's
	Now      func() time.Time // default time.Now

	Transport http.RoundTripper // to registries; default: one with timeouts for each step
	Insecure  []string          // registries (host or host:port) that may be spoken to without TLS; loopback always may
	Parallel  int               // downloads at once, of all pulls; default 4
	Stall     time.Duration     // silence after which a connection is given up; default 60 s
	Retries   int               // attempts that bring nothing, in a row; default 5
	Backoff   time.Duration     // wait after the first failure, doubled each time up to 64-fold; default 1 s
	MaxWait   time.Duration     // longest Retry-After that is honoured; default 2 min
}

// Store holds images. Its methods are safe for concurrent use.
type Store struct {
	cfg   Config
	log   *slog.Logger
	base  context.Context // of all shared work
	stop  context.CancelFunc
	wg    sync.WaitGroup
	slots chan struct{} // one per download
	http  http.RoundTripper

	pulls  flights[sos.Image]
	layers flights[layerMeta]

	mu     sync.Mutex
	images map[string]record // by digest
	names  map[string]string // normalised name → digest
	leases map[string]int    // chain ids that work in progress counts on
}

// Open opens the store and clears away what a crash left half-made. Nobody else
// may have the directory open.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	s := &Store{cfg: cfg, log: cfg.Log, slots: make(chan struct{}, cfg.Parallel),
		images: map[string]record{}, names: map[string]string{}, leases: map[string]int{}}
	for _, dir := range []string{"", "layers", "blobs", "images", "ingest"} {
		path := s.path(dir)
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, fmt.Errorf("open image store: %w", err)
		}
		if err := os.Chmod(path, 0o700); err != nil {
			return nil, fmt.Errorf("open image store: %w", err)
		}
	}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	if err := s.probe(); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	gone, err := s.collect()
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	s.discard(gone)
	s.http = newTransport(cfg)
	s.base, s.stop = context.WithCancel(context.Background())
	s.pulls.wg, s.layers.wg = &s.wg, &s.wg
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Keychain == nil {
		c.Keychain = authn.DefaultKeychain
	}
	if c.Arch == "" {
		c.Arch = hostArch
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Parallel <= 0 {
		c.Parallel = 4
	}
	if c.Stall <= 0 {
		c.Stall = time.Minute
	}
	if c.Retries <= 0 {
		c.Retries = 5
	}
	if c.Backoff <= 0 {
		c.Backoff = time.Second
	}
	if c.MaxWait <= 0 {
		c.MaxWait = 2 * time.Minute
	}
	c.Limits = c.Limits.withDefaults()
	return c
}

// Close aborts all pulls and waits for them.
func (s *Store) Close() error {
	s.stop()
	s.wg.Wait()
	if t, ok := s.http.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return nil
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.cfg.Dir}, parts...)...)
}

// sweep empties ingest/: nothing in it is of use to a later process.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.path("ingest"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.remove(s.path("ingest", e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// probe tries what a layer needs of the filesystem. A full one is let through:
// images must be removable then.
func (s *Store) probe() error {
	dir, done, err := s.work()
	if isFull(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open image store: %w", err)
	}
	defer done()
	err = unix.Setxattr(dir, opaqueXattr, []byte("y"), 0)
	if err == nil {
		err = unix.Mknod(filepath.Join(dir, "w"), unix.S_IFCHR, 0)
	}
	if err == nil || isFull(err) {
		return nil
	}
	return &sos.Error{Code: sos.CodeUnavailable, Message: "the data directory cannot hold image layers: " + unwrapErrno(err).Error(),
		Fix:   "run as root, with --data-dir on ext4, xfs, btrfs or another local Linux filesystem that keeps trusted.* attributes and device nodes",
		Cause: err}
}

func unwrapErrno(err error) error {
	if no, ok := errors.AsType[unix.Errno](err); ok {
		return no
	}
	return err
}

// work makes a directory in ingest/ and gives the function that removes it.
func (s *Store) work() (dir string, done func(), err error) {
	dir, err = os.MkdirTemp(s.path("ingest"), "work-")
	if err != nil {
		return "", nil, err
	}
	return dir, func() {
		if err := s.remove(dir); err != nil {
			s.log.Warn("image store clean-up failed", "op", "ingest", "err", err)
		}
	}, nil
}

// remove deletes a path of the store, never across mounts; gone already is fine.
func (s *Store) remove(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return removeTree(int(dir.Fd()), filepath.Base(path))
}
