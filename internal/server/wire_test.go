package server

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
)

var update = flag.Bool("update", false, "write the golden files anew")

// transcripts are raw requests whose raw answers testdata/wire.golden holds.
// LF stands for CRLF in the heads.
var transcripts = []struct{ name, request string }{
	{"create", post("/sandboxes", `{"image":"x","setup_commands":[]}`)},
	{"create with an unknown field", post("/sandboxes", `{"image":"x","setup_commands":[],"memroy":"2Gi"}`)},
	{"create, whole object", "POST /sandboxes HTTP/1.1\nHost: localhost\nContent-Type: application/json\nPrefer: return=representation\nContent-Length: 33\n\n" + `{"image":"x","setup_commands":[]}`},
	{"create without content type", "POST /sandboxes HTTP/1.1\nHost: localhost\nContent-Length: 2\n\n{}"},
	{"create with text/json", "POST /sandboxes HTTP/1.1\nHost: localhost\nContent-Type: text/json\nContent-Length: 2\n\n{}"},
	{"create with vendor JSON", "POST /sandboxes HTTP/1.1\nHost: localhost\nContent-Type: application/vnd.api+json\nContent-Length: 13\n\n" + `{"image":"x"}`},
	{"create, chunked", "POST /sandboxes HTTP/1.1\nHost: localhost\nContent-Type: APPLICATION/JSON; charset=utf-8\nTransfer-Encoding: chunked\n\nd\r\n" + `{"image":"x"}` + "\r\n0\r\n\r\n"},
	{"create, nothing", post("/sandboxes", "")},
	{"create, wrong type", post("/sandboxes", `{"image":1}`)},
	{"create, wrong type, JSON asked for", "POST /sandboxes HTTP/1.1\nHost: localhost\nAccept: application/json\nContent-Type: application/json\nContent-Length: 11\n\n" + `{"image":1}`},
	{"list", get("/sandboxes")},
	{"list, bad label", get("/sandboxes?label=x")},
	{"head of the list", "HEAD /sandboxes HTTP/1.1\nHost: localhost\n\n"},
	{"wrong method", "DELETE /sandboxes HTTP/1.1\nHost: localhost\n\n"},
	{"options", "OPTIONS /sandboxes/x/start HTTP/1.1\nHost: localhost\n\n"},
	{"wrong method on trajectory", post("/sandboxes/x/trajectory", "{}")},
	{"unknown path", get("/")},
	{"slash at the end", get("/sandboxes/")},
	{"dots in the path", get("/sandboxes/../sandboxes")},
	{"start", "POST /sandboxes/" + stubID + "/start HTTP/1.1\nHost: localhost\n\n"},
	{"start with junk", post("/sandboxes/"+stubID+"/start", "{junk")},
	{"start, unknown", "POST /sandboxes/none/start HTTP/1.1\nHost: localhost\n\n"},
	{"start, unknown, JSON asked for", "POST /sandboxes/none/start HTTP/1.1\nHost: localhost\nAccept: application/problem+json\n\n"},
	{"exec", post("/sandboxes/"+stubID+"/exec", `{"command":"echo '<hi>'","standalone":false}`)},
	{"exec, unknown sandbox", post("/sandboxes/none/exec", `{"command":"true"}`)},
	{"exec, unknown sandbox, bad body", post("/sandboxes/none/exec", `{`)},
	{"exec, no command", post("/sandboxes/none/exec", `{}`)},
	{"stop", post("/sandboxes/"+stubID+"/stop", `{"remove":true}`)},
	{"stop without body", "POST /sandboxes/" + stubID + "/stop HTTP/1.1\nHost: localhost\n\n"},
	{"stop with an unknown field", post("/sandboxes/"+stubID+"/stop", `{"force":true}`)},
	{"stop, unknown", post("/sandboxes/none/stop", `{}`)},
	{"trajectory", get("/sandboxes/" + stubID + "/trajectory")},
	{"trajectory, formatted", get("/sandboxes/" + stubID + "/trajectory/formatted")},
	{"trajectory, empty id", get("/sandboxes//trajectory")},
	{"trajectory, not UTF-8", get("/sandboxes/%FF/trajectory")},
	{"trajectory, escaped id", get("/sandboxes/a%20b%2Fc/trajectory")},
	{"HTTP/1.0 without host", "GET /version HTTP/1.0\n\n"},
	{"foreign host", "GET /version HTTP/1.1\nHost: evil.example\n\n"},
	{"foreign origin", "GET /version HTTP/1.1\nHost: localhost\nOrigin: http://evil.example\n\n"},
	{"health", get("/health")},
	{"remove", "DELETE /sandboxes/" + stubID + " HTTP/1.1\nHost: localhost\n\n"},
	{"session", post("/sandboxes/"+stubID+"/sessions", `{"name":"b"}`)},
	{"session, unknown field", post("/sandboxes/"+stubID+"/sessions", `{"nmae":"b"}`)},
	{"session, text after the body", post("/sandboxes/"+stubID+"/sessions", `{"name":"b"} x`)},
	{"output", get("/sandboxes/" + stubID + "/processes/p-1/output?offset=3")},
	{"output, bad stream", get("/sandboxes/" + stubID + "/processes/p-1/output?stream=err")},
	{"image called pull", get("/images/pull")},
	{"image with slashes", get("/images/docker.io%2Flibrary%2Fubuntu:latest")},
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: %d\n\n%s", path, len(body), body)
}

func get(path string) string { return "GET " + path + " HTTP/1.1\nHost: localhost\n\n" }

func TestWire(t *testing.T) {
	two := 2
	svc := &stub{
		execRes:   sos.ExecResult{Process: "p-1", Output: "<hi>"},
		sandboxes: []sos.Sandbox{{ID: stubID, SandboxSpec: sos.SandboxSpec{Image: "x", SetupCommands: []string{"a", "b"}}, Status: sos.StatusCreated}},
		traj: sos.Trajectory{Sandbox: stubID, Entries: []sos.TrajectoryEntry{
			{Index: 0, HasResult: true, Output: "a\nb", Process: sos.Process{Command: "ls\nls", SinceStart: sos.Duration(1500 * time.Millisecond), Exit: sos.Exit{ExitCode: new(int)}}},
			{Index: 1, HasResult: true, Process: sos.Process{Command: "false", SinceStart: sos.Duration(2 * time.Second), Exit: sos.Exit{ExitCode: &two}}},
			{Index: 2, HasResult: true, Process: sos.Process{Command: "sleep 9", Exit: sos.Exit{Reason: sos.EndTimeout}}},
			{Index: 3, Process: sos.Process{Command: "lost"}}}},
		info:   sos.Info{Version: "1.2.3", Healthy: true, Driver: "fake", Instance: "abc", MaxSandboxes: 10},
		output: "0123456",
	}
	ts := listen(t, svc)
	var out strings.Builder
	for _, c := range transcripts {
		fmt.Fprintf(&out, "=== %s\n%s\n", c.name, raw(t, ts.Listener.Addr().String(), c.request))
	}
	golden(t, filepath.Join("testdata", "wire.golden"), out.String())
}

var varying = regexp.MustCompile(`(?m)^(Date|X-Request-Id): .*\n`)

// raw sends bytes and gives the bytes that come back, without what varies.
func raw(t *testing.T, addr, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	head, body, _ := strings.Cut(request, "\n\n")
	if _, err := conn.Write([]byte(strings.ReplaceAll(head, "\n", "\r\n") + "\r\nConnection: close\r\n\r\n" + body)); err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	if _, err := bufio.NewReader(conn).WriteTo(&answer); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(answer.String(), "\r\n", "\n")
	text = strings.ReplaceAll(text, runtime.Version(), "go")
	text = strings.ReplaceAll(varying.ReplaceAllString(text, ""), "Connection: close\n", "")
	return regexp.MustCompile(`Content-Length: \d+(\n(?:.*\n)*\n\{"version":)`).ReplaceAllString(text, "Content-Length: N$1")
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	w, g := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		if i >= len(w) || i >= len(g) || w[i] != g[i] {
			t.Fatalf("%s differs from line %d on (go test -update writes it anew):\n got %q\nwant %q", path, i+1, at(g, i), at(w, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(end)"
}
