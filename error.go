package sos

import (
	"errors"
	"fmt"
)

// Code is the machine-readable class of an Error. It survives the wire in both
// directions: the server has one table from codes to HTTP statuses and the
// client reads the code back.
type Code string

const (
	CodeInvalid        Code = "invalid"         // the request is wrong: what, what is allowed, how to fix it
	CodeNotFound       Code = "not_found"       // no such sandbox, process, session or image
	CodeNotStarted     Code = "not_started"     // the operation needs a started sandbox
	CodeAlreadyStarted Code = "already_started" // start of a sandbox that is not startable
	CodeSessionExited  Code = "session_exited"  // the session's shell has ended
	CodeConflict       Code = "conflict"        // the object's state or another request stands against it
	CodeSetupFailed    Code = "setup_failed"    // a set-up command ended with a status other than 0
	CodeImageFailed    Code = "image_failed"    // the image cannot be found, pulled, read or used
	CodeStartFailed    Code = "start_failed"    // the sandbox could not be started
	CodeSpawnFailed    Code = "spawn_failed"    // the command could not be started (cwd, program, user)
	CodeSandboxStopped Code = "sandbox_stopped" // the sandbox was stopped or removed during the call
	CodeSandboxLost    Code = "sandbox_lost"    // the sandbox ended without anybody asking for it
	CodeTimeout        Code = "timeout"         // a command or a wait ran out of time
	CodeTooLarge       Code = "too_large"       // a body, argument or output over a limit
	CodeUnavailable    Code = "unavailable"     // this host or this state cannot do it now
	CodeUnsupported    Code = "unsupported"     // this driver, image or build cannot do it
	CodeCanceled       Code = "canceled"        // the caller went away
	CodeInternal       Code = "internal"        // anything else; the log has the chain
)

// Error is the one error type that front ends look at.
type Error struct {
	Code    Code
	Message string // a sentence for people; never holds secrets or host internals
	Fix     string // what to do about it, or empty
	Cause   error  // for the log; not part of Message

	wrapped error // a cause whose text Message holds already
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Cause)
	}
	return e.Message
}

func (e *Error) Unwrap() error {
	if e.Cause != nil {
		return e.Cause
	}
	return e.wrapped
}

// Errorf makes an Error whose Message is the formatted text; %w works as in
// fmt.Errorf. Wrap only causes whose text people may read; set Cause for others.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), wrapped: errors.Unwrap(err)}
}

// ErrorCode is the code of err: "" for nil, CodeInternal for a foreign error.
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// ErrorMessage is what a person may read of err: the message of an Error, else
// a general sentence that gives nothing of the host away.
func ErrorMessage(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	if err == nil {
		return ""
	}
	return "internal error"
}
