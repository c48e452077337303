package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/seaofsimulation/sos"
)

// maxErrorBody is as much of an error's text as is read: set-up output may be in it.
const maxErrorBody = 16 << 20

// problem is what is read of an RFC 9457 answer.
type problem struct {
	Detail string   `json:"detail"`
	Code   sos.Code `json:"code"`
	Fix    string   `json:"fix"`
}

func (p problem) err() *sos.Error {
	return &sos.Error{Code: p.Code, Message: p.Detail, Fix: p.Fix}
}

// answerError makes the error of an answer: the server's own where it is in the
// JSON form, else one by the status, for proxies and other servers between.
func answerError(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what came is what there is to tell
	if ctype, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); ctype == "application/problem+json" {
		var p problem
		if json.Unmarshal(body, &p) == nil && p.Code != "" {
			return p.err()
		}
	}
	msg := strings.TrimSpace(string(body))
	if msg == "" {
		msg = strings.ToLower(http.StatusText(resp.StatusCode))
	}
	return &sos.Error{Code: statusCode(resp.StatusCode), Message: msg,
		Cause: fmt.Errorf("%s %s: status %d", resp.Request.Method, resp.Request.URL.Path, resp.StatusCode)}
}

// statusCode is the code that a status alone tells.
func statusCode(status int) sos.Code {
	switch status {
	case http.StatusNotFound:
		return sos.CodeNotFound
	case http.StatusConflict:
		return sos.CodeConflict
	case http.StatusRequestEntityTooLarge:
		return sos.CodeTooLarge
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return sos.CodeUnsupported
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return sos.CodeUnavailable
	case http.StatusGatewayTimeout:
		return sos.CodeTimeout
	}
	if status >= 500 {
		return sos.CodeInternal
	}
	return sos.CodeInvalid
}

// transportError is the error of a request without an answer.
func (c *Client) transportError(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &sos.Error{Code: sos.CodeCanceled, Message: "the caller's deadline passed before the server's answer", Cause: err}
	case ctx.Err() != nil:
		return &sos.Error{Code: sos.CodeCanceled, Message: "the call was cancelled", Cause: err}
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return &sos.Error{Code: sos.CodeUnavailable, Message: "the connection to " + c.shown + " broke before the whole answer came",
			Fix: "what was asked for may have been done: look before you ask again", Cause: err}
	}
	return &sos.Error{Code: sos.CodeUnavailable, Message: "cannot reach the server at " + c.shown,
		Fix: "is the server running? start it with: sos serve", Cause: err}
}
