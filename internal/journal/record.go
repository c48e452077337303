package journal

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/seaofsimulation/sos"
)

// A process leaves the log for files of its own when its streams together are
// longer than inlineBytes or came in more pieces than inlinePieces.
const (
	inlineBytes  = 64 << 10
	inlinePieces = 256
)

// Record is the growing output of one process. Its methods are safe for
// concurrent use.
type Record struct {
	b  *box
	id string

	mu       sync.Mutex
	streams  [len(streamCodes)]stream
	pieces   int
	apart    bool          // its streams have files
	finished bool          // no more output comes
	changed  chan struct{} // closed at the next change; nil: nobody waits
}

type stream struct {
	size  int64    // bytes kept: the beginning of the stream
	seen  int64    // bytes that came; over size: the rest was only counted
	bytes []byte   // what is kept, while it is short
	file  *os.File // else
}

// load takes up what an earlier server left. Callers hold b.mu.
func (r *Record) load(p *proc) error {
	r.pieces = len(p.extents)
	for code, s := range streamCodes {
		st := &r.streams[code]
		st.seen = p.seen[code]
		data, err := r.b.inlineBytes(p, code)
		if err != nil {
			return err
		}
		st.size, st.bytes = int64(len(data)), data
		f, err := os.OpenFile(r.b.path(r.id, s), os.O_RDWR, 0)
		if ignoreMissing(err) != nil {
			return err
		}
		if err != nil {
			continue
		}
		st.file, r.apart = f, true
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		if fi.Size() < st.size { // the copy out of the log was not finished
			if _, err := f.WriteAt(st.bytes, 0); err != nil {
				return err
			}
		}
		st.size, st.bytes = max(st.size, fi.Size()), nil
		if st.seen < st.size { // written and not told
			e := Entry{Time: r.b.j.opt.Now(), Process: r.id, Stream: s, Offset: st.seen, Length: st.size - st.seen, where: apart}
			if err := r.b.write(e, nil); err != nil {
				return err
			}
			st.seen = st.size
		}
	}
	return nil
}

// inlineBytes reads the pieces of a stream that stand in the log. Callers hold mu.
func (b *box) inlineBytes(p *proc, code int) ([]byte, error) {
	var data []byte
	for _, x := range p.extents {
		if int(x.stream) != code || x.offset != int64(len(data)) {
			continue
		}
		data = append(data, make([]byte, x.length)...)
		if _, err := b.log.ReadAt(data[x.offset:], x.pos); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// Append adds data that begins at offset of the stream. What is known already is
// passed over; a gap is an error and changes nothing. Bytes that cannot be kept
// (over a limit, disk full) are counted, and so is all that follows them.
func (r *Record) Append(s sos.Stream, offset int64, data []byte) error {
	code, ok := streamCode(s)
	if !ok {
		return sos.Errorf(sos.CodeInvalid, "no stream %q", s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st := &r.streams[code]
	if offset < 0 || offset > st.seen {
		return fmt.Errorf("journal of %s %s: gap in %s: have %d bytes, got offset %d", r.b.sandbox, r.id, s, st.seen, offset)
	}
	if r.finished || offset+int64(len(data)) <= st.seen {
		return nil
	}
	data = data[st.seen-offset:]
	if err := r.keep(s, st, data); err != nil {
		return fmt.Errorf("journal of %s %s: %w", r.b.sandbox, r.id, err)
	}
	return nil
}

// keep stores new data as far as the limits and the disk allow, and counts it.
func (r *Record) keep(s sos.Stream, st *stream, data []byte) error {
	defer r.wake()
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	n, err := 0, error(nil)
	if st.size == st.seen { // nothing is kept behind a hole
		n, err = r.store(s, st, data[:min(int64(len(data)), r.room())])
	}
	st.size, st.seen = st.size+int64(n), st.seen+int64(len(data))
	for lost := int64(len(data) - n); lost > 0; {
		part := min(lost, maxEntry)
		err = errors.Join(err, r.b.write(Entry{Time: r.b.j.opt.Now(), Process: r.id, Stream: s, Offset: st.seen - lost, Length: part, where: skipped}, nil))
		lost -= part
	}
	return err
}

// room is how many bytes the limits allow now. Callers hold b.mu.
func (r *Record) room() int64 {
	room := r.b.j.opt.MaxProcess
	for i := range r.streams {
		room -= r.streams[i].size
	}
	return max(0, min(room, r.b.j.opt.MaxSandbox-r.b.kept))
}

// store writes data to the log or to the stream's file and tells how much of it
// is kept. Callers hold b.mu.
func (r *Record) store(s sos.Stream, st *stream, data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	e := Entry{Time: r.b.j.opt.Now(), Process: r.id, Stream: s, Offset: st.seen, Length: int64(len(data))}
	total := len(data)
	for i := range r.streams {
		total += len(r.streams[i].bytes)
	}
	if !r.apart && total <= inlineBytes && r.pieces < inlinePieces {
		if err := r.b.write(e, data); err != nil {
			return 0, err
		}
		r.pieces++
		st.bytes = append(st.bytes, data...)
		return len(data), nil
	}
	if err := r.leaveLog(); err != nil {
		return 0, err
	}
	if st.file == nil {
		f, err := r.b.open(r.b.path(r.id, s))
		if err != nil {
			return 0, err
		}
		st.file = f
	}
	n, err := st.file.WriteAt(data, st.size)
	r.b.kept += int64(n)
	for told := 0; told < n; {
		e.Offset, e.Length, e.where = st.seen+int64(told), int64(min(n-told, maxEntry)), apart
		err = errors.Join(err, r.b.write(e, nil))
		told += int(e.Length)
	}
	return n, err
}

// leaveLog copies what the process has in the log to files of its own; from then
// on those hold all its bytes. A copy that is interrupted is done again by load.
func (r *Record) leaveLog() error {
	if r.apart {
		return nil
	}
	for code, s := range streamCodes {
		st := &r.streams[code]
		if len(st.bytes) == 0 {
			continue
		}
		f, err := r.b.open(r.b.path(r.id, s))
		if err != nil {
			return err
		}
		st.file = f
		if _, err := f.WriteAt(st.bytes, 0); err != nil {
			return err
		}
	}
	for code := range r.streams {
		r.streams[code].bytes = nil
	}
	r.apart = true
	return nil
}

// Offsets gives for each stream the end of what came: what the guest need not
// send again.
func (r *Record) Offsets() map[sos.Stream]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := map[sos.Stream]int64{}
	for code, s := range streamCodes {
		if n := r.streams[code].seen; n > 0 {
			m[s] = n
		}
	}
	return m
}

// Output counts the streams that have any bytes.
func (r *Record) Output() (list []sos.Output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for code, s := range streamCodes {
		if st := &r.streams[code]; st.seen > 0 {
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
	r.b.forget(r)
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
	return r.closeFiles()
}

func (r *Record) closeFiles() error {
	var errs []error
	for i := range r.streams {
		if f := r.streams[i].file; f != nil {
			errs = append(errs, f.Close())
			r.streams[i].file = nil
		}
	}
	return errors.Join(errs...)
}
