package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/seaofsimulation/sos"
)

// box is the log of one sandbox.
type box struct {
	j       *Journal
	sandbox string
	dir     string

	mu     sync.Mutex
	loaded bool
	log    *os.File // nil until the first entry is written or read
	end    int64    // of the whole entries in the log
	kept   int64    // bytes of output kept, all processes together
	procs  map[string]*proc
	live   map[string]*Record // those that may still grow
	gone   bool               // the sandbox was removed
	buf    []byte             // one entry being written
}

// proc is what the log says of a process.
type proc struct {
	seen    [len(streamCodes)]int64 // end of each stream
	apart   [len(streamCodes)]bool  // has a file of its own
	extents []extent                // inline pieces
	note    extent                  // the last note; of length 0: none
}

// extent is an inline piece: where its bytes are in the log.
type extent struct {
	stream         uint8
	offset, length int64
	pos            int64
}

// load reads the log of an earlier server, once. A torn last entry is cut off.
func (b *box) load() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loaded {
		return nil
	}
	b.procs, b.end, b.kept = map[string]*proc{}, 0, 0
	f, err := os.OpenFile(b.logPath(), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		b.loaded = true
		return nil
	}
	if err != nil {
		return err
	}
	err = scan(f, func(e Entry, pos int64) {
		b.learn(e, pos)
		b.end = pos + e.behind()
	})
	if err == nil {
		err = b.measureFiles()
	}
	if err == nil {
		err = f.Truncate(b.end)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	b.log, b.loaded = f, true
	return nil
}

// scan calls fn for each whole entry of a log, with the place after its header.
func scan(f *os.File, fn func(e Entry, pos int64)) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	var at, from, to int64 // buf holds the file from from to to
	for {
		if at+headerSize+maxID > to || at < from {
			n, err := f.ReadAt(buf, at)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			from, to = at, at+int64(n)
		}
		e, size := parseEntry(buf[at-from : to-from])
		if size == 0 {
			return nil
		}
		at += int64(size)
		end := at + e.behind()
		if end > fi.Size() {
			return nil
		}
		fn(e, at)
		at = end
	}
}

// learn adds an entry to what is known. Callers hold mu.
func (b *box) learn(e Entry, pos int64) {
	p := b.procs[e.Process]
	if p == nil {
		p = &proc{}
		b.procs[e.Process] = p
	}
	if e.where == note {
		p.note = extent{length: e.Length, pos: pos}
		return
	}
	code, _ := streamCode(e.Stream)
	p.seen[code] = max(p.seen[code], e.Offset+e.Length)
	switch e.where {
	case inline:
		p.extents = append(p.extents, extent{uint8(code), e.Offset, e.Length, pos})
		b.kept += e.Length
	case apart:
		p.apart[code] = true
	}
}

// measureFiles counts the files of streams. Callers hold mu.
func (b *box) measureFiles() error {
	for id, p := range b.procs {
		for code, s := range streamCodes {
			if !p.apart[code] {
				continue
			}
			fi, err := os.Stat(b.path(id, s))
			if ignoreMissing(err) != nil {
				return err
			}
			if err == nil {
				b.kept += fi.Size()
			}
		}
	}
	return nil
}

func (b *box) logPath() string { return filepath.Join(b.dir, "log") }

// path is the file of a stream; no id holds a dot at its beginning or a slash,
// and "log" has no dot.
func (b *box) path(process string, s sos.Stream) string {
	return filepath.Join(b.dir, process+"."+string(s))
}

// write appends an entry, with its bytes when they are to be inline. Callers
// hold mu.
func (b *box) write(e Entry, data []byte) error {
	if b.gone {
		return nil
	}
	if b.log == nil {
		f, err := b.open(b.logPath())
		if err != nil {
			return err
		}
		b.log = f
	}
	b.buf = append(e.append(b.buf[:0]), data...)
	n, err := b.log.WriteAt(b.buf, b.end)
	if err != nil {
		// A part may stand there, with bytes that a process chose: nothing may ever
		// be read behind the last whole entry.
		return errors.Join(fmt.Errorf("append to the log: %w", err), b.log.Truncate(b.end))
	}
	b.learn(e, b.end+int64(n-len(data)))
	b.end += int64(n)
	if cap(b.buf) > 1<<20 {
		b.buf = nil
	}
	return nil
}

// open makes or opens a file of the sandbox, and its folder when it is missing.
func (b *box) open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.Mkdir(b.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	}
	return f, err
}

// record gives the living record of a process, or makes one.
func (b *box) record(process string) (*Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.live[process]; r != nil {
		return r, nil
	}
	r := &Record{b: b, id: process}
	if b.procs[process] != nil {
		if err := r.load(b.procs[process]); err != nil {
			return nil, errors.Join(err, r.closeFiles())
		}
	}
	b.live[process] = r
	return r, nil
}

func (b *box) find(process string) *Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live[process]
}

// forget takes a finished record out of the living ones.
func (b *box) forget(r *Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[r.id] == r {
		delete(b.live, r.id)
	}
}

// drop ends all records of a removed sandbox.
func (b *box) drop() {
	b.mu.Lock()
	b.gone = true
	b.mu.Unlock()
	_ = b.close() // the files go anyway
}

func (b *box) close() error {
	b.mu.Lock()
	live := b.live
	b.live = map[string]*Record{}
	b.mu.Unlock()
	var errs []error
	for _, r := range live {
		errs = append(errs, r.finish())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.log != nil {
		errs = append(errs, b.log.Close())
		b.log, b.loaded = nil, b.gone
	}
	return errors.Join(errs...)
}
