package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/client"
	"github.com/seaofsimulation/sos/internal/server"
)

// service answers with what a test puts into it.
type service struct {
	sos.Service
	err  error
	exec func(sos.ExecRequest) sos.ExecResult
	spec sos.SandboxSpec
	traj sos.Trajectory
	info sos.Info
	read func(offset int64, w io.Writer) (int64, error)
}

func (s *service) CreateSandbox(_ context.Context, spec sos.SandboxSpec) (sos.Sandbox, error) {
	s.spec = spec
	return sos.Sandbox{ID: "sb-aaaaaaaaaaaaaaaa", SandboxSpec: spec, Status: sos.StatusCreated, Reconnected: true}, s.err
}
func (s *service) StartSandbox(context.Context, string) (sos.Sandbox, error) {
	return sos.Sandbox{ID: "sb-aaaaaaaaaaaaaaaa"}, s.err
}
func (s *service) RemoveSandbox(context.Context, string) error { return s.err }
func (s *service) Exec(_ context.Context, _ string, r sos.ExecRequest) (sos.ExecResult, error) {
	if s.exec == nil {
		return sos.ExecResult{}, s.err
	}
	return s.exec(r), s.err
}
func (s *service) Trajectory(context.Context, string) (sos.Trajectory, error) { return s.traj, s.err }
func (s *service) Info(context.Context) (sos.Info, error)                     { return s.info, nil }
func (s *service) GetProcess(context.Context, string, string) (sos.Process, error) {
	return sos.Process{}, s.err
}
func (s *service) ReadOutput(_ context.Context, _, _ string, _ sos.Stream, offset int64, _ bool, w io.Writer) (int64, error) {
	return s.read(offset, w)
}
func (s *service) PullImage(_ context.Context, ref string, progress func(sos.Progress)) (sos.Image, error) {
	progress(sos.Progress{Stage: "resolve", Message: ref})
	return sos.Image{Digest: "sha256:1"}, s.err
}
func (s *service) GetImage(_ context.Context, ref string) (sos.Image, error) {
	return sos.Image{Names: []string{ref}}, s.err
}
func (s *service) ImportImage(_ context.Context, r io.Reader, name string, _ func(sos.Progress)) (sos.Image, error) {
	if s.err != nil {
		return sos.Image{}, s.err // before anything is read
	}
	n, err := io.Copy(io.Discard, r)
	return sos.Image{Names: []string{name}, Size: n}, err
}

func dial(t *testing.T, s *service) *client.Client {
	t.Helper()
	ts := httptest.NewServer(server.New(server.Config{Service: s, Log: slog.New(slog.DiscardHandler)}).Handler())
	t.Cleanup(ts.Close)
	c := client.New(client.Config{URL: ts.URL})
	t.Cleanup(c.Close)
	return c
}

// TestErrorsSurvive: code, message and fix come through in both directions.
func TestErrorsSurvive(t *testing.T) {
	s := &service{}
	c := dial(t, s)
	for _, code := range []sos.Code{sos.CodeInvalid, sos.CodeNotFound, sos.CodeNotStarted, sos.CodeAlreadyStarted, sos.CodeSessionExited,
		sos.CodeConflict, sos.CodeSetupFailed, sos.CodeImageFailed, sos.CodeStartFailed, sos.CodeSpawnFailed, sos.CodeSandboxStopped,
		sos.CodeSandboxLost, sos.CodeTimeout, sos.CodeTooLarge, sos.CodeUnavailable, sos.CodeUnsupported, sos.CodeCanceled, sos.CodeInternal} {
		want := &sos.Error{Code: code, Message: "what happened é <", Fix: "do this"}
		s.err = want
		_, create := c.CreateSandbox(t.Context(), sos.SandboxSpec{Image: "x"})
		_, start := c.StartSandbox(t.Context(), "x")
		_, exec := c.Exec(t.Context(), "x", sos.ExecRequest{Command: "x"})
		_, pull := c.PullImage(t.Context(), "x", nil)
		_, imp := c.ImportImage(t.Context(), io.LimitReader(zeros{}, 8<<20), "x", nil)
		for op, err := range map[string]error{"create": create, "start": start, "exec": exec, "remove": c.RemoveSandbox(t.Context(), "x"), "pull": pull, "import": imp} {
			e, ok := errors.AsType[*sos.Error](err)
			if !ok || e.Code != want.Code || e.Message != want.Message || e.Fix != want.Fix {
				t.Errorf("%s %s: %#v", code, op, err)
			}
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestValuesSurvive(t *testing.T) {
	s := &service{}
	c := dial(t, s)
	spec := sos.SandboxSpec{Name: "n", Image: "x", SetupCommands: []string{"a\nb"}, Limits: sos.Limits{CPU: 1.5, Memory: 5 << 30, Disk: 1, PIDs: 9},
		Env: map[string]string{"A": "é"}, Workdir: "/w", User: "u", Labels: map[string]string{"l": "v"}, Timeout: sos.Duration(90 * time.Second), StartTimeout: sos.Duration(time.Millisecond)}
	sb, err := c.CreateSandbox(t.Context(), spec)
	if err != nil || cmp.Diff(spec, s.spec) != "" || cmp.Diff(spec, sb.SandboxSpec) != "" || !sb.Reconnected {
		t.Errorf("create: %v %s %s", err, cmp.Diff(spec, s.spec), cmp.Diff(spec, sb.SandboxSpec))
	}
	for _, req := range []sos.ExecRequest{
		{Command: "a\tb\x01", Standalone: true, Timeout: sos.Duration(1500 * time.Millisecond), Env: map[string]string{"A": "1"}, Cwd: "/", User: "u", Stdin: []byte("text")},
		{Command: "", Session: "s", Stdin: []byte("\xff\x00")},
		{Command: "x", Stdin: []byte{}},
		{Command: "x"},
	} {
		want := sos.ExecResult{Process: "p-1", ExitCode: -1, Exited: true, Output: "\x00é\ufffd", Reason: sos.EndTimeout, Message: "m", TimedOut: true, DefaultTimeout: true,
			OOMKilled: true, Survivors: true, SessionRestarted: true, Truncated: true, OutputBytes: 1 << 40}
		s.exec = func(got sos.ExecRequest) sos.ExecResult {
			if d := cmp.Diff(req, got); d != "" {
				t.Errorf("request: %s", d)
			}
			return want
		}
		got, err := c.Exec(t.Context(), "x", req)
		if err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("result: %v %s", err, cmp.Diff(want, got))
		}
	}
	code := 3
	s.traj = sos.Trajectory{Sandbox: "sb-1", Entries: []sos.TrajectoryEntry{
		{Index: 0, HasResult: true, Output: "o", Process: sos.Process{ID: "p-1", Command: "c", Kind: sos.KindSession, SinceStart: sos.Duration(1250 * time.Millisecond), Exit: sos.Exit{ExitCode: &code}}},
		{Index: 1, Process: sos.Process{ID: "p-2", Command: "d", Status: sos.ProcessLost}}}}
	traj, err := c.Trajectory(t.Context(), "x")
	if d := cmp.Diff(s.traj, traj, cmpopts.EquateEmpty()); err != nil || d != "" {
		t.Errorf("trajectory: %v %s", err, d)
	}
	s.info = sos.Info{Version: "1", Instance: "i", Driver: "d", Checks: []sos.Check{{Name: "c", Message: "m", Fix: "f"}}, MaxSandboxes: 1, Running: 2, Queued: 3}
	if info, err := c.Info(t.Context()); err != nil || cmp.Diff(s.info, info) != "" {
		t.Errorf("info: %v %s", err, cmp.Diff(s.info, info))
	}
	if img, err := c.GetImage(t.Context(), "docker.io/library/ubuntu:latest"); err != nil || img.Names[0] != "docker.io/library/ubuntu:latest" {
		t.Errorf("image: %v %v", img.Names, err)
	}
	var stages []string
	if _, err := c.PullImage(t.Context(), "x:y", func(p sos.Progress) { stages = append(stages, p.Stage+p.Message) }); err != nil || len(stages) != 1 || stages[0] != "resolvex:y" {
		t.Errorf("progress: %q %v", stages, err)
	}
	if img, err := c.ImportImage(t.Context(), io.LimitReader(zeros{}, 3<<20), "n:1", nil); err != nil || img.Size != 3<<20 || img.Names[0] != "n:1" {
		t.Errorf("import: %+v %v", img, err)
	}
}

// TestReadOutput: a broken answer gives the offset to go on from.
func TestReadOutput(t *testing.T) {
	s := &service{}
	c := dial(t, s)
	s.read = func(offset int64, w io.Writer) (int64, error) {
		n, _ := io.WriteString(w, "0123456789"[offset:])
		return offset + int64(n), nil
	}
	var out bytes.Buffer
	if end, err := c.ReadOutput(t.Context(), "x", "p", sos.StreamOut, 4, false, &out); err != nil || end != 10 || out.String() != "456789" {
		t.Errorf("%d %q %v", end, out.String(), err)
	}
	s.read = func(offset int64, w io.Writer) (int64, error) {
		_, _ = w.Write(make([]byte, 100))
		return offset, sos.Errorf(sos.CodeInternal, "the disk is broken")
	}
	end, err := c.ReadOutput(t.Context(), "x", "p", sos.StreamOut, 5, true, io.Discard)
	if sos.ErrorCode(err) != sos.CodeUnavailable || end != 105 {
		t.Errorf("broken: %d %v", end, err)
	}
}

// TestNothingIsSentTwice: a server that breaks off after it took a request has
// got it once.
func TestNothingIsSentTwice(t *testing.T) {
	var got atomic.Int64
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if got.Add(1) > 1 { // the first leaves a connection to be used again
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{}`)
	}))
	defer ts.Close()
	c := client.New(client.Config{URL: ts.URL})
	defer c.Close()
	if _, err := c.Exec(t.Context(), "x", sos.ExecRequest{Command: "x"}); err != nil {
		t.Fatal(err)
	}
	for op, do := range map[string]func() error{
		"exec":   func() error { _, err := c.Exec(t.Context(), "x", sos.ExecRequest{Command: "x"}); return err },
		"start":  func() error { _, err := c.StartSandbox(t.Context(), "x"); return err },
		"remove": func() error { return c.RemoveSandbox(t.Context(), "x") },
	} {
		before := got.Load()
		if err := do(); sos.ErrorCode(err) != sos.CodeUnavailable {
			t.Errorf("%s: %v", op, err)
		}
		if n := got.Load() - before; n != 1 {
			t.Errorf("%s was sent %d times", op, n)
		}
	}
}

func TestNoServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, url := range []string{"http://" + l.Addr().String(), "unix://" + filepath.Join(t.TempDir(), "none.sock")} {
		_, err := client.New(client.Config{URL: url}).GetSandbox(t.Context(), "x")
		e, ok := errors.AsType[*sos.Error](err)
		if !ok || e.Code != sos.CodeUnavailable || !strings.Contains(e.Fix, "sos serve") || !strings.Contains(e.Message, url) {
			t.Errorf("%s: %#v", url, err)
		}
	}
	for _, url := range []string{"", "localhost:3000", "ftp://x", "http://"} {
		if _, err := client.New(client.Config{URL: url}).ListSandboxes(t.Context(), sos.SandboxFilter{}); sos.ErrorCode(err) != sos.CodeInvalid {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	release := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer ts.Close()
	defer close(release)
	c := client.New(client.Config{URL: ts.URL})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.GetSandbox(ctx, "x"); sos.ErrorCode(err) != sos.CodeCanceled {
		t.Errorf("deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := c.GetSandbox(ctx, "x"); sos.ErrorCode(err) != sos.CodeCanceled {
		t.Errorf("cancel: %v", err)
	}
}

// TestUnixSocket: the same over the socket of the run directory.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := server.Listen(t.Context(), server.ListenConfig{NoTCP: true, Unix: path})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- server.New(server.Config{Service: &service{info: sos.Info{Healthy: true}}}).Serve(ctx, l...)
	}()
	c := client.New(client.Config{URL: "unix://" + path})
	if info, err := c.Info(t.Context()); err != nil || !info.Healthy {
		t.Errorf("%+v %v", info, err)
	}
	c.Close()
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
