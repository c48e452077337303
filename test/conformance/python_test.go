package conformance

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestPythonClient is what the first system's published Python client sends: a
// new connection for each call, Content-Length 0 on a start without a body,
// remove true by default, 300 s for every call.
func TestPythonClient(t *testing.T) {
	a := server(t)
	addr := address(t, a.base)
	send := func(method, path, body string) (int, string) {
		t.Helper()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(300 * time.Second))
		head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nUser-Agent: python-httpx/0.27.0\r\n", method, path, addr)
		switch {
		case body != "":
			head += fmt.Sprintf("Content-Length: %d\r\nContent-Type: application/json\r\n", len(body))
		case method == "POST":
			head += "Content-Length: 0\r\n"
		}
		if _, err := io.WriteString(conn, head+"\r\n"+body); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if len(resp.TransferEncoding) > 0 || resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s %s: encoded: %v", method, path, resp.Header)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	status, body := send("POST", "/sandboxes", `{"image": "ubuntu:latest", "setup_commands": ["git --version || true", "mkdir -p /srv/app"]}`)
	id := strings.TrimSuffix(strings.TrimPrefix(body, `{"id":"`), `"}`)
	if status != 200 || len(id) != 19 {
		t.Fatalf("create: %d %q", status, body)
	}
	path := "/sandboxes/" + id
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/start", "", "200 "},
		{"POST", "/exec", `{"command": "# Let me look\ncd /srv/app && ls", "standalone": false}`, `200 {"exit_code":0,"exited":false,"output":""}`},
		{"POST", "/exec", `{"command": "echo done > flag", "standalone": false}`, `200 {"exit_code":0,"exited":false,"output":""}`},
		{"POST", "/exec", `{"command": "exit", "standalone": false}`, `200 {"exit_code":0,"exited":true,"output":""}`},
		{"POST", "/exec", `{"command": "grep -q done /srv/app/flag", "standalone": true}`, `200 {"exit_code":0,"exited":false,"output":""}`},
		{"GET", "/trajectory/formatted", "", "200 $ # Let me look\ncd /srv/app && ls\n$ echo done > flag\n$ exit\n"},
		{"POST", "/exec", `{"command": "true", "standalone": false}`, "400 Sandbox session already exited"},
		{"POST", "/stop", `{"remove": true}`, "200 "},
		{"POST", "/stop", `{"remove": true}`, "404 Sandbox " + id + " not found"},
	} {
		status, body := send(c.method, path+c.path, c.body)
		if got := fmt.Sprintf("%d %s", status, body); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.path, c.body, got, c.want)
		}
	}
	if status, _ := send("GET", "/health", ""); status != 200 { // an unmerged client asks this first
		t.Errorf("health: %d", status)
	}
}
