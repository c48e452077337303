package journal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/seaofsimulation/sos"
)

// headSize is how much of each stream a living record also keeps in memory, so
// that the answer to a short command needs no file.
const headSize = 32 << 10

// Record is the growing output of one process. Its methods are safe for
// concurrent use.
type Record struct {
	j   *Journal
	key key

	mu       sync.Mutex
	streams  map[sos.Stream]*stream
	index    *os.File
	indexEnd int64
	dropped  bool          // the sandbox was removed
	finished bool          // no more output comes
	changed  chan struct{} // closed at the next change; nil: nobody waits
}

type stream struct {
	file *os.File
	size int64 // bytes kept: the beginning of the stream
	seen int64 // bytes that came; over size: the rest was only counted
	head []byte
}

// load reads what an earlier server left behind.
func (r *Record) load() error {
	for _, s := range streamCodes {
		f, err := os.OpenFile(r.j.path(r.key, string(s)), os.O_RDWR, 0)
		if ignoreMissing(err) != nil {
			return err
		}
		if err != nil {
			continue
		}
		st := &stream{file: f}
		r.streams[s] = st
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		st.size, st.seen = fi.Size(), fi.Size()
		st.head = make([]byte, min(st.size, headSize))
		if _, err := f.ReadAt(st.head, 0); err != nil {
			return err
		}
	}
	return r.loadIndex()
}

// loadIndex learns from the index what was only counted, cuts a torn last
// entry off, and adds what was written to the streams and not told there.
func (r *Record) loadIndex() error {
	b, err := os.ReadFile(r.j.path(r.key, "index"))
	if ignoreMissing(err) != nil {
		return err
	}
	told := map[sos.Stream]int64{}
	for {
		e, ok := parseEntry(b[r.indexEnd:])
		if !ok {
			break
		}
		r.indexEnd += entrySize
		end := e.Offset + e.Length
		told[e.Stream] = max(told[e.Stream], end)
		if e.Skipped {
			st := r.stream(e.Stream)
			st.seen = max(st.seen, end)
		}
	}
	for s, st := range r.streams {
		if told[s] < st.size {
			if err := r.tell(Entry{Stream: s, Offset: told[s], Length: st.size - told[s]}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Record) stream(s sos.Stream) *stream {
	st := r.streams[s]
	if st == nil {
		st = &stream{}
		r.streams[s] = st
	}
	return st
}

// Append adds data that begins at offset of the stream. What is known already is
// passed over; a gap is an error and changes nothing. Bytes that cannot be kept
// (over the limit, disk full) are counted, and so is all that follows them.
func (r *Record) Append(s sos.Stream, offset int64, data []byte) error {
	if _, ok := streamCode(s); !ok {
		return sos.Errorf(sos.CodeInvalid, "no stream %q", s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped {
		return nil
	}
	st := r.stream(s)
	if offset < 0 || offset > st.seen {
		return fmt.Errorf("journal of %s %s: gap in %s: have %d bytes, got offset %d", r.key.sandbox, r.key.process, s, st.seen, offset)
	}
	if offset+int64(len(data)) <= st.seen {
		return nil
	}
	data = data[st.seen-offset:]
	keep := data
	if st.size < st.seen {
		keep = nil
	} else if room := r.j.opt.MaxBytes - r.kept(); int64(len(keep)) > room {
		keep = keep[:max(room, 0)]
	}
	n, err := r.write(s, st, keep)
	st.size += int64(n)
	st.seen += int64(len(data))
	if n > 0 {
		err = errors.Join(err, r.tell(Entry{Stream: s, Offset: st.size - int64(n), Length: int64(n)}))
	}
	if skipped := len(data) - n; skipped > 0 {
		err = errors.Join(err, r.tell(Entry{Stream: s, Offset: st.seen - int64(skipped), Length: int64(skipped), Skipped: true}))
	}
	r.wake()
	if err != nil {
		return fmt.Errorf("journal of %s %s: %w", r.key.sandbox, r.key.process, err)
	}
	return nil
}

func (r *Record) kept() (n int64) {
	for _, st := range r.streams {
		n += st.size
	}
	return n
}

func (r *Record) write(s sos.Stream, st *stream, data []byte) (n int, err error) {
	if len(data) == 0 {
		return 0, nil
	}
	if st.file == nil {
		if st.file, err = r.create(string(s)); err != nil {
			return 0, err
		}
	}
	n, err = st.file.WriteAt(data, st.size)
	if room := headSize - len(st.head); room > 0 {
		st.head = append(st.head, data[:min(n, room)]...)
	}
	return n, err
}

func (r *Record) tell(e Entry) (err error) {
	e.Time = r.j.opt.Now()
	if r.index == nil {
		if r.index, err = r.create("index"); err != nil {
			return err
		}
	}
	var b []byte
	for e.Length > 0 { // a piece for which the entry has no room is told in parts
		part := e
		part.Length = min(e.Length, maxEntry)
		b = part.append(b)
		e.Offset, e.Length = e.Offset+part.Length, e.Length-part.Length
	}
	n, err := r.index.WriteAt(b, r.indexEnd)
	r.indexEnd += int64(n - n%entrySize)
	return err
}

func (r *Record) create(ext string) (*os.File, error) {
	path := r.j.path(r.key, ext)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if ignoreMissing(err) == nil && err != nil {
		if err := os.Mkdir(r.j.sandboxDir(r.key.sandbox), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	}
	return f, err
}

// Offsets gives for each stream the end of what came: what the guest need not
// send again.
func (r *Record) Offsets() map[sos.Stream]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[sos.Stream]int64, len(r.streams))
	for s, st := range r.streams {
		m[s] = st.seen
	}
	return m
}

// Output counts the streams that have any bytes.
func (r *Record) Output() (list []sos.Output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range streamCodes {
		if st := r.streams[s]; st != nil && st.seen > 0 {
			list = append(list, sos.Output{Stream: s, Bytes: st.size, Seen: st.seen, Truncated: st.seen > st.size})
		}
	}
	return list
}

// wake lets those look again who wait for a change. Callers hold mu.
func (r *Record) wake() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Finish says that no more output comes: followers end, the files are closed.
func (r *Record) Finish() error {
	r.j.mu.Lock()
	if r.j.live[r.key] == r {
		delete(r.j.live, r.key)
	}
	r.j.mu.Unlock()
	return r.finish()
}

func (r *Record) finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return nil
	}
	r.finished = true
	r.wake()
	return r.close()
}

// drop forgets the record: its sandbox is removed.
func (r *Record) drop() {
	r.mu.Lock()
	r.dropped = true
	r.mu.Unlock()
	_ = r.finish() // the files go anyway
}

func (r *Record) close() error {
	var errs []error
	if r.index != nil {
		errs = append(errs, r.index.Close())
	}
	for _, st := range r.streams {
		if st.file != nil {
			errs = append(errs, st.file.Close())
		}
	}
	return errors.Join(errs...)
}
