package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/seaofsimulation/sos"
)

// chunkSize is how much a cursor reads at once.
const chunkSize = 256 << 10

// Read copies what is kept of a stream, from offset on, to w and gives the
// offset after the last byte copied. With follow it waits for more until the
// record is finished or ctx is done. An offset past the end waits, or copies
// nothing. A process without output reads as empty.
func (j *Journal) Read(ctx context.Context, sandbox, process string, s sos.Stream, offset int64, follow bool, w io.Writer) (int64, error) {
	k := key{sandbox, process}
	if err := k.check(); err != nil {
		return offset, err
	}
	if _, ok := streamCode(s); !ok || offset < 0 {
		return offset, sos.Errorf(sos.CodeInvalid, "no stream %q or a negative offset %d", s, offset)
	}
	c := cursor{j: j, key: k, stream: s, offset: offset}
	defer c.close()
	for {
		// In this order: what is written before the change is seen is read.
		changed, done := c.watch()
		if err := c.copy(ctx, w); err != nil {
			return c.offset, fmt.Errorf("read the journal of %s %s: %w", sandbox, process, err)
		}
		if done || !follow {
			return c.offset, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c.offset, context.Cause(ctx)
		}
	}
}

// cursor is one reader's place in a stream. It has a descriptor of its own, so
// that nobody waits for it.
type cursor struct {
	j      *Journal
	key    key
	stream sos.Stream
	offset int64
	file   *os.File
	buf    []byte
}

// watch gives a channel that is closed at the next change; done: none will come.
func (c *cursor) watch() (changed <-chan struct{}, done bool) {
	r := c.j.find(c.key)
	if r == nil {
		return nil, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return nil, true
	}
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed, false
}

func (c *cursor) copy(ctx context.Context, w io.Writer) (err error) {
	if c.file == nil {
		c.file, err = os.Open(c.j.path(c.key, string(c.stream)))
		if ignoreMissing(err) != nil {
			return err
		}
		if err != nil {
			return nil
		}
		c.buf = make([]byte, chunkSize)
	}
	for ctx.Err() == nil {
		n, err := c.file.ReadAt(c.buf, c.offset)
		if n > 0 {
			m, err := w.Write(c.buf[:n])
			c.offset += int64(m)
			if err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (c *cursor) close() {
	if c.file != nil {
		c.file.Close()
	}
}

// Head gives the first bytes of a stream, at most limit, and how many bytes came
// in all so far.
func (j *Journal) Head(sandbox, process string, s sos.Stream, limit int) (data []byte, total int64, err error) {
	r := j.find(key{sandbox, process})
	if r == nil { // read the files as a record of its own that nobody else sees
		r = &Record{j: j, key: key{sandbox, process}, streams: map[sos.Stream]*stream{}}
		if err := r.key.check(); err != nil {
			return nil, 0, err
		}
		defer r.close()
		if err := r.load(); err != nil {
			return nil, 0, fmt.Errorf("journal of %s %s: %w", sandbox, process, err)
		}
	}
	return r.Head(s, limit)
}

// Head gives the first bytes of a stream, at most limit, and how many came so
// far.
func (r *Record) Head(s sos.Stream, limit int) (data []byte, total int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.streams[s]
	if st == nil {
		return nil, 0, nil
	}
	n := min(st.size, int64(limit))
	data = make([]byte, n)
	if n <= int64(len(st.head)) {
		copy(data, st.head)
		return data, st.seen, nil
	}
	f, err := os.Open(r.j.path(r.key, string(s))) // the record's own may be closed
	if err != nil {
		return nil, 0, fmt.Errorf("journal of %s %s: %w", r.key.sandbox, r.key.process, err)
	}
	defer f.Close()
	if _, err := f.ReadAt(data, 0); err != nil {
		return nil, 0, fmt.Errorf("journal of %s %s: %w", r.key.sandbox, r.key.process, err)
	}
	return data, st.seen, nil
}

// Entries gives the index of a process: its output in the order of arrival.
func (j *Journal) Entries(sandbox, process string) ([]Entry, error) {
	k := key{sandbox, process}
	if err := k.check(); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(j.path(k, "index"))
	if ignoreMissing(err) != nil {
		return nil, fmt.Errorf("journal of %s %s: %w", sandbox, process, err)
	}
	var list []Entry
	for {
		e, ok := parseEntry(b)
		if !ok {
			return list, nil
		}
		list, b = append(list, e), b[entrySize:]
	}
}
