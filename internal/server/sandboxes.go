package server

import (
	"net/http"
	"strings"

	"github.com/seaofsimulation/sos"
)

func (s *Server) getSandbox(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	sb, err := s.svc.GetSandbox(r.Context(), ref)
	if err != nil {
		return seedNotFound(err, "Sandbox "+ref+" not found")
	}
	return writeJSON(w, http.StatusOK, sb)
}

func (s *Server) removeSandbox(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	if err := s.svc.RemoveSandbox(r.Context(), ref); err != nil {
		return seedNotFound(err, "Sandbox "+ref+" not found")
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	all, err := s.svc.ListSessions(r.Context(), ref)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, orEmpty(all))
}

// sessionBody asks for a session.
type sessionBody struct {
	Name string `json:"name" doc:"A DNS label"`
}

func (s *Server) createSession(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	var body sessionBody
	if err := s.decodeStrict(w, r, &body); err != nil {
		return err
	}
	session, err := s.svc.CreateSession(r.Context(), ref, body.Name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, session)
}

func (s *Server) removeSession(w http.ResponseWriter, r *http.Request) error {
	return s.onSession(w, r, s.svc.RemoveSession)
}

func (s *Server) interruptSession(w http.ResponseWriter, r *http.Request) error {
	return s.onSession(w, r, s.svc.InterruptSession)
}

// list splits values that were given more than once or with commas.
func list(values []string) []string {
	var out []string
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// orEmpty makes an empty list [] and not null.
func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

func (s *Server) processFilter(r *http.Request) sos.ProcessFilter {
	q := r.URL.Query()
	f := sos.ProcessFilter{Session: q.Get("session")}
	for _, v := range list(q["kind"]) {
		f.Kinds = append(f.Kinds, sos.ProcessKind(v))
	}
	for _, v := range list(q["status"]) {
		f.Statuses = append(f.Statuses, sos.ProcessStatus(v))
	}
	return f
}
