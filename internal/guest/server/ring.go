package server

import "github.com/seaofsimulation/sos/internal/guest"

// Budget of all rings: above the smallest size they share it.
const (
	minRing     = 4 << 10
	totalBudget = 16 << 20
)

// ring keeps the bytes [base, end) of a stream. Its memory is a power of two and
// grows by need.
type ring struct {
	buf       []byte
	base, end int64
}

func (r *ring) used() int { return int(r.end - r.base) }

// room is the free memory that follows end, as far as it is in one piece.
func (r *ring) room() []byte {
	if r.used() == len(r.buf) {
		return nil
	}
	at := int(r.end) & (len(r.buf) - 1)
	return r.buf[at:min(len(r.buf), at+len(r.buf)-r.used())]
}

// copyTo fills dst with the bytes from off on; they are there.
func (r *ring) copyTo(dst []byte, off int64) {
	at := int(off) & (len(r.buf) - 1)
	n := copy(dst, r.buf[at:])
	copy(dst[n:], r.buf)
}

// add appends p, for which there is place.
func (r *ring) add(p []byte) {
	for len(p) > 0 {
		n := copy(r.room(), p)
		r.end += int64(n)
		p = p[n:]
	}
}

// resize moves to memory of size bytes.
func (r *ring) resize(size int) {
	old := *r
	r.buf = make([]byte, size)
	for off := old.base; off < old.end; {
		at := int(off) & (len(old.buf) - 1)
		n := min(len(old.buf)-at, int(old.end-off))
		to := int(off) & (size - 1)
		n = copy(r.buf[to:min(size, to+n)], old.buf[at:at+n])
		off += int64(n)
	}
}

// fits is the smallest size of a ring for n bytes.
func fits(n int) int {
	size := minRing
	for size < n && size < guest.MaxWindow {
		size *= 4
	}
	return min(size, guest.MaxWindow)
}
