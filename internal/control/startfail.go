package control

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
)

// What a failed start leaves, and in which words it is told.

// takeDown ends what a failed or interrupted start left. Files of an earlier
// successful start stay.
func (p *Plane) takeDown(b *box, first bool) error {
	if first {
		return p.retry(func(ctx context.Context) error { return p.cfg.Driver.Remove(ctx, b.id) })
	}
	return p.retry(func(ctx context.Context) error { return p.cfg.Driver.Stop(ctx, b.id) })
}

// retry repeats a driver call that must succeed, for a while.
func (p *Plane) retry(call func(context.Context) error) (err error) {
	for try := range driverTries {
		ctx, cancel := p.step()
		err = call(ctx)
		cancel()
		if err == nil || try == driverTries-1 || !sleep(p.base, 50*time.Millisecond<<(2*try)) {
			return err
		}
	}
	return err
}

// failedStart says what a start that ended with err leaves: the reason, and whether
// the sandbox counts as failed or is what it was before.
func failedStart(err error, calledOff bool) (reason sos.Reason, failed bool) {
	code := sos.ErrorCode(err)
	switch {
	case calledOff && code == sos.CodeUnavailable:
		return sos.ReasonShutdown, false
	case calledOff:
		return sos.ReasonUser, false
	case code == sos.CodeImageFailed: // nothing of it existed yet
		return sos.ReasonImageFailed, false
	case code == sos.CodeSetupFailed:
		return sos.ReasonSetupFailed, true
	case code == sos.CodeSandboxLost:
		return sos.ReasonLost, true
	}
	return sos.ReasonStartFailed, true
}

// recordFailedStart writes what became of the sandbox.
func (p *Plane) recordFailedStart(b *box, first, failed bool, reason sos.Reason, cause error) {
	err := p.edit(b, false, func(s *sos.Sandbox) {
		s.Desired, s.Status = sos.DesiredStopped, before(!first)
		if first {
			s.Desired = sos.DesiredCreated
		}
		if failed {
			s.Status = sos.StatusFailed
		}
		s.Reason, s.Message = reason, sos.ErrorMessage(cause)
	})
	if err != nil {
		p.cfg.Log.Error("cannot record a failed start", "sandbox", b.id, "err", err)
	}
	p.cfg.Log.Warn("a start failed", "sandbox", b.id, "err", cause)
}

// imageError says in the words of the first system what is wrong with an image.
func imageError(err error) error {
	const words = "Failed to pull image"
	e, ok := errors.AsType[*sos.Error](err)
	if !ok {
		return &sos.Error{Code: sos.CodeImageFailed, Message: words, Cause: err}
	}
	c := *e
	switch c.Code {
	case sos.CodeInvalid, sos.CodeNotFound, sos.CodeInternal:
		c.Code = sos.CodeImageFailed
	}
	if c.Code == sos.CodeImageFailed && !strings.HasPrefix(c.Message, words) {
		c.Message = words + ": " + c.Message
	}
	return &c
}

// driverError says in the words of the first system that a start failed.
func driverError(err error) error {
	const words = "Failed to start container"
	e, ok := errors.AsType[*sos.Error](err)
	if !ok {
		return &sos.Error{Code: sos.CodeStartFailed, Message: words, Cause: err}
	}
	if e.Code != sos.CodeStartFailed || strings.HasPrefix(e.Message, words) {
		return e
	}
	c := *e
	c.Message = words + ": " + c.Message
	return &c
}
