package sysprog

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// page is memory that parent and child share: where the child is, and why it
// failed. The kernel puts the descriptor or the id of the child there before the
// child runs, so that a watchdog can reach it while the parent's thread waits.
type page struct {
	at    uint32 // number of the step that runs, from 1
	errno uint32 // of the step that failed
	child int32  // pidfd or tid, -1: not yet
}

func newPage() (*page, error) {
	b, err := unix.MmapPtr(-1, 0, nil, unsafe.Sizeof(page{}), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map the page shared with a child: %w", err)
	}
	pg := (*page)(b)
	pg.child = -1
	return pg, nil
}

func (pg *page) free() {
	_ = unix.MunmapPtr(unsafe.Pointer(pg), unsafe.Sizeof(page{})) // cannot fail for a mapping of ours
}

func (pg *page) loadChild() int { return int(atomic.LoadInt32(&pg.child)) }
