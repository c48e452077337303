package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/seaofsimulation/sos"
)

// answer is how a code looks on the wire: its status and the words of the first
// system, which its clients read as plain text.
type answer struct {
	status int
	text   string // empty: the error's own message
	prefix bool   // text stands before the error's message instead of in its place
}

// answers is the one table from codes to the wire.
var answers = map[sos.Code]answer{
	sos.CodeInvalid:        {status: http.StatusBadRequest},
	sos.CodeNotFound:       {status: http.StatusNotFound},
	sos.CodeNotStarted:     {status: http.StatusBadRequest, text: "Sandbox not started"},
	sos.CodeAlreadyStarted: {status: http.StatusBadRequest, text: "Sandbox already started"},
	sos.CodeSessionExited:  {status: http.StatusBadRequest, text: "Sandbox session already exited"},
	sos.CodeConflict:       {status: http.StatusConflict},
	sos.CodeSetupFailed:    {status: http.StatusBadRequest, text: "Setup commands failed: ", prefix: true},
	sos.CodeImageFailed:    {status: http.StatusBadRequest, text: "Failed to pull image: ", prefix: true},
	sos.CodeStartFailed:    {status: http.StatusInternalServerError, text: "Failed to start container: ", prefix: true},
	sos.CodeSpawnFailed:    {status: http.StatusBadRequest, text: "Failed to create exec: ", prefix: true},
	sos.CodeSandboxStopped: {status: http.StatusConflict},
	sos.CodeSandboxLost:    {status: http.StatusInternalServerError, text: "Container read failed: ", prefix: true},
	sos.CodeTimeout:        {status: http.StatusGatewayTimeout},
	sos.CodeTooLarge:       {status: http.StatusRequestEntityTooLarge},
	sos.CodeUnavailable:    {status: http.StatusServiceUnavailable},
	sos.CodeUnsupported:    {status: http.StatusNotImplemented},
	sos.CodeCanceled:       {status: statusClientClosed},
	sos.CodeInternal:       {status: http.StatusInternalServerError},
}

// statusClientClosed is what the log shows of calls whose client went away.
const statusClientClosed = 499

// execTimeoutText is what the first system answers, with 504, to a command that
// outlives the server's own limit.
const execTimeoutText = "Timeout waiting for marker: Marker not seen before timeout (possible incomplete input)"

// failure is an error that knows its answer: those of the HTTP layer itself, and
// those of the Service where one route has its own words.
type failure struct {
	status int
	code   sos.Code // empty: CodeInvalid
	text   string   // plain text form
	detail string   // message of the JSON form; empty: text
	fix    string
	cause  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

// asFailure gives the answer to err.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	code, msg := sos.ErrorCode(err), sos.ErrorMessage(err)
	a, ok := answers[code]
	if !ok {
		a = answers[sos.CodeInternal]
	}
	f := &failure{status: a.status, code: code, text: msg, detail: msg, cause: err}
	if e, ok := errors.AsType[*sos.Error](err); ok {
		f.fix = e.Fix
	}
	switch {
	case a.text != "" && !a.prefix:
		f.text = a.text
	case a.prefix && !strings.HasPrefix(msg, a.text):
		f.text = a.text + msg
	}
	// Set-up output ends the text, so that a client finds it untouched.
	if f.fix != "" && (a.text == "" || a.prefix) && code != sos.CodeSetupFailed {
		f.text += "; " + f.fix
	}
	return f
}

// problem is the JSON form of an error (RFC 9457).
type problem struct {
	Title   string   `json:"title" doc:"The status in words"`
	Status  int      `json:"status"`
	Detail  string   `json:"detail" doc:"A sentence for people"`
	Code    sos.Code `json:"code" doc:"Stable, machine-readable class of the error"`
	Message string   `json:"message" doc:"The same sentence as detail"`
	Fix     string   `json:"fix,omitempty" doc:"What to do about it"`
}

func (f *failure) problem() problem {
	p := problem{Title: http.StatusText(f.status), Status: f.status, Detail: f.detail, Code: f.code, Fix: f.fix}
	if p.Detail == "" {
		p.Detail = f.text
	}
	if p.Code == "" {
		p.Code = sos.CodeInvalid
	}
	p.Message = p.Detail
	return p
}

// writeFailure answers with the JSON form where the client names JSON in Accept,
// else in plain text.
func writeFailure(w http.ResponseWriter, r *http.Request, f *failure) {
	if !acceptsJSON(r) {
		writeBody(w, f.status, textType, []byte(f.text))
		return
	}
	b, err := json.Marshal(f.problem())
	if err != nil {
		b = []byte(`{"status":500,"code":"internal","detail":"internal error"}`) // strings always marshal
	}
	writeBody(w, f.status, problemType, b)
}

// acceptsJSON says whether Accept names JSON; */* does not, since clients of the
// first system send it and read text.
func acceptsJSON(r *http.Request) bool {
	for _, v := range r.Header["Accept"] {
		if strings.Contains(v, "application/json") || strings.Contains(v, "application/problem+json") ||
			strings.Contains(v, ndjsonType) {
			return true
		}
	}
	return false
}

// seedNotFound gives err the words of the first system where it says that the
// sandbox does not exist: they differ between the routes.
func seedNotFound(err error, text string) error {
	if sos.ErrorCode(err) != sos.CodeNotFound {
		return err
	}
	f := asFailure(err)
	f.text = text
	return f
}

// jsonReason says in words what encoding/json has against a value.
func jsonReason(err error) string {
	if e, ok := errors.AsType[*sos.Error](err); ok {
		if e.Fix != "" {
			return e.Message + "; " + e.Fix
		}
		return e.Message
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := ""
		if e.Field != "" {
			field = " in " + e.Field
		}
		return fmt.Sprintf("%s%s, expected %s", e.Value, field, goTypeWord(e.Type.Kind().String()))
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func goTypeWord(kind string) string {
	switch {
	case kind == "string":
		return "a string"
	case kind == "bool":
		return "a boolean"
	case kind == "map" || kind == "struct":
		return "an object"
	case kind == "slice":
		return "a sequence"
	}
	return "a number" // ints and floats: no other kind is in a body
}
