package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seaofsimulation/sos"
)

const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
	ndjsonType  = "application/x-ndjson"
	textType    = "text/plain; charset=utf-8"
	bytesType   = "application/octet-stream"
)

// bodyTimeout is how long a client may take to send a JSON body.
const bodyTimeout = 30 * time.Second

// writeBody sends a whole answer with its length, never chunked.
func writeBody(w http.ResponseWriter, status int, ctype string, b []byte) {
	h := w.Header()
	h["Content-Type"] = []string{ctype}
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone: there is nobody left to tell
}

func writeEmpty(w http.ResponseWriter, status int) {
	if status != http.StatusNoContent {
		w.Header()["Content-Length"] = []string{"0"}
	}
	w.WriteHeader(status)
}

// writeJSON sends v as compact JSON without escaping < and without a final
// newline.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	writeBody(w, status, jsonType, b)
	return nil
}

func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, sos.Errorf(sos.CodeInternal, "encode the answer: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// readJSON reads a body that must be JSON.
func (s *Server) readJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if !isJSON(r.Header["Content-Type"]) {
		return nil, &failure{status: http.StatusUnsupportedMediaType, text: "Expected request with `Content-Type: application/json`"}
	}
	return s.readBody(w, r)
}

// readBody reads a body of at most MaxBody bytes.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == http.NoBody || r.ContentLength == 0 {
		return nil, nil
	}
	limit := s.cfg.MaxBody
	if r.ContentLength > limit {
		discard(w, r)
		return nil, errBodyTooLarge
	}
	rc := http.NewResponseController(w)
	// The deadline is for the body only: left in place it would cancel the call.
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // not supported without a connection: tests
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	var body []byte
	var err error
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(io.LimitReader(r.Body, limit+1))
	}
	if err != nil {
		return nil, &failure{status: http.StatusBadRequest, text: "Failed to buffer the request body: " + bodyReason(err), cause: err}
	}
	if int64(len(body)) > limit {
		return nil, errBodyTooLarge
	}
	return body, nil
}

func bodyReason(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "it did not arrive in time"
	}
	return "it ended too early"
}

// discard takes a moment to read a body that is refused: a client that is still
// sending would see a broken connection instead of the answer.
func discard(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		return // the client waits for leave to send
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.CopyN(io.Discard, r.Body, 16<<20)
	_ = rc.SetReadDeadline(time.Time{})
}

// isJSON says whether a content type is application/json or application/*+json.
func isJSON(header []string) bool {
	if len(header) == 0 {
		return false
	}
	if header[0] == jsonType {
		return true
	}
	t, _, err := mime.ParseMediaType(header[0])
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return false
	}
	sub, ok := strings.CutPrefix(t, "application/")
	return ok && (sub == "json" || strings.HasSuffix(sub, "+json"))
}

// decodeStrict reads the body of one of our own routes into v: unknown fields and
// text after the value are refused.
func (s *Server) decodeStrict(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := s.readJSON(w, r)
	if err != nil {
		return err
	}
	// The scanner's syntax messages say where; encoding/json then knows it is JSON.
	sc := &scanner{buf: body}
	if err := sc.skip(0); err != nil {
		return err
	}
	if sc.space(); !sc.eof() {
		return sc.syntax(sc.pos+1, "trailing characters")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return sc.data("", jsonReason(err))
	}
	return nil
}

// pathValue is a segment of the path, which must be UTF-8.
func pathValue(r *http.Request, name string) (string, error) {
	v := r.PathValue(name)
	if v == emptyRef && strings.HasPrefix(r.RequestURI, "/sandboxes//") {
		return "", nil
	}
	if !utf8.ValidString(v) {
		return "", &failure{status: http.StatusBadRequest, text: "Invalid URL: Invalid UTF-8 in `id`"}
	}
	return v, nil
}

// wantsRepresentation says whether the client asks for the whole object where
// the first system answers with less (RFC 7240).
func wantsRepresentation(r *http.Request) bool {
	for _, v := range r.Header["Prefer"] {
		if strings.Contains(v, "return=representation") {
			return true
		}
	}
	return false
}
