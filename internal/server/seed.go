package server

import (
	"net/http"
	"strings"

	"github.com/seaofsimulation/sos"
)

// joinSetup gives set-up commands as the first system shows them.
func joinSetup(commands []string) string { return strings.Join(commands, " && ") }

func (s *Server) createSandbox(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readJSON(w, r)
	if err != nil {
		return err
	}
	spec, unknown, err := decodeCreate(body)
	if err != nil {
		return err
	}
	sb, err := s.svc.CreateSandbox(r.Context(), spec)
	if err != nil {
		return err
	}
	if wantsRepresentation(r) {
		return writeJSON(w, http.StatusOK, sandboxReply{sb, warnings(unknown)})
	}
	b := appendString(append(make([]byte, 0, 64), `{"id":`...), sb.ID)
	b = appendFlag(b, "reconnected", sb.Reconnected)
	if warn := warnings(unknown); len(warn) > 0 {
		b = appendStrings(appendKey(b, "warnings"), warn)
	}
	writeBody(w, http.StatusOK, jsonType, append(b, '}'))
	return nil
}

// sandboxReply is a whole sandbox with what its request said in vain.
type sandboxReply struct {
	sos.Sandbox
	Warnings []string `json:"warnings,omitempty"`
}

// listSandboxes answers in the first system's rows, with ?view=full in whole
// sandboxes.
func (s *Server) listSandboxes(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f := sos.SandboxFilter{}
	for _, v := range list(q["status"]) {
		f.Status = append(f.Status, sos.Status(v))
	}
	for _, v := range q["label"] {
		k, val, ok := strings.Cut(v, "=")
		if !ok || k == "" {
			return &sos.Error{Code: sos.CodeInvalid, Message: "label " + quoteShort(v) + " is not of the form key=value",
				Fix: "for example ?label=team=red"}
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[k] = val
	}
	view := q.Get("view")
	if view != "" && view != "full" {
		return &sos.Error{Code: sos.CodeInvalid, Message: "there is no view " + quoteShort(view), Fix: "use view=full or leave it out"}
	}
	all, err := s.svc.ListSandboxes(r.Context(), f)
	if err != nil {
		return err
	}
	if view == "full" {
		return writeJSON(w, http.StatusOK, orEmpty(all))
	}
	b := append(make([]byte, 0, 64+160*len(all)), '[')
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRow(b, &all[i])
	}
	writeBody(w, http.StatusOK, jsonType, append(b, ']'))
	return nil
}

// startSandbox needs no body and ignores one. It is read all the same, because
// only then is the leaving of a client noticed.
func (s *Server) startSandbox(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	if _, err := s.readBody(w, r); err != nil {
		return err
	}
	sb, err := s.svc.StartSandbox(r.Context(), ref)
	if err != nil {
		return seedNotFound(err, "Sandbox not found")
	}
	if wantsRepresentation(r) {
		return writeJSON(w, http.StatusOK, sb)
	}
	writeEmpty(w, http.StatusOK)
	return nil
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	body, err := s.readJSON(w, r)
	if err != nil {
		return err
	}
	req, unknown, err := decodeExec(body)
	if err != nil {
		return err
	}
	res, err := s.svc.Exec(r.Context(), ref, req)
	if err != nil {
		if req.Session != "" {
			return err // it may be the session that is not there
		}
		return seedNotFound(err, "Sandbox not found")
	}
	full := wantsRepresentation(r)
	if res.Process != "" {
		w.Header()[processHeader] = []string{res.Process}
	}
	if res.TimedOut && res.DefaultTimeout && !full {
		return &failure{status: http.StatusGatewayTimeout, code: sos.CodeTimeout, text: execTimeoutText,
			detail: "the command ran longer than the server's limit and was ended; its output is recorded as process " + res.Process,
			fix:    "send a timeout of your own: the answer is then 200 with timed_out and the output so far"}
	}
	b := make([]byte, 0, len(res.Output)+len(res.Output)/16+128)
	writeBody(w, http.StatusOK, jsonType, appendExecResult(b, &res, full, warnings(unknown)))
	return nil
}

// processHeader names the recorded process of an answered exec.
const processHeader = "X-Sos-Process"

// stopSandbox accepts a missing body, which the first system refuses.
func (s *Server) stopSandbox(w http.ResponseWriter, r *http.Request) error {
	ref, err := pathValue(r, "ref")
	if err != nil {
		return err
	}
	var req sos.StopRequest
	var unknown []string
	if r.ContentLength != 0 {
		body, err := s.readJSON(w, r)
		if err != nil {
			return err
		}
		if len(body) > 0 {
			req, unknown, err = decodeStop(body)
		}
		if err != nil {
			return err
		}
	}
	sb, err := s.svc.StopSandbox(r.Context(), ref, req)
	switch {
	case err != nil:
		return seedNotFound(err, "Sandbox "+ref+" not found")
	case wantsRepresentation(r):
		return writeJSON(w, http.StatusOK, sandboxReply{sb, warnings(unknown)})
	case len(unknown) > 0:
		return writeJSON(w, http.StatusOK, warningsReply{warnings(unknown)})
	}
	writeEmpty(w, http.StatusOK)
	return nil
}

// warningsReply is the answer of stop where there is something to say.
type warningsReply struct {
	Warnings []string `json:"warnings"`
}
