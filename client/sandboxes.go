package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/seaofsimulation/sos"
)

func sandboxPath(ref string) string { return "/sandboxes/" + url.PathEscape(ref) }

// CreateSandbox implements sos.Service.
func (c *Client) CreateSandbox(ctx context.Context, spec sos.SandboxSpec) (sb sos.Sandbox, err error) {
	if spec.SetupCommands == nil {
		spec.SetupCommands = []string{} // null is refused
	}
	err = c.do(ctx, call{method: http.MethodPost, path: "/sandboxes", body: spec, full: true}, &sb)
	return sb, err
}

// GetSandbox implements sos.Service.
func (c *Client) GetSandbox(ctx context.Context, ref string) (sb sos.Sandbox, err error) {
	err = c.do(ctx, call{method: http.MethodGet, path: sandboxPath(ref)}, &sb)
	return sb, err
}

// ListSandboxes implements sos.Service.
func (c *Client) ListSandboxes(ctx context.Context, f sos.SandboxFilter) (all []sos.Sandbox, err error) {
	q := url.Values{"view": {"full"}}
	for _, s := range f.Status {
		q.Add("status", string(s))
	}
	for k, v := range f.Labels {
		q.Add("label", k+"="+v)
	}
	slices.Sort(q["label"])
	err = c.do(ctx, call{method: http.MethodGet, path: "/sandboxes", query: q}, &all)
	return all, err
}

// StartSandbox implements sos.Service.
func (c *Client) StartSandbox(ctx context.Context, ref string) (sb sos.Sandbox, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: sandboxPath(ref) + "/start", full: true}, &sb)
	return sb, err
}

// StopSandbox implements sos.Service.
func (c *Client) StopSandbox(ctx context.Context, ref string, r sos.StopRequest) (sb sos.Sandbox, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: sandboxPath(ref) + "/stop", body: r, full: true}, &sb)
	return sb, err
}

// RemoveSandbox implements sos.Service.
func (c *Client) RemoveSandbox(ctx context.Context, ref string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(ref)}, nil)
}

// health is what is read of /health.
type health struct {
	Status       string      `json:"status"`
	Version      string      `json:"version"`
	Commit       string      `json:"commit"`
	Instance     string      `json:"instance"`
	Driver       string      `json:"driver"`
	MaxSandboxes int         `json:"max_sandboxes"`
	Running      int         `json:"running"`
	Queued       int         `json:"queued"`
	Checks       []sos.Check `json:"checks"`
}

// Info implements sos.Service; a sick server answers too.
func (c *Client) Info(ctx context.Context) (sos.Info, error) {
	resp, err := c.roundTrip(ctx, call{method: http.MethodGet, path: "/health"})
	if err != nil {
		return sos.Info{}, err
	}
	defer drain(resp.Body)
	if resp.Header.Get("Content-Type") != "application/json" {
		return sos.Info{}, answerError(resp)
	}
	var h health
	if err := c.decode(ctx, resp.Body, &h); err != nil {
		return sos.Info{}, err
	}
	return sos.Info{Version: h.Version, Commit: h.Commit, Instance: h.Instance, Healthy: h.Status == "ok", Driver: h.Driver,
		Checks: h.Checks, MaxSandboxes: h.MaxSandboxes, Running: h.Running, Queued: h.Queued}, nil
}
