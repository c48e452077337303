package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
)

// serve is what every request passes: its id, the Host and Origin checks, the
// route, and at the end the count, the log and the answer to a panic.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w, id: s.requestID(r), start: time.Now()}
	rec.Header()[requestIDHeader] = []string{rec.id}
	s.metrics.inFlight.Inc()
	defer s.finish(rec, r)
	if f := s.checkCaller(r); f != nil {
		s.fail(rec, r, f)
		return
	}
	if !tidyPath(r) {
		writeEmpty(rec, http.StatusNotFound)
		return
	}
	s.mux.ServeHTTP(rec, r)
}

const requestIDHeader = "X-Request-Id"

// requestID is the caller's own id when it is harmless in a log, else a new one.
func (s *Server) requestID(r *http.Request) string {
	if v := r.Header[requestIDHeader]; len(v) == 1 && plainID(v[0]) {
		return v[0]
	}
	return s.requestPrefix + strconv.FormatUint(s.requests.Add(1), 10)
}

func plainID(v string) bool {
	for _, c := range []byte(v) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return v != "" && len(v) <= 64
}

// emptyRef stands for the empty segment of /sandboxes//start, which the mux
// would redirect; no name or id begins with a hyphen.
const emptyRef = "-"

// tidyPath prepares a path for the mux, which would answer paths like a//b with a
// redirect that no client expects. False: there is no such path.
func tidyPath(r *http.Request) bool {
	if !strings.Contains(r.URL.Path, "//") && !strings.Contains(r.URL.Path, "/.") {
		return true
	}
	p := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(p, "/sandboxes//"); ok {
		p = "/sandboxes/" + emptyRef + "/" + rest
		r.URL.Path, r.URL.RawPath = p, ""
	}
	return path.Clean(p) == p
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	id     string
	start  time.Time
	status int // 0: nothing yet
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// finish ends a request: a panic becomes a 500 with its stack in the log.
func (s *Server) finish(w *recorder, r *http.Request) {
	v := recover()
	if v != nil && v != http.ErrAbortHandler { //nolint:errorlint // the sentinel itself is what handlers panic with
		s.log.Error("handler panicked", "op", r.Method+" "+r.Pattern, "request", w.id,
			"err", fmt.Sprint(v), "stack", string(debug.Stack()))
		if w.status == 0 {
			writeFailure(w, r, asFailure(sos.Errorf(sos.CodeInternal, "internal error")))
			v = nil
		} else {
			v = http.ErrAbortHandler // the answer is half sent: only a broken connection tells
		}
	}
	took := time.Since(w.start)
	s.metrics.inFlight.Dec()
	s.metrics.observe(r, w.status, took)
	if s.log.Enabled(r.Context(), slog.LevelDebug) {
		s.log.Debug("request", "op", r.Method+" "+r.URL.Path, "request", w.id, "status", w.status, "took", took)
	}
	if v != nil {
		panic(v)
	}
}

// fail answers with err, or cuts the connection when an answer has begun.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := asFailure(err)
	if f.status == statusClientClosed && s.closing.Load() {
		f = asFailure(&sos.Error{Code: sos.CodeUnavailable, Message: "the server is shutting down", Cause: err,
			Fix: "what was running goes on and is recorded; ask again when the server is back"})
	}
	rec, _ := w.(*recorder)
	id := ""
	if rec != nil {
		id = rec.id
	}
	if f.status == http.StatusInternalServerError { // the others are answers, not faults
		s.log.Error("request failed", "op", r.Method+" "+r.URL.Path, "request", id, "status", f.status, "err", err)
	}
	if rec != nil && rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	writeFailure(w, r, f)
}
