package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/seaofsimulation/sos"
)

// execBody is an ExecRequest on the wire: stdin is text, or base64 where it is
// not UTF-8.
type execBody struct {
	Command     string            `json:"command"`
	Standalone  bool              `json:"standalone,omitempty"`
	Session     string            `json:"session,omitempty"`
	Timeout     *sos.Duration     `json:"timeout,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Cwd         string            `json:"cwd,omitempty"`
	User        string            `json:"user,omitempty"`
	Stdin       *string           `json:"stdin,omitempty"`
	StdinBase64 []byte            `json:"stdin_base64,omitempty"`
}

// execReply is an ExecResult on the wire.
type execReply struct {
	sos.ExecResult
	DefaultTimeout bool `json:"default_timeout"`
}

// Exec implements sos.Service.
func (c *Client) Exec(ctx context.Context, ref string, r sos.ExecRequest) (sos.ExecResult, error) {
	body := execBody{Command: r.Command, Standalone: r.Standalone, Session: r.Session, Env: r.Env, Cwd: r.Cwd, User: r.User}
	if r.Timeout != 0 {
		body.Timeout = &r.Timeout
	}
	switch {
	case r.Stdin == nil:
	case utf8.Valid(r.Stdin):
		s := string(r.Stdin)
		body.Stdin = &s
	default:
		body.StdinBase64 = r.Stdin
	}
	if !utf8.ValidString(r.Command) {
		return sos.ExecResult{}, &sos.Error{Code: sos.CodeInvalid, Message: "the command is not UTF-8",
			Fix: "send other bytes as stdin or in a file"}
	}
	resp, err := c.send(ctx, call{method: http.MethodPost, path: sandboxPath(ref) + "/exec", body: body, full: true})
	if err != nil {
		return sos.ExecResult{}, err
	}
	defer drain(resp.Body)
	var reply execReply
	if err := c.decode(ctx, resp.Body, &reply); err != nil {
		return sos.ExecResult{}, err
	}
	res := reply.ExecResult
	res.DefaultTimeout = reply.DefaultTimeout
	res.Process = resp.Header.Get("X-Sos-Process")
	return res, nil
}

func sessionPath(ref, name string) string {
	return sandboxPath(ref) + "/sessions/" + url.PathEscape(name)
}

// ListSessions implements sos.Service.
func (c *Client) ListSessions(ctx context.Context, ref string) (all []sos.Session, err error) {
	err = c.do(ctx, call{method: http.MethodGet, path: sandboxPath(ref) + "/sessions"}, &all)
	return all, err
}

// CreateSession implements sos.Service.
func (c *Client) CreateSession(ctx context.Context, ref, name string) (s sos.Session, err error) {
	body := struct {
		Name string `json:"name"`
	}{name}
	err = c.do(ctx, call{method: http.MethodPost, path: sandboxPath(ref) + "/sessions", body: body}, &s)
	return s, err
}

// RemoveSession implements sos.Service.
func (c *Client) RemoveSession(ctx context.Context, ref, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sessionPath(ref, name)}, nil)
}

// InterruptSession implements sos.Service.
func (c *Client) InterruptSession(ctx context.Context, ref, name string) error {
	return c.do(ctx, call{method: http.MethodPost, path: sessionPath(ref, name) + "/interrupt"}, nil)
}

// trajectory is the whole view of a trajectory on the wire.
type trajectory struct {
	SandboxID  string `json:"sandbox_id"`
	Trajectory []struct {
		Index  int `json:"index"`
		Result *struct {
			Output string `json:"output"`
		} `json:"result"`
		Timestamp float64     `json:"timestamp"`
		Process   sos.Process `json:"process"`
	} `json:"trajectory"`
}

// Trajectory implements sos.Service.
func (c *Client) Trajectory(ctx context.Context, ref string) (sos.Trajectory, error) {
	var t trajectory
	q := url.Values{"view": {"full"}}
	if err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(ref) + "/trajectory", query: q}, &t); err != nil {
		return sos.Trajectory{}, err
	}
	out := sos.Trajectory{Sandbox: t.SandboxID}
	for _, e := range t.Trajectory {
		entry := sos.TrajectoryEntry{Index: e.Index, Process: e.Process, HasResult: e.Result != nil}
		entry.Process.SinceStart = sos.Duration(e.Timestamp * float64(time.Second))
		if e.Result != nil {
			entry.Output = e.Result.Output
		}
		out.Entries = append(out.Entries, entry)
	}
	return out, nil
}

// TrajectoryText gives the trajectory as the transcript that models read.
func (c *Client) TrajectoryText(ctx context.Context, ref string) (string, error) {
	return c.text(ctx, sandboxPath(ref)+"/trajectory/formatted")
}

// TrajectoryJSON gives the trajectory in the first system's JSON form.
func (c *Client) TrajectoryJSON(ctx context.Context, ref string) (string, error) {
	return c.text(ctx, sandboxPath(ref)+"/trajectory")
}

func (c *Client) text(ctx context.Context, path string) (string, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: path})
	if err != nil {
		return "", err
	}
	defer drain(resp.Body)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", c.transportError(ctx, err)
	}
	return string(b), nil
}

// ListProcesses implements sos.Service.
func (c *Client) ListProcesses(ctx context.Context, ref string, f sos.ProcessFilter) (all []sos.Process, err error) {
	q := url.Values{}
	for _, k := range f.Kinds {
		q.Add("kind", string(k))
	}
	for _, s := range f.Statuses {
		q.Add("status", string(s))
	}
	if f.Session != "" {
		q.Set("session", f.Session)
	}
	err = c.do(ctx, call{method: http.MethodGet, path: sandboxPath(ref) + "/processes", query: q}, &all)
	return all, err
}

// GetProcess implements sos.Service.
func (c *Client) GetProcess(ctx context.Context, ref, id string) (p sos.Process, err error) {
	err = c.do(ctx, call{method: http.MethodGet, path: sandboxPath(ref) + "/processes/" + url.PathEscape(id)}, &p)
	return p, err
}

// ReadOutput implements sos.Service. When the connection breaks, the offset that
// it returns is where to go on.
func (c *Client) ReadOutput(ctx context.Context, ref, id string, stream sos.Stream, offset int64, follow bool, w io.Writer) (int64, error) {
	q := url.Values{"stream": {string(stream)}, "offset": {strconv.FormatInt(offset, 10)}}
	if follow {
		q.Set("follow", "true")
	}
	resp, err := c.send(ctx, call{method: http.MethodGet, path: sandboxPath(ref) + "/processes/" + url.PathEscape(id) + "/output", query: q})
	if err != nil {
		return offset, err
	}
	defer drain(resp.Body)
	out := &sink{w: w}
	n, err := io.Copy(out, resp.Body)
	switch {
	case err == nil:
	case out.err != nil && errors.Is(err, out.err):
		err = sos.Errorf(sos.CodeInternal, "write the output of %s: %w", id, err)
	default:
		err = c.transportError(ctx, err)
	}
	return offset + n, err
}

// sink remembers that it was the writer that failed.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.err = err
	return n, err
}
