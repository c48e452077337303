package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
)

// TestErrorTable: every code has a status and its words.
func TestErrorTable(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{sos.Errorf(sos.CodeInvalid, "bad name"), 400, "bad name"},
		{&sos.Error{Code: sos.CodeInvalid, Message: "bad name", Fix: "use another"}, 400, "bad name; use another"},
		{sos.Errorf(sos.CodeNotFound, "there is no image x"), 404, "there is no image x"},
		{&sos.Error{Code: sos.CodeNotStarted, Message: "sb-1 is stopped", Fix: "start it"}, 400, "Sandbox not started"},
		{sos.Errorf(sos.CodeAlreadyStarted, "x"), 400, "Sandbox already started"},
		{sos.Errorf(sos.CodeSessionExited, "x"), 400, "Sandbox session already exited"},
		{sos.Errorf(sos.CodeConflict, "name taken"), 409, "name taken"},
		{&sos.Error{Code: sos.CodeSetupFailed, Message: "a\nb\n", Fix: "mend it"}, 400, "Setup commands failed: a\nb\n"},
		{sos.Errorf(sos.CodeSetupFailed, "Setup commands failed: a\n"), 400, "Setup commands failed: a\n"},
		{&sos.Error{Code: sos.CodeImageFailed, Message: "no such tag", Fix: "look"}, 400, "Failed to pull image: no such tag; look"},
		{sos.Errorf(sos.CodeStartFailed, "no cgroup"), 500, "Failed to start container: no cgroup"},
		{sos.Errorf(sos.CodeSpawnFailed, "no such directory"), 400, "Failed to create exec: no such directory"},
		{sos.Errorf(sos.CodeSandboxStopped, "sb-1 was stopped"), 409, "sb-1 was stopped"},
		{sos.Errorf(sos.CodeSandboxLost, "the guest ended"), 500, "Container read failed: the guest ended"},
		{sos.Errorf(sos.CodeTimeout, "waited too long"), 504, "waited too long"},
		{sos.Errorf(sos.CodeTooLarge, "too much"), 413, "too much"},
		{sos.Errorf(sos.CodeUnavailable, "not now"), 503, "not now"},
		{sos.Errorf(sos.CodeUnsupported, "no bash"), 501, "no bash"},
		{sos.Errorf(sos.CodeCanceled, "gone"), 499, "gone"},
		{&sos.Error{Code: sos.CodeInternal, Message: "broken", Cause: errors.New("/secret/path")}, 500, "broken"},
		{errors.New("/secret/path"), 500, "internal error"},
		{sos.Errorf("later", "x"), 500, "x"},
	} {
		f := asFailure(c.err)
		if f.status != c.status || f.text != c.text {
			t.Errorf("%v: %d %q, want %d %q", c.err, f.status, f.text, c.status, c.text)
		}
		p := f.problem()
		if p.Status != c.status || p.Detail != sos.ErrorMessage(c.err) || p.Code != sos.ErrorCode(c.err) {
			t.Errorf("%v: problem %+v", c.err, p)
		}
	}
}

func TestExecTimeouts(t *testing.T) {
	svc := &stub{execRes: sos.ExecResult{Process: "p-1", ExitCode: -1, Reason: sos.EndTimeout, TimedOut: true, Output: "half", DefaultTimeout: true}}
	ts := listen(t, svc)
	path := "/sandboxes/" + stubID + "/exec"
	status, _, body := ask(t, ts, "POST", path, `{"command":"sleep 9"}`)
	if status != 504 || body != execTimeoutText {
		t.Errorf("the server's limit: %d %q", status, body)
	}
	_, _, body = ask(t, ts, "POST", path, `{"command":"sleep 9"}`, "Prefer", "return=representation")
	if !strings.Contains(body, `"default_timeout":true`) || !strings.Contains(body, `"output":"half"`) {
		t.Errorf("whole result: %q", body)
	}
	svc.execRes.DefaultTimeout = false
	status, h, body := ask(t, ts, "POST", path, `{"command":"sleep 9","timeout":1}`)
	if status != 200 || body != `{"exit_code":-1,"exited":false,"output":"half","reason":"timeout","timed_out":true}` || h.Get("X-Sos-Process") != "p-1" {
		t.Errorf("the request's limit: %d %q", status, body)
	}
	if svc.execReq.Timeout != sos.Duration(time.Second) {
		t.Errorf("timeout was read as %v", svc.execReq.Timeout)
	}
}

func TestBodyLimit(t *testing.T) {
	ts := listen(t, &stub{})
	const mb2 = 2 << 20
	status, _, body := ask(t, ts, "POST", "/sandboxes", `{"image":"`+strings.Repeat("x", mb2)+`"}`)
	if status != 413 || body != "Failed to buffer the request body: length limit exceeded" {
		t.Errorf("over: %d %q", status, body)
	}
	if status, _, _ = ask(t, ts, "POST", "/sandboxes", `{"image":"`+strings.Repeat("x", mb2-200)+`"}`); status != 200 {
		t.Errorf("under: %d", status)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "POST", ts.URL+"/sandboxes", io.MultiReader(strings.NewReader(`{"image":"`+strings.Repeat("x", mb2)+`"}`)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := ts.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("chunked: %d", resp.StatusCode)
	}
}

func TestCallers(t *testing.T) {
	cfg, _ := quiet(&stub{})
	cfg.Hosts = []string{"box.example"}
	h := New(cfg).Handler()
	for _, c := range []struct {
		host, origin, site string
		ok                 bool
	}{
		{"localhost:3000", "", "", true},
		{"LOCALHOST.:3000", "", "", true},
		{"a.localhost", "", "", true},
		{"127.0.0.1", "", "", true},
		{"[::1]:3000", "", "", true},
		{"::1", "", "", true},
		{"192.168.0.9:3000", "", "", true},
		{"box.example:3000", "", "", true},
		{"", "", "", true},
		{"rebound.example:3000", "", "", false},
		{"localhost.evil.example", "", "", false},
		{"127.0.0.1.evil.example", "", "", false},
		{"127.0.0.1:1.evil.example", "", "", false},
		{"localhost:3000", "http://localhost:3000", "same-origin", true},
		{"localhost:3000", "http://localhost:4000", "", false},
		{"localhost:3000", "http://evil.example", "", false},
		{"localhost:3000", "null", "", false},
		{"localhost:3000", "", "cross-site", false},
		{"localhost:3000", "", "none", true},
	} {
		r := newRequest("POST", "/sandboxes/x/start")
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := &discardWriter{}
		h.ServeHTTP(w, r)
		if got := w.status != http.StatusForbidden; got != c.ok {
			t.Errorf("host %q origin %q site %q: %d", c.host, c.origin, c.site, w.status)
		}
	}
}

// TestUnixSocketTakesAnyHost: no web page reaches it.
func TestUnixSocketTakesAnyHost(t *testing.T) {
	cfg, _ := quiet(&stub{})
	r := newRequest("GET", "/version")
	r.Host = "whatever.example"
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "x", Net: "unix"})))
	w := &discardWriter{}
	New(cfg).Handler().ServeHTTP(w, r)
	if w.status != 200 {
		t.Errorf("status %d", w.status)
	}
}

func TestPanicIsAnswered(t *testing.T) {
	svc := &stub{execFn: func(context.Context) (sos.ExecResult, error) { panic("boom") }}
	cfg, log := quiet(svc)
	s := New(cfg)
	w := &discardWriter{}
	r := newRequest("POST", "/sandboxes/"+stubID+"/exec")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{"command":"x"}`)), 15
	r.Header.Set("Content-Type", "application/json")
	s.Handler().ServeHTTP(w, r)
	if w.status != 500 || string(w.body) != "internal error" {
		t.Errorf("%d %q", w.status, w.body)
	}
	if l := log.String(); !strings.Contains(l, "boom") || !strings.Contains(l, "server_test.go") {
		t.Errorf("no stack in the log: %s", l)
	}
}

func TestRequestID(t *testing.T) {
	ts := listen(t, &stub{})
	_, h, _ := ask(t, ts, "GET", "/version", "", "X-Request-Id", "mine-1")
	if h.Get("X-Request-Id") != "mine-1" {
		t.Errorf("own id: %q", h.Get("X-Request-Id"))
	}
	_, h, _ = ask(t, ts, "GET", "/version", "", "X-Request-Id", "a b")
	if id := h.Get("X-Request-Id"); id == "" || id == "a b" {
		t.Errorf("harmful id: %q", id)
	}
}

// TestClientLeaves: the call ends when its client goes away.
func TestClientLeaves(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	ts := listen(t, &stub{execFn: func(ctx context.Context) (sos.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return sos.ExecResult{}, sos.Errorf(sos.CodeCanceled, "gone")
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, "POST", ts.URL+"/sandboxes/"+stubID+"/exec", strings.NewReader(`{"command":"x"}`))
	req.Header.Set("Content-Type", "application/json")
	if resp, err := ts.Client().Do(req); err == nil {
		resp.Body.Close()
		t.Fatal("an answer")
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the call goes on")
	}
}

// TestServeEnds: calls in flight get the grace, then an answer that says why.
func TestServeEnds(t *testing.T) {
	begun := make(chan struct{})
	svc := &stub{execFn: func(ctx context.Context) (sos.ExecResult, error) {
		close(begun)
		<-ctx.Done()
		return sos.ExecResult{}, &sos.Error{Code: sos.CodeCanceled, Message: "gone"}
	}}
	cfg, _ := quiet(svc)
	cfg.ShutdownGrace = 50 * time.Millisecond
	l, err := Listen(t.Context(), ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- New(cfg).Serve(ctx, l...) }()
	go func() {
		<-begun
		cancel()
	}()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+l[0].Addr().String()+"/sandboxes/"+stubID+"/exec", strings.NewReader(`{"command":"x"}`))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 503 || !strings.Contains(string(body), "shutting down") {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestOutputCutOff: an answer that cannot be completed never looks whole.
func TestOutputCutOff(t *testing.T) {
	ts := listen(t, &stub{})
	cfg, _ := quiet(&stub{})
	s := New(cfg)
	ts.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w}
		defer s.finish(rec, r)
		out := &outputWriter{w: rec, rc: http.NewResponseController(rec), follow: true}
		_, _ = out.Write([]byte("half"))
		s.fail(rec, r, sos.Errorf(sos.CodeSandboxLost, "gone"))
	})
	s.metrics.inFlight.Inc()
	resp, err := ts.Client().Get(ts.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("read %q as a whole", b)
	}
}

func TestProgress(t *testing.T) {
	svc := &stub{}
	ts := listen(t, svc)
	status, h, body := ask(t, ts, "POST", "/images/pull", `{"image":"a:b"}`, "Accept", ndjsonType)
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if status != 200 || h.Get("Content-Type") != ndjsonType || len(lines) != 2 ||
		lines[0] != `{"progress":{"stage":"resolve","current":0}}` || !strings.HasPrefix(lines[1], `{"image":{"digest":"sha256:1"`) {
		t.Errorf("%d %q", status, body)
	}
	svc.importErr = &sos.Error{Code: sos.CodeImageFailed, Message: "no space", Fix: "make some"}
	_, _, body = ask(t, ts, "POST", "/images/import?name=x", strings.Repeat("y", 4<<20), "Accept", ndjsonType)
	if want := `{"error":{"title":"Bad Request","status":400,"detail":"no space","code":"image_failed","message":"no space","fix":"make some"}}` + "\n"; !strings.HasSuffix(body, want) {
		t.Errorf("%q", body)
	}
	status, _, body = ask(t, ts, "POST", "/images/import?name=x", "y")
	if status != 400 || body != "Failed to pull image: no space; make some" {
		t.Errorf("%d %q", status, body)
	}
}

func TestHealth(t *testing.T) {
	svc := &stub{info: sos.Info{Version: "1", Driver: "native", Checks: []sos.Check{{Name: "overlay", Message: "not there", Fix: "modprobe overlay"}, {Name: "root", OK: true}}}}
	ts := listen(t, svc)
	status, _, body := ask(t, ts, "GET", "/health", "")
	if status != 503 || !strings.Contains(body, `"status":"unhealthy"`) || !strings.Contains(body, `"reasons":["overlay: not there; modprobe overlay"]`) {
		t.Errorf("%d %s", status, body)
	}
}

// TestMetricsAreBounded: neither ids nor paths become labels.
func TestMetricsAreBounded(t *testing.T) {
	svc := &stub{info: sos.Info{Healthy: true, Running: 2}, sandboxes: []sos.Sandbox{{Status: sos.StatusStarted}, {Status: sos.StatusStarted}}}
	cfg, _ := quiet(svc)
	cfg.Stats = stats{}
	h := New(cfg).Handler()
	for _, path := range []string{"/sandboxes/some-id/trajectory", "/no/such/path", "/sandboxes/%FF/trajectory"} {
		h.ServeHTTP(&discardWriter{}, newRequest("GET", path))
	}
	h.ServeHTTP(&discardWriter{}, newRequest("BREW", "/sandboxes"))
	w := &discardWriter{}
	h.ServeHTTP(w, newRequest("GET", "/metrics"))
	text := string(w.body)
	for _, want := range []string{`sos_sandboxes{status="started"} 2`, "sos_sandboxes_running 2", "sos_healthy 1", "sos_journal_bytes_total 5", `sos_start_seconds_bucket{le="1"} 2`, "sos_start_seconds_count 3",
		`sos_http_requests_total{method="GET",route="/sandboxes/{ref}/trajectory",status="404"} 1`,
		`sos_http_requests_total{method="GET",route="none",status="404"} 1`, `sos_http_requests_total{method="other",route="/sandboxes",status="405"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, never := range []string{"some-id", "no/such", "BREW"} {
		if strings.Contains(text, never) {
			t.Errorf("%s is in the metrics", never)
		}
	}
}

type stats struct{}

func (stats) Samples(context.Context) []Sample {
	return []Sample{{Name: "journal_bytes_total", Help: "x", Counter: true, Value: 5},
		{Name: "start_seconds", Help: "y", Value: 1.5, Count: 3, Buckets: map[float64]uint64{1: 2}}}
}
