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
	code, ok := streamCode(s)
	if !ok || offset < 0 {
		return offset, sos.Errorf(sos.CodeInvalid, "no stream %q or a negative offset %d", s, offset)
	}
	b, err := j.box(sandbox, process)
	if err != nil {
		return offset, err
	}
	c := cursor{b: b, process: process, code: code, offset: offset}
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

// cursor is one reader's place in a stream. It has a descriptor of its own, and
// holds no lock while it writes, so that nobody waits for it.
type cursor struct {
	b       *box
	process string
	code    int
	offset  int64
	file    *os.File
	buf     []byte
}

// watch gives a channel that is closed at the next change; done: none will come.
func (c *cursor) watch() (changed <-chan struct{}, done bool) {
	r := c.b.find(c.process)
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

// copy writes all that is there now.
func (c *cursor) copy(ctx context.Context, w io.Writer) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		data, err := c.next()
		if len(data) > 0 {
			n, err := w.Write(data)
			c.offset += int64(n)
			if err != nil {
				return err
			}
		}
		if err != nil || len(data) == 0 {
			return err
		}
	}
}

// next gives some bytes at the cursor's place, none at the end of what is there.
// A stream that leaves the log has all its bytes in the file before anything new
// is told, so the file is asked first.
func (c *cursor) next() ([]byte, error) {
	if c.file == nil {
		f, err := os.Open(c.b.path(c.process, streamCodes[c.code]))
		if ignoreMissing(err) != nil {
			return nil, err
		}
		if err == nil {
			c.file, c.buf = f, make([]byte, chunkSize)
		}
	}
	if c.file != nil {
		n, err := c.file.ReadAt(c.buf, c.offset)
		if n > 0 {
			return c.buf[:n], nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return c.b.inlineFrom(c.process, c.code, c.offset)
}

// inlineFrom gives the bytes of a stream from offset on that stand in the log.
func (b *box) inlineFrom(process string, code int, offset int64) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.procs[process]
	if p == nil || b.log == nil {
		return nil, nil
	}
	data, err := b.inlineBytes(p, code)
	if err != nil || offset >= int64(len(data)) {
		return nil, err
	}
	return data[offset:], nil
}

// Head gives the first bytes of a stream, at most limit, and how many bytes came
// in all so far.
func (j *Journal) Head(sandbox, process string, s sos.Stream, limit int) (data []byte, total int64, err error) {
	code, ok := streamCode(s)
	if !ok {
		return nil, 0, sos.Errorf(sos.CodeInvalid, "no stream %q", s)
	}
	b, err := j.box(sandbox, process)
	if err != nil {
		return nil, 0, err
	}
	c := cursor{b: b, process: process, code: code}
	defer c.close()
	b.mu.Lock()
	if p := b.procs[process]; p != nil {
		total = p.seen[code]
	}
	b.mu.Unlock()
	for len(data) < limit && int64(len(data)) < total {
		more, err := c.next()
		if err != nil {
			return nil, 0, fmt.Errorf("read the journal of %s %s: %w", sandbox, process, err)
		}
		if len(more) == 0 {
			break
		}
		data = append(data, more[:min(len(more), limit-len(data))]...)
		c.offset = int64(len(data))
	}
	return data, total, nil
}

// Head gives the first bytes of a stream, at most limit, and how many came so far.
// Short output comes from memory.
func (r *Record) Head(s sos.Stream, limit int) (data []byte, total int64, err error) {
	code, ok := streamCode(s)
	if !ok {
		return nil, 0, sos.Errorf(sos.CodeInvalid, "no stream %q", s)
	}
	r.mu.Lock()
	st := &r.streams[code]
	n := min(st.size, int64(limit))
	if n <= int64(len(st.bytes)) {
		data, total = append([]byte(nil), st.bytes[:n]...), st.seen
		r.mu.Unlock()
		return data, total, nil
	}
	r.mu.Unlock()
	return r.b.j.Head(r.b.sandbox, r.id, s, limit)
}

func (c *cursor) close() {
	if c.file != nil {
		c.file.Close()
	}
}

// Entries gives the output of a process in the order of arrival.
func (j *Journal) Entries(sandbox, process string) ([]Entry, error) {
	b, err := j.box(sandbox, process)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(b.logPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal of %s: %w", sandbox, err)
	}
	defer f.Close()
	var list []Entry
	err = scan(f, func(e Entry, _ int64) {
		if e.Process == process && e.where != note {
			list = append(list, e)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("journal of %s %s: %w", sandbox, process, err)
	}
	return list, nil
}
