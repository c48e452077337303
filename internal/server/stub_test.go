package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/seaofsimulation/sos"
)

// stub is a Service that answers with what a test puts into it and remembers
// what it was asked.
type stub struct {
	sos.Service // nil: a call that a test does not expect panics
	mu          sync.Mutex
	err         error
	spec        sos.SandboxSpec
	execReq     sos.ExecRequest
	stopReq     sos.StopRequest
	execRes     sos.ExecResult
	execFn      func(ctx context.Context) (sos.ExecResult, error)
	sandboxes   []sos.Sandbox
	traj        sos.Trajectory
	info        sos.Info
	output      string
	importErr   error
}

const stubID = "sb-aaaaaaaaaaaaaaaa"

func (s *stub) CreateSandbox(_ context.Context, spec sos.SandboxSpec) (sos.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec = spec
	return sos.Sandbox{ID: stubID, SandboxSpec: spec, Status: sos.StatusCreated}, s.err
}

func (s *stub) find(ref string) (sos.Sandbox, error) {
	if s.err != nil {
		return sos.Sandbox{}, s.err
	}
	if ref != stubID {
		return sos.Sandbox{}, sos.Errorf(sos.CodeNotFound, "there is no sandbox %q", ref)
	}
	return sos.Sandbox{ID: stubID, Status: sos.StatusStarted, SandboxSpec: sos.SandboxSpec{Image: "x", SetupCommands: []string{"a", "b"}}}, nil
}

func (s *stub) GetSandbox(_ context.Context, ref string) (sos.Sandbox, error)   { return s.find(ref) }
func (s *stub) StartSandbox(_ context.Context, ref string) (sos.Sandbox, error) { return s.find(ref) }
func (s *stub) RemoveSandbox(_ context.Context, ref string) error {
	_, err := s.find(ref)
	return err
}

func (s *stub) StopSandbox(_ context.Context, ref string, r sos.StopRequest) (sos.Sandbox, error) {
	s.stopReq = r
	return s.find(ref)
}

func (s *stub) ListSandboxes(context.Context, sos.SandboxFilter) ([]sos.Sandbox, error) {
	return s.sandboxes, s.err
}

func (s *stub) Exec(ctx context.Context, ref string, r sos.ExecRequest) (sos.ExecResult, error) {
	s.mu.Lock()
	s.execReq = r
	s.mu.Unlock()
	if _, err := s.find(ref); err != nil {
		return sos.ExecResult{}, err
	}
	if s.execFn != nil {
		return s.execFn(ctx)
	}
	return s.execRes, nil
}

func (s *stub) Trajectory(_ context.Context, ref string) (sos.Trajectory, error) {
	_, err := s.find(ref)
	return s.traj, err
}

func (s *stub) ListSessions(_ context.Context, ref string) ([]sos.Session, error) {
	_, err := s.find(ref)
	return nil, err
}

func (s *stub) CreateSession(_ context.Context, ref, name string) (sos.Session, error) {
	_, err := s.find(ref)
	return sos.Session{Name: name, Sandbox: ref, Status: "running"}, err
}

func (s *stub) RemoveSession(_ context.Context, ref, _ string) error {
	_, err := s.find(ref)
	return err
}
func (s *stub) InterruptSession(_ context.Context, ref, _ string) error {
	_, err := s.find(ref)
	return err
}

func (s *stub) ListProcesses(_ context.Context, ref string, _ sos.ProcessFilter) ([]sos.Process, error) {
	_, err := s.find(ref)
	return nil, err
}

func (s *stub) GetProcess(_ context.Context, ref, id string) (sos.Process, error) {
	_, err := s.find(ref)
	return sos.Process{ID: id, Sandbox: ref, Status: sos.ProcessRunning}, err
}

func (s *stub) ReadOutput(_ context.Context, ref, _ string, _ sos.Stream, offset int64, _ bool, w io.Writer) (int64, error) {
	if _, err := s.find(ref); err != nil {
		return offset, err
	}
	n, err := io.WriteString(w, s.output[min(int(offset), len(s.output)):])
	return offset + int64(n), err
}

func (s *stub) ListImages(context.Context) ([]sos.Image, error) { return nil, s.err }
func (s *stub) GetImage(_ context.Context, ref string) (sos.Image, error) {
	return sos.Image{Digest: "sha256:1", Names: []string{ref}}, s.err
}
func (s *stub) RemoveImage(context.Context, string) error { return s.err }
func (s *stub) PullImage(_ context.Context, ref string, progress func(sos.Progress)) (sos.Image, error) {
	progress(sos.Progress{Stage: "resolve"})
	return sos.Image{Digest: "sha256:1", Names: []string{ref}}, s.err
}

func (s *stub) ImportImage(_ context.Context, r io.Reader, name string, progress func(sos.Progress)) (sos.Image, error) {
	n, err := io.Copy(io.Discard, r)
	if err != nil {
		return sos.Image{}, sos.Errorf(sos.CodeImageFailed, "read the archive: %w", err)
	}
	progress(sos.Progress{Stage: "unpack", Current: n})
	return sos.Image{Digest: "sha256:2", Names: []string{name}, Size: n}, s.importErr
}

func (s *stub) Info(context.Context) (sos.Info, error) { return s.info, nil }

// quiet is a Config with the stub that logs into a buffer.
func quiet(svc *stub) (Config, *bytes.Buffer) {
	var log bytes.Buffer
	return Config{Service: svc, Version: "1.2.3", Log: slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil))}, &log
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// listen serves the stub on a real port.
func listen(t testing.TB, svc *stub) *httptest.Server {
	t.Helper()
	cfg, _ := quiet(svc)
	ts := httptest.NewServer(New(cfg).Handler())
	t.Cleanup(ts.Close)
	return ts
}

// ask sends one request and gives its status, headers and body.
func ask(t testing.TB, ts *httptest.Server, method, path, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, ts.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	resp, err := ts.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}
