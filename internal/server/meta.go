package server

import (
	"net/http"
	"runtime"

	"github.com/seaofsimulation/sos"
)

// healthReply says whether the server can run sandboxes, and if not, why.
type healthReply struct {
	Status       string      `json:"status" enum:"ok,unhealthy"`
	Version      string      `json:"version"`
	Commit       string      `json:"commit,omitempty"`
	Instance     string      `json:"instance"`
	Driver       string      `json:"driver"`
	MaxSandboxes int         `json:"max_sandboxes"`
	Running      int         `json:"running"`
	Queued       int         `json:"queued"`
	Reasons      []string    `json:"reasons,omitempty" doc:"What is wrong and what to do about it"`
	Checks       []sos.Check `json:"checks" doc:"What the driver needs of this host"`
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	info, err := s.svc.Info(r.Context())
	if err != nil {
		return err
	}
	h := healthReply{Status: "ok", Version: info.Version, Commit: info.Commit, Instance: info.Instance, Driver: info.Driver,
		MaxSandboxes: info.MaxSandboxes, Running: info.Running, Queued: info.Queued, Checks: orEmpty(info.Checks)}
	if info.Healthy {
		return writeJSON(w, http.StatusOK, h)
	}
	h.Status = "unhealthy"
	for _, c := range info.Checks {
		if c.OK {
			continue
		}
		reason := c.Name + ": " + c.Message
		if c.Fix != "" {
			reason += "; " + c.Fix
		}
		h.Reasons = append(h.Reasons, reason)
	}
	return writeJSON(w, http.StatusServiceUnavailable, h)
}

// versionReply says what this build is.
type versionReply struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, versionReply{s.cfg.Version, s.cfg.Commit, runtime.Version()})
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}

func (s *Server) serveOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	b, err := s.openapi()
	if err != nil {
		return err
	}
	writeBody(w, http.StatusOK, jsonType, b)
	return nil
}
