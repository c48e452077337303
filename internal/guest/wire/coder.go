package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Limits of fields. What is over them is an error of the decoder.
const (
	MaxID      = 128     // bytes of an id, a name or a user
	MaxMessage = 8 << 10 // bytes of a sentence for people
	MaxList    = 1 << 15 // entries of argv or of an environment
)

// Errors of the decoder. They say nothing of the content: it may be hostile.
var (
	ErrShort = errors.New("wire: frame is shorter than its fields")
	ErrLimit = errors.New("wire: field is over its limit")
	ErrValue = errors.New("wire: field has a value that does not exist")
	ErrType  = errors.New("wire: unknown type of frame")
)

// coder writes fields to b or reads them from it, so that a message lists its
// fields once. After the first error it reads zeros.
type coder struct {
	b   []byte
	dec bool
	err error
}

func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b = nil
}

func (c *coder) uint(v *uint64) {
	if !c.dec {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	n, size := binary.Uvarint(c.b)
	if size <= 0 {
		*v = 0
		c.fail(ErrShort)
		return
	}
	*v, c.b = n, c.b[size:]
}

// int63 is for numbers that are never negative: offsets, lengths of time.
func (c *coder) int63(v *int64) {
	u := uint64(*v)
	c.uint(&u)
	if u > math.MaxInt64 {
		u = 0
		c.fail(ErrLimit)
	}
	*v = int64(u)
}

func (c *coder) int(v *int) {
	n := int64(*v)
	c.int63(&n)
	if n > math.MaxInt32 {
		n = 0
		c.fail(ErrLimit)
	}
	*v = int(n)
}

func (c *coder) bool(v *bool) {
	var u uint64
	if *v {
		u = 1
	}
	c.uint(&u)
	if u > 1 {
		c.fail(ErrValue)
	}
	*v = u == 1
}

func (c *coder) duration(v *time.Duration) {
	n := int64(*v)
	c.int63(&n)
	*v = time.Duration(n)
}

// time keeps nanoseconds since 1970 in UTC; 0 is the zero time.
func (c *coder) time(v *time.Time) {
	var n int64
	if !c.dec && !v.IsZero() {
		n = max(v.UnixNano(), 0)
	}
	c.int63(&n)
	if c.dec {
		*v = time.Time{}
		if n != 0 {
			*v = time.Unix(0, n).UTC()
		}
	}
}

// view reads bytes without a copy: they belong to the frame's buffer.
func (c *coder) view(v *[]byte, limit int) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.dec {
		c.b = append(c.b, *v...)
		return
	}
	*v = nil
	switch {
	case n > uint64(limit):
		c.fail(ErrLimit)
	case n > uint64(len(c.b)):
		c.fail(ErrShort)
	case n > 0:
		*v, c.b = c.b[:n:n], c.b[n:]
	}
}

// bytes is view with a copy, for what outlives the frame.
func (c *coder) bytes(v *[]byte, limit int) {
	c.view(v, limit)
	if c.dec && *v != nil {
		*v = append([]byte(nil), *v...)
	}
}

func (c *coder) string(v *string, limit int) {
	if !c.dec {
		c.b = binary.AppendUvarint(c.b, uint64(len(*v)))
		c.b = append(c.b, *v...)
		return
	}
	var b []byte
	c.view(&b, limit)
	*v = string(b)
}

// count reads the number of entries of a list whose entries have at least one
// byte each, so that no claim makes it allocate more than the frame is long.
func (c *coder) count(n int, limit int) int {
	u := uint64(n)
	c.uint(&u)
	if c.dec && u > uint64(len(c.b)) {
		c.fail(ErrShort)
		return 0
	}
	if c.dec && u > uint64(limit) {
		c.fail(ErrLimit)
		return 0
	}
	return int(u)
}

func (c *coder) strings(v *[]string, limit int) {
	n := c.count(len(*v), MaxList)
	if c.dec {
		*v = nil
		if n > 0 {
			*v = make([]string, n)
		}
	}
	for i := range *v {
		c.string(&(*v)[i], limit)
	}
}
