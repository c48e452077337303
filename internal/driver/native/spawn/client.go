package spawn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// ErrDisconnected is what calls get when the connection to the spawner broke. The
// call may or may not have been carried out; dial again and repeat it.
var ErrDisconnected = errors.New("the connection to the spawner broke")

// writeTimeout bounds the sending of a request to a spawner that does not read.
const writeTimeout = 5 * time.Second

// Client is a connection to a spawner, safe for concurrent use.
type Client struct {
	conn *net.UnixConn
	done chan struct{} // closed when the reader has ended

	mu    sync.Mutex
	seq   uint64
	calls map[uint64]chan answer // nil: broken
}

type answer struct {
	reply Reply
	fd    int
}

// Dial connects to the spawner's socket at path.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("connect to the spawner: %w", err)
	}
	c := &Client{conn: conn.(*net.UnixConn), done: make(chan struct{}), calls: map[uint64]chan answer{}}
	go c.read()
	return c, nil
}

// Close ends the connection. Calls that run get ErrDisconnected; sandboxes and
// calls that the spawner has begun go on.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	return err
}

// Done is closed when the connection is gone.
func (c *Client) Done() <-chan struct{} { return c.done }

// Hello asks who the spawner is.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	a, err := c.call(ctx, Request{Op: OpHello})
	if err != nil || a.reply.Hello == nil {
		return Hello{}, orIncomplete(err, a)
	}
	return *a.reply.Hello, nil
}

// Create starts a sandbox. One with this id that runs already is given as it is;
// two calls for one id at once start one. When ctx ends first, the spawner goes on:
// Kill takes back what became of it.
func (c *Client) Create(ctx context.Context, req Create) (Created, error) {
	if err := req.Validate(); err != nil {
		return Created{Pidfd: -1}, err
	}
	a, err := c.call(ctx, Request{Op: OpCreate, ID: req.ID, Create: &req})
	if err != nil || a.reply.Created == nil || a.fd < 0 {
		closeFD(a.fd)
		return Created{Pidfd: -1}, orIncomplete(err, a)
	}
	created := *a.reply.Created
	created.Pidfd = a.fd
	return created, nil
}

// List gives every guest that runs, or has ended and was not forgotten.
func (c *Client) List(ctx context.Context) ([]Guest, error) {
	a, err := c.call(ctx, Request{Op: OpList})
	return a.reply.Guests, err
}

// Wait blocks until the guest has ended, its cgroups are empty and removed, and
// says how it ended. CodeNotFound when the spawner does not know it.
func (c *Client) Wait(ctx context.Context, id string) (Exit, error) {
	a, err := c.call(ctx, Request{Op: OpWait, ID: id})
	if err != nil || a.reply.Exit == nil {
		return Exit{}, orIncomplete(err, a)
	}
	return *a.reply.Exit, nil
}

// Kill ends every process of the sandbox at once and returns when all of it is
// gone: processes, cgroups, socket. A create of this id that is under way is
// waited for first. Nil when it does not run or is not known.
func (c *Client) Kill(ctx context.Context, id string) error {
	_, err := c.End(ctx, id)
	return err
}

// End is Kill that tells how the sandbox ended; nil when it is not known.
func (c *Client) End(ctx context.Context, id string) (*Exit, error) {
	a, err := c.call(ctx, Request{Op: OpKill, ID: id})
	return a.reply.Exit, err
}

// Remove is Kill and Forget.
func (c *Client) Remove(ctx context.Context, id string) error {
	_, err := c.call(ctx, Request{Op: OpRemove, ID: id})
	return err
}

// Forget removes the run directory of a sandbox that does not run, with its exit
// and log. Nil when there is none; CodeInvalid when it runs.
func (c *Client) Forget(ctx context.Context, id string) error {
	_, err := c.call(ctx, Request{Op: OpForget, ID: id})
	return err
}

// Quit ends the spawner when the creates under way have ended; guests live on.
func (c *Client) Quit(ctx context.Context) error {
	_, err := c.call(ctx, Request{Op: OpQuit})
	return err
}

func (c *Client) call(ctx context.Context, req Request) (answer, error) {
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return answer{fd: -1}, ErrDisconnected
	}
	c.seq++
	req.Seq = c.seq
	c.calls[req.Seq] = ch
	// Under the lock: one deadline for one packet.
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	err := Send(c.conn, req, -1)
	if err != nil {
		delete(c.calls, req.Seq)
	}
	c.mu.Unlock()
	if err != nil {
		return answer{fd: -1}, fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	select {
	case a, ok := <-ch:
		if !ok {
			return answer{fd: -1}, ErrDisconnected
		}
		if a.reply.Error != nil {
			closeFD(a.fd)
			return answer{fd: -1}, a.reply.Error
		}
		return a, nil
	case <-ctx.Done():
		c.forget(req.Seq, ch)
		return answer{fd: -1}, ctx.Err()
	}
}

// forget gives up a call; an answer that came in the meantime is dropped.
func (c *Client) forget(seq uint64, ch chan answer) {
	c.mu.Lock()
	delete(c.calls, seq)
	c.mu.Unlock()
	select {
	case a, ok := <-ch:
		if ok {
			closeFD(a.fd)
		}
	default:
	}
}

func (c *Client) read() {
	defer close(c.done)
	buf := make([]byte, MaxMessage+1)
	for {
		var r Reply
		fd, err := Receive(c.conn, buf, &r)
		if err != nil {
			break
		}
		c.mu.Lock()
		ch := c.calls[r.Seq]
		delete(c.calls, r.Seq)
		if ch != nil {
			ch <- answer{r, fd}
		}
		c.mu.Unlock()
		if ch == nil {
			closeFD(fd)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.calls {
		close(ch)
	}
	c.calls = nil
	_ = c.conn.Close()
}

func orIncomplete(err error, a answer) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("the spawner's answer %d is incomplete", a.reply.Seq)
}
