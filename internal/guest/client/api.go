package client

import (
	"context"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// Start starts a process. Nil: the guest has it, and the Sink gets Started (if it
// could be started), Output, Exited and Drained. A command that cannot be started
// ends by Exited with sos.EndSpawnFailed. Errors: sos.CodeInvalid,
// sos.CodeTooLarge, sos.CodeSandboxStopped after Shutdown. After
// sos.CodeUnavailable or sos.CodeCanceled it may run all the same: its events go
// to the Sink if so.
func (c *Client) Start(ctx context.Context, cmd guest.Command) error {
	if err := checkStart(cmd); err != nil {
		return err
	}
	_, err := c.do(ctx, "start a command", &wire.Start{Command: cmd}, cmd.ID)
	return err
}

// BeginStart is Start that does not wait for the guest's answer: then gets it, nil
// or an error, exactly once unless BeginStart itself fails. It is called from a
// goroutine of the client and must return at once. The request is on its way, in
// the order of the calls, when BeginStart returns.
func (c *Client) BeginStart(cmd guest.Command, then func(error)) error {
	if err := checkStart(cmd); err != nil {
		return err
	}
	return c.begin("start a command", &wire.Start{Command: cmd}, cmd.ID, then)
}

func checkStart(cmd guest.Command) error {
	size := len(cmd.Cwd) + len(cmd.Stdin)
	for _, list := range [][]string{cmd.Argv, cmd.Env} {
		for _, s := range list {
			size += len(s) + 8
		}
	}
	return checkRequest(cmd.ID, cmd.User, size, len(cmd.Argv)+len(cmd.Env), len(cmd.Stdin))
}

// OpenSession starts a bash unless the session runs already, and returns its pid
// inside the sandbox once it has answered. sos.CodeUnsupported: no bash in the
// image.
func (c *Client) OpenSession(ctx context.Context, s guest.SessionSpec) (pid int, err error) {
	size := len(s.Cwd)
	for _, e := range s.Env {
		size += len(e) + 8
	}
	if err := checkRequest(s.Name, s.User, size, len(s.Env), 0); err != nil {
		return 0, err
	}
	v, err := c.do(ctx, "open a session", &wire.OpenSession{SessionSpec: s}, "")
	return int(min(v, 1<<31-1)), err
}

// RunSession queues a text for a session. Nil: accepted, events follow as with
// Start. sos.CodeSessionExited: the shell is gone.
func (c *Client) RunSession(ctx context.Context, cmd guest.SessionCommand) error {
	if err := checkRunSession(cmd); err != nil {
		return err
	}
	_, err := c.do(ctx, "run a session command", &wire.RunSession{SessionCommand: cmd}, cmd.ID)
	return err
}

// BeginSession is to RunSession what BeginStart is to Start.
func (c *Client) BeginSession(cmd guest.SessionCommand, then func(error)) error {
	if err := checkRunSession(cmd); err != nil {
		return err
	}
	return c.begin("run a session command", &wire.RunSession{SessionCommand: cmd}, cmd.ID, then)
}

func checkRunSession(cmd guest.SessionCommand) error {
	size := len(cmd.Text) + len(cmd.Cwd) + len(cmd.Stdin)
	for k, v := range cmd.Env {
		size += len(k) + len(v) + 9
	}
	return checkRequest(cmd.ID, cmd.Session, size, len(cmd.Env), max(len(cmd.Stdin), len(cmd.Text)))
}

// Interrupt cancels what the session runs now: it ends with sos.EndCancelled. Nil
// when it runs nothing.
func (c *Client) Interrupt(ctx context.Context, session string) error {
	_, err := c.do(ctx, "interrupt a session", &wire.Interrupt{Session: session}, "")
	return err
}

// CloseSession ends the shell and forgets the session. Nil when there is none.
func (c *Client) CloseSession(ctx context.Context, name string) error {
	_, err := c.do(ctx, "close a session", &wire.CloseSession{Session: name}, "")
	return err
}

// Signal sends a signal to the process group of a standalone command.
// sos.CodeNotFound when it has ended or is unknown.
func (c *Client) Signal(ctx context.Context, id string, sig int) error {
	_, err := c.do(ctx, "signal a command", &wire.Signal{ID: id, Number: sig}, "")
	return err
}

// Cancel ends a command and all that it started: TERM, after grace (0: one second)
// KILL. A queued session command is removed. It returns when this has begun; the
// end comes to the Sink with reason. Asked again, it sends KILL at once. Nil when
// the command has ended or is unknown.
func (c *Client) Cancel(ctx context.Context, id string, reason sos.EndReason, grace time.Duration) error {
	_, err := c.do(ctx, "cancel a command", &wire.Cancel{ID: id, Reason: reason, Grace: max(grace, 0)}, "")
	return err
}

// Shutdown ends all processes and sessions: TERM, after grace KILL. It returns when
// all ends were reported (sos.EndSandboxStopped) and the filesystem is synced.
// The guest then refuses to start anything.
func (c *Client) Shutdown(ctx context.Context, grace time.Duration) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grace+callTimeout)
		defer cancel()
	}
	_, err := c.do(ctx, "shut down", &wire.Shutdown{Grace: max(grace, 0)}, "")
	return err
}

// Ping asks the guest for a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.do(ctx, "answer a ping", &wire.Ping{}, "")
	return err
}

// checkRequest refuses what the frames cannot hold.
func checkRequest(id, name string, size, entries, text int) error {
	switch {
	case id == "" || len(id) > wire.MaxID || len(name) > wire.MaxID:
		return sos.Errorf(sos.CodeInvalid, "an id or a name must have 1 to %d bytes", wire.MaxID)
	case text > guest.MaxText:
		return sos.Errorf(sos.CodeTooLarge, "a text or an input is over %d bytes", guest.MaxText)
	case entries > wire.MaxList || size > wire.MaxRequest-(64<<10):
		return sos.Errorf(sos.CodeTooLarge, "the arguments and the environment are too long")
	}
	return nil
}
