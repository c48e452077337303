package server

import (
	"context"
	"net/http"
	"strconv"

	"github.com/seaofsimulation/sos"
)

// onSession runs an operation on the session that the path names.
func (s *Server) onSession(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, ref, name string) error) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	name, err := pathValue(r, "name")
	if err != nil {
		return err
	}
	if err := do(r.Context(), ref, name); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

func (s *Server) listProcesses(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	all, err := s.svc.ListProcesses(r.Context(), ref, s.processFilter(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, orEmpty(all))
}

func (s *Server) getProcess(w http.ResponseWriter, r *http.Request) error {
	ref, id, err := processPath(r)
	if err != nil {
		return err
	}
	p, err := s.svc.GetProcess(r.Context(), ref, id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, p)
}

func processPath(r *http.Request) (ref, id string, err error) {
	if ref, err = pathValue(r, "ref"); err != nil {
		return "", "", err
	}
	id, err = pathValue(r, "id")
	return ref, id, err
}

// offsetHeader tells at which byte of the stream an answer begins.
const offsetHeader = "X-Sos-Offset"

// readOutput sends the bytes of one stream as they are. With follow it goes on
// until the stream ends; an answer that cannot be completed is cut off, so that
// its reader never takes it for whole.
func (s *Server) readOutput(w http.ResponseWriter, r *http.Request) error {
	ref, id, err := processPath(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	stream := sos.Stream(q.Get("stream"))
	switch stream {
	case "":
		stream = sos.StreamOut
	case sos.StreamOut, sos.StreamStdout, sos.StreamStderr:
	default:
		return &sos.Error{Code: sos.CodeInvalid, Message: "there is no stream " + quoteShort(string(stream)), Fix: "use out, stdout or stderr"}
	}
	var offset int64
	if v := q.Get("offset"); v != "" {
		if offset, err = strconv.ParseInt(v, 10, 64); err != nil || offset < 0 {
			return &sos.Error{Code: sos.CodeInvalid, Message: "offset " + quoteShort(v) + " is not a number of bytes", Fix: "use 0 or more"}
		}
	}
	var follow bool
	if v := q.Get("follow"); v != "" {
		if follow, err = strconv.ParseBool(v); err != nil {
			return &sos.Error{Code: sos.CodeInvalid, Message: "follow " + quoteShort(v) + " is neither true nor false"}
		}
	}
	out := &outputWriter{w: w, rc: http.NewResponseController(w), offset: offset, follow: follow}
	if follow {
		// What there is to refuse is refused before the headers go out: a quiet
		// process would otherwise leave the client without any answer.
		if _, err := s.svc.GetProcess(r.Context(), ref, id); err != nil {
			return err
		}
		out.begin()
	}
	if _, err := s.svc.ReadOutput(r.Context(), ref, id, stream, offset, follow, out); err != nil {
		return err
	}
	out.begin()
	return nil
}

// outputWriter sends the headers before the first byte, and when somebody
// follows each write at once.
type outputWriter struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	offset int64
	follow bool
	begun  bool
}

func (o *outputWriter) begin() {
	if o.begun {
		return
	}
	o.begun = true
	h := o.w.Header()
	h.Set("Content-Type", bytesType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff") // it is what the sandbox wrote: no browser may take it for a page
	h.Set(offsetHeader, strconv.FormatInt(o.offset, 10))
	o.w.WriteHeader(http.StatusOK)
	if o.follow {
		_ = o.rc.Flush()
	}
}

func (o *outputWriter) Write(b []byte) (int, error) {
	o.begin()
	n, err := o.w.Write(b)
	if err == nil && o.follow {
		err = o.rc.Flush()
	}
	return n, err
}
