// Package journal keeps the output of processes. Each sandbox has one log, a
// file to which everything is appended in the order of arrival: what stream of
// what process, at what offset, when. Short output stands in the log itself, so
// that a command costs no file of its own (to make one is the dearest part of a
// short command on a busy file system). A process that writes much gets a file of
// plain bytes for each stream, and the log only tells of the pieces.
//
// Readers are cursors; a slow one only falls behind. What is over a limit is
// counted and not kept, and says so. The journal survives the death of our
// processes, not a power loss.
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

// What is kept unless Options say otherwise.
const (
	DefaultMaxProcess = 1 << 30 // bytes of one process, all streams together
	DefaultMaxSandbox = 8 << 30 // bytes of one sandbox, all processes together
)

// Options of a journal; the zero value is usable.
type Options struct {
	MaxProcess int64            // bytes kept of one process; 0: DefaultMaxProcess
	MaxSandbox int64            // bytes kept of one sandbox; 0: DefaultMaxSandbox
	Now        func() time.Time // nil: time.Now
}

// Journal is the folder of all logs.
type Journal struct {
	dir string
	opt Options

	mu    sync.Mutex
	boxes map[string]*box // guarded by mu
}

// Open opens the journal in dir and makes the folder when there is none.
func Open(dir string, opt Options) (*Journal, error) {
	if opt.MaxProcess <= 0 {
		opt.MaxProcess = DefaultMaxProcess
	}
	if opt.MaxSandbox <= 0 {
		opt.MaxSandbox = DefaultMaxSandbox
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Journal{dir: dir, opt: opt, boxes: map[string]*box{}}, nil
}

// Create gives the record of a process: the living one, or one that goes on
// where an earlier server ended.
func (j *Journal) Create(sandbox, process string) (*Record, error) {
	b, err := j.box(sandbox, process)
	if err != nil {
		return nil, err
	}
	r, err := b.record(process)
	if err != nil {
		return nil, fmt.Errorf("journal of %s %s: %w", sandbox, process, err)
	}
	return r, nil
}

// box gives the log of a sandbox, read once.
func (j *Journal) box(sandbox, process string) (*box, error) {
	for _, id := range []string{sandbox, process} {
		if err := checkID(id); err != nil {
			return nil, err
		}
	}
	j.mu.Lock()
	b := j.boxes[sandbox]
	if b == nil {
		b = &box{j: j, sandbox: sandbox, dir: filepath.Join(j.dir, sandbox), live: map[string]*Record{}}
		j.boxes[sandbox] = b
	}
	j.mu.Unlock()
	if err := b.load(); err != nil {
		return nil, fmt.Errorf("journal of %s: %w", sandbox, err)
	}
	return b, nil
}

// checkID refuses what would lead out of the journal's folder, or what no entry
// can hold.
func checkID(id string) error {
	if id == "" || len(id) > maxID || id[0] == '.' || strings.ContainsAny(id, "/\x00") {
		return sos.Errorf(sos.CodeInvalid, "%q cannot be an id", id)
	}
	return nil
}

// RemoveSandbox deletes the log and all records of a sandbox; what still comes
// for them is dropped, and their followers end. No error when there are none.
func (j *Journal) RemoveSandbox(sandbox string) error {
	if err := checkID(sandbox); err != nil {
		return err
	}
	j.mu.Lock()
	b := j.boxes[sandbox]
	delete(j.boxes, sandbox)
	j.mu.Unlock()
	if b != nil {
		b.drop()
	}
	if err := os.RemoveAll(filepath.Join(j.dir, sandbox)); err != nil {
		return fmt.Errorf("remove the journal of %s: %w", sandbox, err)
	}
	return nil
}

// Sandboxes names the sandboxes that have a log on disk.
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
	boxes := j.boxes
	j.boxes = map[string]*box{}
	j.mu.Unlock()
	var errs []error
	for _, b := range boxes {
		errs = append(errs, b.close())
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
