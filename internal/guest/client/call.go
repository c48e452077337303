package client

import (
	"context"
	"errors"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// call is a request in flight. It is sent again, with the same id, on each new
// connection until it was answered.
type call struct {
	id    uint64
	msg   wire.Message
	proc  string // of the process that it starts
	done  chan struct{}
	value int64
	err   error

	then  func(error) // called with the answer, where nobody waits for done; may be nil
	timer *time.Timer // takes the call out when no answer came; with then only
}

// finish is called once: by whoever took the call out of the table.
func (k *call) finish(value int64, err error) {
	k.value, k.err = value, err
	close(k.done)
	if k.then != nil {
		k.timer.Stop()
		k.then(err)
	}
}

// begin makes a call and returns once it is on its way. Then is called once, with
// what came of it, from a goroutine that must not be held up.
func (c *Client) begin(what string, msg wire.Message, proc string, then func(error)) error {
	_, err := c.register(msg, proc, func(k *call) {
		k.then = then
		k.timer = time.AfterFunc(callTimeout, func() {
			if c.take(k.id) != nil {
				k.finish(0, noAnswer(what, context.DeadlineExceeded))
			}
		})
	})
	return err
}

// do makes a call and waits for its answer.
func (c *Client) do(ctx context.Context, what string, msg wire.Message, proc string) (int64, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	k, err := c.register(msg, proc, nil)
	if err != nil {
		return 0, err
	}
	select {
	case <-k.done:
		return k.value, k.err
	case <-ctx.Done():
	}
	if c.take(k.id) == nil { // answered at this moment
		<-k.done
		return k.value, k.err
	}
	return 0, ended(ctx, what)
}

func (c *Client) register(msg wire.Message, proc string, prepare func(*call)) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.lastCall++
	k := &call{id: c.lastCall, msg: msg, proc: proc, done: make(chan struct{})}
	if prepare != nil {
		prepare(k)
	}
	if c.link != nil && !c.link.send(k.id, msg) {
		if k.timer != nil {
			k.timer.Stop()
		}
		return nil, &sos.Error{Code: sos.CodeUnavailable, Message: "the sandbox takes no more requests now"}
	}
	c.calls[k.id] = k
	if proc != "" {
		c.know(proc).call = k.id
	}
	return k, nil
}

// take removes a call from the table: nil when it is not there (any more).
func (c *Client) take(id uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[id]
	delete(c.calls, id)
	return k
}

// ended is the error of a call whose context ended first.
func ended(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &sos.Error{Code: sos.CodeCanceled, Message: "canceled while waiting for the sandbox to " + what, Cause: ctx.Err()}
	}
	return noAnswer(what, ctx.Err())
}

func noAnswer(what string, cause error) error {
	return &sos.Error{Code: sos.CodeUnavailable, Message: "the sandbox did not answer in time when asked to " + what, Cause: cause}
}
