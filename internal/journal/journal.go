// Package journal keeps the output of processes: for each process one file of
// plain bytes per stream, and an index of (time, stream, offset, length), so
// that one stream can be served as it is and all of them can be replayed in
// order. Files appear with the first byte: a silent process costs nothing.
//
// Readers are cursors over the files; a slow one only falls behind. What is over
// the limit is counted and not kept, and says so. The journal survives the death
// of our processes, not a power loss.
package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
)

// DefaultMaxBytes is kept of one process, all streams together.
const DefaultMaxBytes = 1 << 30

// Options of a journal; the zero value is usable.
type Options struct {
	MaxBytes int64            // per process; 0: DefaultMaxBytes
	Now      func() time.Time // nil: time.Now
}

// Journal is the folder of all records.
type Journal struct {
	dir string
	opt Options

	mu   sync.Mutex
	live map[key]*Record // records that may still grow; guarded by mu
}

type key struct{ sandbox, process string }

// Open opens the journal in dir and makes the folder when there is none.
func Open(dir string, opt Options) (*Journal, error) {
	if opt.MaxBytes <= 0 {
		opt.MaxBytes = DefaultMaxBytes
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Journal{dir: dir, opt: opt, live: map[key]*Record{}}, nil
}

// Create gives the record of a process: the living one, or one that goes on
// where the files of an earlier server end.
func (j *Journal) Create(sandbox, process string) (*Record, error) {
	k := key{sandbox, process}
	if err := k.check(); err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.live[k]; r != nil {
		return r, nil
	}
	r := &Record{j: j, key: k, streams: map[sos.Stream]*stream{}}
	if err := r.load(); err != nil {
		return nil, fmt.Errorf("journal of %s %s: %w", sandbox, process, errors.Join(err, r.close()))
	}
	j.live[k] = r
	return r, nil
}

// check refuses what would lead out of the journal's folder.
func (k key) check() error {
	for _, s := range []string{k.sandbox, k.process} {
		if s == "" || s[0] == '.' || strings.ContainsAny(s, "/\x00") {
			return sos.Errorf(sos.CodeInvalid, "%q cannot be an id", s)
		}
	}
	return nil
}

func (j *Journal) sandboxDir(sandbox string) string { return filepath.Join(j.dir, sandbox) }

func (j *Journal) path(k key, ext string) string {
	return filepath.Join(j.dir, k.sandbox, k.process+"."+ext)
}

func (j *Journal) find(k key) *Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.live[k]
}

// RemoveSandbox deletes all records of a sandbox; what still comes for them is
// dropped, and their followers end. No error when there are none.
func (j *Journal) RemoveSandbox(sandbox string) error {
	if err := (key{sandbox, sandbox}).check(); err != nil {
		return err
	}
	j.mu.Lock()
	var gone []*Record
	for k, r := range j.live {
		if k.sandbox == sandbox {
			gone = append(gone, r)
			delete(j.live, k)
		}
	}
	j.mu.Unlock()
	for _, r := range gone {
		r.drop()
	}
	if err := os.RemoveAll(j.sandboxDir(sandbox)); err != nil {
		return fmt.Errorf("remove the journal of %s: %w", sandbox, err)
	}
	return nil
}

// Sandboxes names the sandboxes that have records on disk.
func (j *Journal) Sandboxes() ([]string, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("list the journal: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Close closes all records; their files stay for the next server.
func (j *Journal) Close() error {
	j.mu.Lock()
	live := j.live
	j.live = map[key]*Record{}
	j.mu.Unlock()
	var errs []error
	for _, r := range live {
		errs = append(errs, r.finish())
	}
	return errors.Join(errs...)
}

// ignoreMissing makes a file that is not there no error.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
