package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/seaofsimulation/sos/internal/guest"
)

// Limits of what a Reader joins.
const (
	// MaxRequest is the longest request: argv, environment and one text or stdin.
	MaxRequest = 2*guest.MaxText + 8<<20
	// MaxAnswer is the longest frame of a guest; a guest never sends More.
	MaxAnswer = guest.MaxFrame
)

// ErrTooLong is a frame over the limit of its reader.
var ErrTooLong = errors.New("wire: frame is over the limit")

const (
	smallBuffer = 4 << 10
	bigBuffer   = 512 << 10
)

// buffers are shared by all connections: an idle one holds only its small buffer.
var buffers = sync.Pool{New: func() any { b := make([]byte, bigBuffer); return &b }}

// Reader reads frames. It reads much at once while much comes, and holds little
// memory while nothing does. Its memory grows with what has arrived, never with
// what a length claims. Not for concurrent use.
type Reader struct {
	src    io.Reader
	limit  int
	small  []byte
	big    *[]byte
	buf    []byte // small, *big, or own memory for a longer frame
	lo, hi int
	joined []byte
}

// NewReader makes a reader of frames of src that are at most limit long: MaxAnswer
// where a guest is read, MaxRequest where a host is.
func NewReader(src io.Reader, limit int) *Reader {
	r := &Reader{src: src, limit: limit, small: make([]byte, smallBuffer)}
	r.buf = r.small
	return r
}

// Buffered is the number of bytes read and not yet given out: 0 says that the
// next Next may have to wait.
func (r *Reader) Buffered() int { return r.hi - r.lo }

// Next reads a frame. io.EOF: the stream ended between two frames. Any other
// error is final.
func (r *Reader) Next() (Frame, error) {
	r.joined = nil
	for {
		f, err := r.next()
		if err != nil {
			return Frame{}, err
		}
		if f.Type != typeMore {
			if r.joined != nil {
				if len(r.joined)+len(f.Body) > r.limit {
					return Frame{}, ErrTooLong
				}
				f.Body = append(r.joined, f.Body...)
			}
			return f, nil
		}
		if len(r.joined)+len(f.Body) > r.limit || r.limit <= guest.MaxFrame {
			return Frame{}, ErrTooLong
		}
		r.joined = append(r.joined, f.Body...)
	}
}

func (r *Reader) next() (Frame, error) {
	if err := r.fill(header); err != nil {
		return Frame{}, err
	}
	n := int(binary.BigEndian.Uint32(r.buf[r.lo:]))
	if n < 2 {
		return Frame{}, ErrShort
	}
	if n > guest.MaxFrame {
		return Frame{}, ErrTooLong
	}
	if err := r.fill(header + n); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	b := r.buf[r.lo+header : r.lo+header+n]
	r.lo += header + n
	call, size := binary.Uvarint(b[1:])
	if size <= 0 {
		return Frame{}, ErrShort
	}
	return Frame{Type: Type(b[0]), Call: call, Body: b[1+size:]}, nil
}

// fill makes the next n bytes available in buf from lo.
func (r *Reader) fill(n int) error {
	if r.lo == r.hi {
		r.lo, r.hi = 0, 0
		r.shrink()
	}
	for r.hi-r.lo < n {
		r.room(n)
		got, err := r.src.Read(r.buf[r.hi:])
		if got < 0 || got > len(r.buf)-r.hi {
			return io.ErrNoProgress
		}
		r.hi += got
		if got > 0 {
			continue
		}
		if err == nil {
			continue
		}
		if err == io.EOF && r.hi > r.lo {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// room makes place behind hi for more of a frame of n bytes. A frame that is longer
// than the big buffer gets own memory only when that is full of it.
func (r *Reader) room(n int) {
	switch {
	case r.hi < len(r.buf) && (r.lo == 0 || r.lo+n <= len(r.buf)):
	case r.big == nil:
		r.big = buffers.Get().(*[]byte)
		r.move(*r.big)
	case r.lo > 0:
		r.move(r.buf)
	default:
		r.move(make([]byte, header+guest.MaxFrame))
	}
}

func (r *Reader) move(to []byte) {
	r.hi = copy(to, r.buf[r.lo:r.hi])
	r.lo, r.buf = 0, to
}

func (r *Reader) shrink() {
	if r.big != nil {
		buffers.Put(r.big)
		r.big = nil
	}
	r.buf = r.small
}
