package server

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/seaofsimulation/sos"
)

// progressLine is a line of the answer to a pull or an import that reports its
// progress: the last one is the image or the error.
type progressLine struct {
	Progress *sos.Progress `json:"progress,omitempty"`
	Image    *sos.Image    `json:"image,omitempty"`
	Error    *problem      `json:"error,omitempty"`
}

// withProgress runs work and answers with its image; where the client accepts
// NDJSON with a line for each step, as it goes.
func (s *Server) withProgress(w http.ResponseWriter, r *http.Request,
	work func(context.Context, func(sos.Progress)) (sos.Image, error)) error {
	if !strings.Contains(r.Header.Get("Accept"), ndjsonType) {
		img, err := work(r.Context(), func(sos.Progress) {})
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, img)
	}
	// An upload goes on while the answer is being written.
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // not supported without a connection: tests
	lines := make(chan sos.Progress, 16)
	type result struct {
		img sos.Image
		err error
	}
	done := make(chan result, 1)
	go func() {
		var res result
		defer func() {
			// Outside the handler's goroutine nobody else catches a panic.
			if v := recover(); v != nil {
				s.log.Error("image work panicked", "err", fmt.Sprint(v), "stack", string(debug.Stack()))
				res.err = sos.Errorf(sos.CodeInternal, "internal error")
			}
			close(lines)
			done <- res
		}()
		res.img, res.err = work(r.Context(), func(p sos.Progress) {
			select {
			case lines <- p:
			default: // a slow reader misses steps, and holds nothing up
			}
		})
	}()
	out := &lineWriter{w: w, rc: rc}
	for p := range lines {
		out.line(progressLine{Progress: &p})
	}
	res := <-done
	switch {
	case res.err != nil && !out.begun:
		return res.err
	case res.err != nil:
		f := asFailure(res.err)
		if f.status == http.StatusInternalServerError {
			s.log.Error("request failed", "op", r.Method+" "+r.URL.Path, "status", f.status, "err", res.err)
		}
		p := f.problem()
		out.line(progressLine{Error: &p})
	default:
		out.line(progressLine{Image: &res.img})
	}
	return nil
}

// lineWriter sends JSON lines, each at once. A client that is gone is noticed by
// the work, whose context ends.
type lineWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
}

func (l *lineWriter) line(v progressLine) {
	b, err := marshal(v)
	if err != nil {
		return // strings and numbers always marshal
	}
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", ndjsonType)
		l.w.WriteHeader(http.StatusOK)
	}
	if _, err := l.w.Write(append(b, '\n')); err == nil {
		_ = l.rc.Flush()
	}
}
