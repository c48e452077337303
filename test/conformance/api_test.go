package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// api speaks the first system's wire as a stranger would: raw HTTP, nothing of
// our client.
type api struct {
	t    *testing.T
	base string
}

// on is the same server for a subtest.
func (a *api) on(t *testing.T) *api { return &api{t: t, base: a.base} }

// reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string

	// of an exec:
	Output   string `json:"output"`
	ExitCode *int   `json:"exit_code"`
	Exited   *bool  `json:"exited"`
	TimedOut bool   `json:"timed_out"`
	Reason   string `json:"reason"`
}

var httpClient = &http.Client{Timeout: 5 * time.Minute}

// call sends a body as it is; "" sends none.
func (a *api) call(method, path, body string) reply {
	a.t.Helper()
	r, err := a.try(method, path, body)
	if err != nil { // not Fatal: commands are also sent from goroutines
		a.t.Errorf("%s %s: %v", method, path, err)
	}
	return r
}

func (a *api) try(method, path, body string) (reply, error) {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, a.base+path, rd) // the client has a limit
	if err != nil {
		return reply{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(b)}, err
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// create makes a sandbox and gives its id; the test removes it at its end.
func (a *api) create(setup ...string) string {
	a.t.Helper()
	return a.createFrom(imageName, setup...)
}

func (a *api) createFrom(image string, setup ...string) string {
	a.t.Helper()
	if setup == nil {
		setup = []string{}
	}
	r := a.call("POST", "/sandboxes", jsonOf(a.t, map[string]any{"image": image, "setup_commands": setup}))
	var v struct{ ID string }
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || r.status != 200 || v.ID == "" {
		a.t.Fatalf("create: %d %q", r.status, r.body)
	}
	base := a.base
	a.t.Cleanup(func() { _, _ = (&api{base: base}).try("POST", "/sandboxes/"+v.ID+"/stop", `{"remove":true}`) })
	return v.ID
}

// started makes a sandbox and starts it.
func (a *api) started(setup ...string) string {
	a.t.Helper()
	id := a.create(setup...)
	a.start(id, 200, "")
	return id
}

func (a *api) start(id string, status int, body string) {
	a.t.Helper()
	r := a.call("POST", "/sandboxes/"+id+"/start", "")
	if r.status != status || r.body != body {
		a.t.Fatalf("start: %d %q, want %d %q", r.status, r.body, status, body)
	}
}

func (a *api) stop(id string, remove bool) reply {
	a.t.Helper()
	return a.call("POST", "/sandboxes/"+id+"/stop", jsonOf(a.t, map[string]bool{"remove": remove}))
}

// send runs a command in the session (extra: further fields) and gives whatever
// is answered; it may be called from goroutines.
func (a *api) send(id, command string, extra ...any) reply {
	a.t.Helper()
	body := map[string]any{"command": command}
	for i := 0; i < len(extra); i += 2 {
		body[extra[i].(string)] = extra[i+1]
	}
	r := a.call("POST", "/sandboxes/"+id+"/exec", jsonOf(a.t, body))
	if r.status == 200 {
		if err := json.Unmarshal([]byte(r.body), &r); err != nil || r.ExitCode == nil || r.Exited == nil {
			a.t.Errorf("exec %q: %q, %v", command, r.body, err)
		}
	}
	if r.ExitCode == nil || r.Exited == nil {
		r.ExitCode, r.Exited = new(int), new(bool)
		*r.ExitCode = -100 // none that any command has
	}
	return r
}

// exec runs a command in the session, which must answer.
func (a *api) exec(id, command string, extra ...any) reply {
	a.t.Helper()
	r := a.send(id, command, extra...)
	if r.status != 200 {
		a.t.Errorf("exec %.80q: %d %q", command, r.status, r.body)
	}
	return r
}

// alone runs a standalone command.
func (a *api) alone(id, command string) reply {
	a.t.Helper()
	return a.exec(id, command, "standalone", true)
}

// is holds a result to output, code and whether the shell ended.
func (a *api) is(r reply, output string, code int, exited bool) {
	a.t.Helper()
	if r.Output != output || *r.ExitCode != code || *r.Exited != exited {
		a.t.Errorf("output %s, code %d, exited %v; want %s, %d, %v", short(r.Output), *r.ExitCode, *r.Exited, short(output), code, exited)
	}
}

func short(s string) string {
	if len(s) > 300 {
		s = s[:150] + "…" + s[len(s)-150:]
	}
	return jsonShort(s)
}

func jsonShort(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(b)
}

// error holds an answer to the plain-text error of the first system.
func (a *api) error(r reply, status int, text string) {
	a.t.Helper()
	if r.status != status || r.body != text || r.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		a.t.Errorf("%d %q (%s), want %d %q", r.status, r.body, r.header.Get("Content-Type"), status, text)
	}
}

// row is a sandbox of the list.
type row struct {
	ID                     string `json:"id"`
	Image                  string `json:"image"`
	SetupCommands          string `json:"setup_commands"`
	Status                 string `json:"status"`
	SessionCommandCount    int    `json:"session_command_count"`
	LastStandaloneExitCode *int   `json:"last_standalone_exit_code"`
}

// list gives the sandbox's row, or nil.
func (a *api) row(id string) *row {
	a.t.Helper()
	var all []row
	r := a.call("GET", "/sandboxes", "")
	if err := json.Unmarshal([]byte(r.body), &all); err != nil {
		a.t.Fatalf("list: %v in %q", err, r.body)
	}
	for i := range all {
		if all[i].ID == id {
			return &all[i]
		}
	}
	return nil
}

func (a *api) status(id, want string) {
	a.t.Helper()
	got := "absent"
	if r := a.row(id); r != nil {
		got = r.Status
	}
	if got != want {
		a.t.Errorf("status %s, want %s", got, want)
	}
}

// entry is a command of a trajectory.
type entry struct {
	Command string
	Index   int
	Result  *struct {
		ExitCode int `json:"exit_code"`
		Output   string
		Reason   string
	}
	Timestamp float64
}

func (a *api) trajectory(id string) []entry {
	a.t.Helper()
	r := a.call("GET", "/sandboxes/"+id+"/trajectory", "")
	var v struct {
		CommandCount int    `json:"command_count"`
		SandboxID    string `json:"sandbox_id"`
		Trajectory   []entry
	}
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || r.status != 200 || v.SandboxID != id || v.CommandCount != len(v.Trajectory) {
		a.t.Fatalf("trajectory: %d %q %v", r.status, r.body, err)
	}
	return v.Trajectory
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func matches(t *testing.T, what, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(got) {
		t.Errorf("%s: %s does not match %s", what, short(got), pattern)
	}
}
