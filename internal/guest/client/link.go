package client

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// maxQueue bounds what waits for a guest that does not read.
const maxQueue = 64 << 20

// link is one connection. Frames go out from whoever sends them, in one write with
// what waits, if the socket takes them at once; else a goroutine writes the rest.
type link struct {
	conn net.Conn
	raw  syscall.RawConn // nil: nothing can be tried without waiting
	wake chan struct{}   // buffered 1
	done chan struct{}   // closed when the writer has ended

	mu      sync.Mutex
	queue   []byte
	spare   []byte // an empty buffer to come after queue
	acks    map[ackKey]int64
	writing bool        // somebody writes: frames wait in queue
	soon    *time.Timer // pokes for what may wait a little; nil: nothing does
	closed  bool
}

type ackKey struct {
	id     string
	stream sos.Stream
}

// lazyTime is how long a frame that is not urgent waits for one that is.
const lazyTime = 3 * time.Millisecond

func newLink(conn net.Conn) *link {
	l := &link{conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{}), acks: map[ackKey]int64{}}
	if c, ok := conn.(syscall.Conn); ok {
		l.raw, _ = c.SyscallConn() // without it the goroutine writes everything
	}
	go l.write()
	return l
}

// send sends a frame or queues it. False: too much waits already. Without a
// connection (any more) the frame is dropped: calls are made again, and the rest
// is for this connection only.
func (l *link) send(call uint64, m wire.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > maxQueue {
		return false
	}
	if l.closed {
		return true
	}
	l.queue = wire.Append(l.queue, call, m)
	if l.writing {
		return true
	}
	out := l.take()
	n := l.try(out)
	l.put(out)
	if n < len(out) {
		l.queue = append(l.queue, out[n:]...)
		l.poke()
	}
	return true
}

// sendSoon queues a frame that goes with the next one, or a little later.
func (l *link) sendSoon(m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.queue) > maxQueue {
		return
	}
	l.queue = wire.Append(l.queue, 0, m)
	if l.soon == nil {
		l.soon = time.AfterFunc(lazyTime, l.poke)
	}
}

// try writes what the socket takes without waiting. Callers hold mu; an error is
// found again by the goroutine.
func (l *link) try(b []byte) (n int) {
	if l.raw == nil {
		return 0
	}
	_ = l.raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), b)
		return true
	})
	return max(n, 0)
}

// take gives all that waits, acks included. Callers hold mu.
func (l *link) take() []byte {
	for k, off := range l.acks {
		l.queue = wire.Append(l.queue, 0, &wire.Ack{ID: k.id, Stream: k.stream, Offset: off})
	}
	clear(l.acks)
	if l.soon != nil {
		l.soon.Stop()
		l.soon = nil
	}
	out := l.queue
	l.queue, l.spare = l.spare, nil
	return out
}

// put keeps a buffer for later unless it is large. Callers hold mu.
func (l *link) put(b []byte) {
	if cap(b) <= 64<<10 {
		l.spare = b[:0]
	}
}

// ack notes that the host has a stream up to offset. Only the last one counts, so
// that they never pile up.
func (l *link) ack(id string, s sos.Stream, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks[ackKey{id, s}] = offset
}

// flushAcks lets the noted ones go.
func (l *link) flushAcks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.acks) > 0 {
		l.poke()
	}
}

// release sends Release, which stands for all acks of the process.
func (l *link) release(id string) {
	l.mu.Lock()
	for k := range l.acks {
		if k.id == id {
			delete(l.acks, k)
		}
	}
	l.mu.Unlock()
	l.sendSoon(&wire.Release{ID: id})
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write writes what nobody else could, until the connection ends.
func (l *link) write() {
	defer close(l.done)
	for range l.wake {
		l.mu.Lock()
		for !l.closed && (len(l.queue) > 0 || len(l.acks) > 0) {
			out := l.take()
			l.writing = true
			l.mu.Unlock()
			_, err := l.conn.Write(out)
			l.mu.Lock()
			l.writing = false
			l.put(out)
			if err != nil {
				l.closed, l.queue = true, nil
				l.conn.Close() // the reader notices
			}
		}
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return
		}
	}
}

func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.queue = true, nil
}

// close ends the connection and waits for the writer.
func (l *link) close() {
	l.conn.Close()
	l.drop()
	l.mu.Lock()
	l.poke()
	l.mu.Unlock()
	<-l.done
}

// deadline bounds the handshake.
func (l *link) deadline(d time.Duration) {
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	l.conn.SetReadDeadline(t) // an error shows at the next read
}
