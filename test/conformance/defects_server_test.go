package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seaofsimulation/sos/internal/app"
	"github.com/seaofsimulation/sos/internal/config"
)

// One test for each defect of the first system's server. D18 and D19 are not
// used; D39 is of its command line.

// background sends a command whose answer comes on the channel; waiting tells
// whether it still runs.
func (a *api) background(id, command string, extra ...any) chan reply {
	done := make(chan reply, 1)
	go func() { done <- a.send(id, command, extra...) }()
	eventually(a.t, "the command runs", func() bool {
		return strings.Contains(a.call("GET", "/sandboxes/"+id+"/processes?status=running", "").body, `"status":"running"`)
	})
	return done
}

func stillRuns(t *testing.T, done chan reply) {
	t.Helper()
	select {
	case r := <-done:
		t.Errorf("it has ended: %d %q", r.status, r.body)
	default:
	}
}

// D20: one busy sandbox froze every call on every sandbox.
func TestD20NobodyWaitsForOthers(t *testing.T) {
	a := server(t)
	busy, other := a.started(), a.started()
	alone := a.background(busy, "sleep 300", "standalone", true)
	inSession := a.background(busy, "sleep 300")
	a.is(a.exec(other, "echo a"), "a", 0, false)
	a.status(busy, "started")
	a.start("none", 404, "Sandbox not found")
	a.trajectory(busy)
	a.is(a.alone(busy, "echo b"), "b\n", 0, false)
	a.start(a.create(), 200, "")
	stillRuns(t, alone)
	stillRuns(t, inSession)
	a.stop(busy, true)
	<-alone
	<-inSession
}

// D21: a stuck standalone or set-up command could not be stopped, and a child in
// the background delayed the start.
func TestD21StopGoesBeforeWhatRuns(t *testing.T) {
	a := server(t)
	id := a.started("sleep 300 & echo $! > /tmp/pid", "true")
	a.is(a.exec(id, "kill -0 $(cat /tmp/pid) && echo alive"), "alive", 0, false)
	done := a.background(id, "trap '' TERM; sleep 300", "standalone", true)
	if r := a.stop(id, false); r.status != 200 {
		t.Errorf("stop: %d %q", r.status, r.body)
	}
	if r := <-done; r.status < 400 && r.Reason != "sandbox_stopped" {
		t.Errorf("the command: %d %q", r.status, r.body)
	}
	slow := a.create("echo begun; sleep 300")
	start := make(chan reply, 1)
	go func() { start <- a.call("POST", "/sandboxes/"+slow+"/start", "") }()
	eventually(t, "the set-up runs", func() bool { r := a.row(slow); return r != nil && r.Status == "starting" })
	if r := a.stop(slow, true); r.status != 200 {
		t.Errorf("stop in the set-up: %d %q", r.status, r.body)
	}
	if r := <-start; r.status < 400 {
		t.Errorf("start: %d %q", r.status, r.body)
	}
}

// D22: a restart lost every sandbox and trajectory. D23: nothing was told of the
// end of the server.
func TestD22StateSurvivesARestart(t *testing.T) {
	srv, a := own(t, nil)
	id := a.started()
	a.exec(id, "X=kept; echo one")
	srv.restart(t, a)
	a.status(id, "started")
	a.is(a.exec(id, "echo $X"), "kept", 0, false)
	if e := a.trajectory(id); len(e) != 2 || e[0].Result.Output != "one" {
		t.Errorf("trajectory: %+v", e)
	}
}

// restart ends the server and starts the next one on its data directory.
func (r *running) restart(t *testing.T, a *api) {
	t.Helper()
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	next, err := boot(filepath.Dir(r.cfg.DataDir), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.end, r.app, r.base, a.base = next.end, next.app, next.base, next.base
}

// D23: the end of the server left containers that nobody knew of. Ours stops
// them when told to and keeps the files.
func TestD23AnOrderlyEnd(t *testing.T) {
	srv, a := own(t, nil)
	id := a.started()
	a.exec(id, "echo saved > /root/f")
	srv.app.StopAll(t.Context())
	a.status(id, "stopped")
	srv.restart(t, a)
	a.status(id, "stopped")
	a.start(id, 200, "")
	a.is(a.exec(id, "cat /root/f"), "saved", 0, false)
	instance := srv.app.Instance()
	if err := srv.end(); err != nil {
		t.Fatal(err)
	}
	report, err := app.Down(t.Context(), srv.cfg, false)
	if err != nil || report.Stopped != 1 {
		t.Errorf("down: %+v, %v", report, err)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*/sos-" + instance)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), srv.cfg.DataDir) {
		t.Errorf("mounts are left: %v", err)
	}
}

// D24: a failed start left a container that counted for nothing and could not be
// started again.
func TestD24FailedStartsLeaveNothing(t *testing.T) {
	_, a := own(t, func(c *config.Config) { c.MaxSandboxes = 1 })
	id := a.create("test -e /root/ready || { touch /root/ready; echo not yet >&2; exit 3; }")
	a.error(a.call("POST", "/sandboxes/"+id+"/start", ""), 400, "Setup commands failed: not yet\n")
	a.status(id, "failed")
	a.error(a.send(id, "true"), 400, "Sandbox not started")
	a.error(a.send(id, "true", "standalone", true), 400, "Sandbox not started")
	other := a.started() // the only place is free
	a.stop(other, true)
	// It may be tried again, from a clean beginning.
	a.error(a.call("POST", "/sandboxes/"+id+"/start", ""), 400, "Setup commands failed: not yet\n")
	if r := a.stop(id, true); r.status != 200 {
		t.Errorf("stop: %d %q", r.status, r.body)
	}
}

// createWith makes a sandbox with further fields.
func (a *api) createWith(fields map[string]any) string {
	a.t.Helper()
	body := map[string]any{"image": imageName, "setup_commands": []string{}}
	for k, v := range fields {
		body[k] = v
	}
	r := a.call("POST", "/sandboxes", jsonOf(a.t, body))
	var v struct {
		ID       string
		Warnings []string
	}
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || r.status != 200 || len(v.Warnings) > 0 {
		a.t.Fatalf("create: %d %q", r.status, r.body)
	}
	base := a.base
	a.t.Cleanup(func() { _, _ = (&api{base: base}).try("POST", "/sandboxes/"+v.ID+"/stop", `{"remove":true}`) })
	return v.ID
}

// D25: at the end of their time exited sandboxes were forgotten, not stopped.
// D27: the record and the trajectory of a sandbox whose time was over were lost.
func TestD25D27TheEndOfTheirTime(t *testing.T) {
	a := server(t)
	exited := a.createWith(map[string]any{"timeout": 3})
	running := a.createWith(map[string]any{"timeout": "3s"})
	for _, id := range []string{exited, running} {
		a.start(id, 200, "")
		a.exec(id, "echo one; echo file > /root/f")
	}
	a.exec(exited, "exit 2")
	for _, id := range []string{exited, running} {
		eventually(t, "it is stopped", func() bool { return a.row(id).Status == "stopped" })
		r := a.call("GET", "/sandboxes/"+id, "")
		matches(t, "reason", r.body, `"reason":"timeout"`)
		if e := a.trajectory(id); e[0].Result.Output != "one" {
			t.Errorf("trajectory: %+v", e)
		}
		a.error(a.send(id, "true"), 400, "Sandbox not started")
	}
}

// D26: while the server was full, calls that could be refused hung instead.
func TestD26RefusedBeforeTheQueue(t *testing.T) {
	_, a := own(t, func(c *config.Config) { c.MaxSandboxes = 1 })
	first, second := a.started(), a.create()
	queued := make(chan reply, 1)
	go func() { queued <- a.call("POST", "/sandboxes/"+second+"/start", "") }()
	eventually(t, "it is queued", func() bool { return a.row(second).Status == "queued" })
	a.start("none", 404, "Sandbox not found")
	a.start(first, 400, "Sandbox already started")
	a.is(a.exec(first, "echo on"), "on", 0, false)
	a.exec(first, "exit") // keeps its place
	a.status(second, "queued")
	a.stop(first, false)
	if r := <-queued; r.status != 200 {
		t.Errorf("the queued start: %d %q", r.status, r.body)
	}
	// A client that leaves the queue frees its place in it.
	ctx, cancel := context.WithCancel(t.Context())
	third := a.create()
	left := make(chan struct{})
	go func() {
		defer close(left)
		req, _ := http.NewRequestWithContext(ctx, "POST", a.base+"/sandboxes/"+third+"/start", nil)
		if resp, err := httpClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("started beyond the limit: %d", resp.StatusCode)
		}
	}()
	eventually(t, "it is queued", func() bool { return a.row(third).Status == "queued" })
	cancel()
	<-left
	eventually(t, "it has left the queue", func() bool { return a.row(third).Status == "created" })
}

// D28: stop answered 200 whatever became of the container.
func TestD28StopMeansStopped(t *testing.T) {
	srv, a := own(t, nil)
	id := a.started()
	a.exec(id, "sleep 300 & dd if=/dev/zero of=/root/big bs=1M count=5 2>/dev/null")
	if r := a.stop(id, true); r.status != 200 {
		t.Fatalf("%d %q", r.status, r.body)
	}
	eventually(t, "cgroups and files are gone", func() bool {
		cg, _ := filepath.Glob("/sys/fs/cgroup/*/sos-" + srv.app.Instance() + "/" + id)
		v2, _ := filepath.Glob("/sys/fs/cgroup/sos-" + srv.app.Instance() + "/" + id)
		files, _ := filepath.Glob(filepath.Join(srv.cfg.DataDir, "sandboxes", id))
		trash, _ := filepath.Glob(filepath.Join(srv.cfg.DataDir, "trash", "*"))
		return len(cg)+len(v2)+len(files)+len(trash) == 0
	})
}

// D29: stop of what does not run was a 400 that, with remove, removed all the same.
func TestD29StopIsIdempotent(t *testing.T) {
	a := server(t)
	for _, remove := range []bool{false, true} {
		id := a.create()
		if r := a.stop(id, remove); r.status != 200 || r.body != "" {
			t.Errorf("created, remove %v: %d %q", remove, r.status, r.body)
		}
		if gone := a.row(id) == nil; gone != remove {
			t.Errorf("remove %v: gone %v", remove, gone)
		}
	}
}

// D30: after a client had left, its command's output went to the next caller.
func TestD30ClientsMayLeave(t *testing.T) {
	a := server(t)
	id := a.started()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		req, _ := http.NewRequestWithContext(ctx, "POST", a.base+"/sandboxes/"+id+"/exec", strings.NewReader(`{"command":"touch /tmp/begun; sleep 1; echo secret; exit 9"}`))
		req.Header.Set("Content-Type", "application/json")
		if resp, err := httpClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "the command runs", func() bool { return *a.alone(id, "test -e /tmp/begun").ExitCode == 0 })
	cancel()
	<-left
	r := a.send(id, "echo mine")
	if strings.Contains(r.body, "secret") {
		t.Errorf("the next caller got %q", r.body)
	}
	eventually(t, "the abandoned command is recorded", func() bool {
		e := a.trajectory(id)
		return len(e) > 0 && e[0].Result != nil && e[0].Result.Output == "secret" && e[0].Result.ExitCode == 9
	})
}

// D31: a process that had closed its outputs had no exit code.
func TestD31TheKernelSaysTheEnd(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.alone(id, "exec >&- 2>&-; sleep 0.5; exit 6"), "", 6, false)
	a.is(a.exec(id, "exec >&- 2>&-; sleep 0.5; (exit 6)"), "", 6, false)
}

// D32: outputs were unlimited, and what nobody read filled the server's memory.
func TestD32OutputIsBounded(t *testing.T) {
	a := server(t)
	id := a.started()
	r := a.exec(id, "(yes | head -c 30000000) & echo x")
	if !strings.Contains(r.Output, "x") {
		t.Errorf("%s", short(r.Output))
	}
	r = a.exec(id, "head -c 70000000 /dev/zero | tr '\\0' x")
	if !strings.Contains(r.body, `"truncated":true`) || !strings.Contains(r.body, `"output_bytes":70000000`) || len(r.Output) >= 70000000 {
		t.Errorf("%d bytes: …%s", len(r.Output), r.body[max(0, len(r.body)-100):])
	}
	a.is(a.exec(id, "echo next"), "next", 0, false)
}
