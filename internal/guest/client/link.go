package client

import (
	"net"
	"sync"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// maxQueue bounds what waits for a guest that does not read.
const maxQueue = 64 << 20

// link is one connection: a queue of bytes and a goroutine that writes it, as much
// at once as there is.
type link struct {
	conn net.Conn
	wake chan struct{} // buffered 1
	done chan struct{} // closed when the writer has ended

	mu     sync.Mutex
	queue  []byte
	acks   map[ackKey]int64
	closed bool
}

type ackKey struct {
	id     string
	stream sos.Stream
}

func newLink(conn net.Conn) *link {
	l := &link{conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{}), acks: map[ackKey]int64{}}
	go l.write()
	return l
}

// send queues a frame. False: too much waits already. Without a connection (any
// more) the frame is dropped: calls are made again, and the rest is for this
// connection only.
func (l *link) send(call uint64, m wire.Message) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > maxQueue {
		return false
	}
	if !l.closed {
		l.queue = wire.Append(l.queue, call, m)
		l.poke()
	}
	return true
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
	l.send(0, &wire.Release{ID: id})
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) write() {
	defer close(l.done)
	var spare []byte
	for range l.wake {
		l.mu.Lock()
		for k, off := range l.acks {
			l.queue = wire.Append(l.queue, 0, &wire.Ack{ID: k.id, Stream: k.stream, Offset: off})
		}
		clear(l.acks)
		out := l.queue
		l.queue = spare[:0]
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return
		}
		if _, err := l.conn.Write(out); err != nil {
			l.conn.Close() // the reader notices
			l.drop()
			return
		}
		if spare = out; cap(spare) > 64<<10 {
			spare = nil
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
