package conformance

import (
	"encoding/json"
	"strings"
	"testing"
)

// The thirteen integration tests of the first system.

var tmpSetup = []string{"cd /tmp", "echo 'Setting up' > /tmp/setup.txt"}

func TestCreateSandbox(t *testing.T) {
	a := server(t)
	r := a.call("POST", "/sandboxes", jsonOf(t, map[string]any{"image": imageName, "setup_commands": tmpSetup}))
	var v map[string]any
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatal(err)
	}
	id, ok := v["id"].(string)
	if r.status != 200 || !ok || id == "" || len(v) != 1 {
		t.Fatalf("%d %q", r.status, r.body)
	}
	a.stop(id, true)
}

func TestStartSandbox(t *testing.T) {
	a := server(t)
	a.start(a.create(), 200, "")
}

func TestExecuteCommand(t *testing.T) {
	a := server(t)
	a.is(a.exec(a.started(), "echo 'Hello, World!' && cd not-exists"),
		"Hello, World!\nbash: cd: not-exists: No such file or directory", 1, false)
}

func TestCommentCommands(t *testing.T) {
	a := server(t)
	a.is(a.exec(a.started(), "# This is a comment"), "", 0, false)
}

func TestSessionPersistence(t *testing.T) {
	a := server(t)
	id := a.started(tmpSetup...)
	a.is(a.exec(id, "cd /tmp"), "", 0, false)
	a.is(a.exec(id, "cat setup.txt"), "Setting up", 0, false)
}

func TestStandaloneMode(t *testing.T) {
	a := server(t)
	id := a.started()
	a.exec(id, "cd /tmp")
	a.is(a.alone(id, "pwd"), "/\n", 0, false)
}

func TestPipingAndRedirection(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "echo -e 'Hello, World!!\nHow you doing?\nHello' | grep 'Hello' > output.txt && cat output.txt"), "Hello, World!!\nHello", 0, false)
	a.is(a.exec(id, "echo 'Q0xVIFdBUyBIRVJF' | base64 -d "), "CLU WAS HERE", 0, false)
}

func TestStopSandbox(t *testing.T) {
	a := server(t)
	id := a.started()
	if r := a.stop(id, true); r.status != 200 || r.body != "" {
		t.Errorf("stop: %d %q", r.status, r.body)
	}
	a.start(id, 404, "Sandbox not found")
}

func TestErrorConditions(t *testing.T) {
	a := server(t)
	a.start("non-existent-id", 404, "Sandbox not found")
	a.error(a.send("non-existent-id", "echo 'test'"), 404, "Sandbox not found")
	a.error(a.stop("non-existent-id", true), 404, "Sandbox non-existent-id not found")
}

func TestDoubleStartSandbox(t *testing.T) {
	a := server(t)
	a.start(a.started(), 400, "Sandbox already started")
}

func TestExitCodePreservation(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "false"), "", 1, false)
	a.is(a.exec(id, "echo $?"), "1", 0, false)
}

func TestMultilineCommands(t *testing.T) {
	a := server(t)
	id := a.started()
	for _, c := range []struct{ command, output string }{
		{"echo 'First line'\necho 'Second line'\necho 'Third line'", "First line\nSecond line\nThird line"},
		{"NAME='World'\necho \"Hello, $NAME!\"\necho \"Goodbye, $NAME!\"", "Hello, World!\nGoodbye, World!"},
		{"if [ 1 -eq 1 ]; then\n  echo 'Condition is true'\nelse\n  echo 'Condition is false'\nfi", "Condition is true"},
		{"for i in 1 2 3; do\n  echo \"Number: $i\"\ndone", "Number: 1\nNumber: 2\nNumber: 3"},
	} {
		a.is(a.exec(id, c.command), c.output, 0, false)
	}
}

func TestExitCommandResponseIncludesExitTrue(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "echo hi; exit 7; echo bye"), "hi", 7, true) // the first system says 0
	a.is(a.alone(id, "echo 'Container still running'"), "Container still running\n", 0, false)
}

// TestStates holds every operation in every state; the first system answers 400
// to a stop of what does not run and to a start of what was stopped.
func TestStates(t *testing.T) {
	a := server(t)
	id := a.create()
	notStarted := func(what string) {
		t.Helper()
		for _, alone := range []bool{false, true} {
			if r := a.send(id, "true", "standalone", alone); r.status != 400 || r.body != "Sandbox not started" {
				t.Errorf("%s: exec: %d %q", what, r.status, r.body)
			}
		}
	}
	empty := func(what string, r reply) {
		t.Helper()
		if r.status != 200 || r.body != "" || r.header.Get("Content-Length") != "0" || r.header.Get("Content-Type") != "" {
			t.Errorf("%s: %d %q %v", what, r.status, r.body, r.header)
		}
	}
	notStarted("created")
	for _, body := range []string{`{"remove":false}`, `{}`, `{"remove":null}`, ""} {
		empty("stop of created", a.call("POST", "/sandboxes/"+id+"/stop", body))
	}
	a.status(id, "created")
	if n := len(a.trajectory(id)); n != 0 {
		t.Errorf("%d commands", n)
	}
	empty("start", a.call("POST", "/sandboxes/"+id+"/start", ""))
	a.status(id, "started")
	if r := a.call("POST", "/sandboxes/"+id+"/start", "{junk"); r.status != 400 || r.body != "Sandbox already started" {
		t.Errorf("second start with junk: %d %q", r.status, r.body)
	}
	a.is(a.exec(id, "echo a; exit 3"), "a", 3, true)
	a.status(id, "exited")
	a.error(a.send(id, "true"), 400, "Sandbox session already exited")
	a.is(a.alone(id, "exit 4"), "", 4, false)
	if r := a.row(id); r.LastStandaloneExitCode == nil || *r.LastStandaloneExitCode != 4 || r.SessionCommandCount != 1 {
		t.Errorf("row %+v", r)
	}
	a.start(id, 400, "Sandbox already started")
	empty("stop", a.stop(id, false))
	a.status(id, "stopped")
	notStarted("stopped")
	empty("stop again", a.stop(id, false))
	if n := len(a.trajectory(id)); n != 1 {
		t.Errorf("%d commands after the stop", n)
	}
	empty("start again", a.call("POST", "/sandboxes/"+id+"/start", ""))
	a.is(a.exec(id, "echo back"), "back", 0, false)
	empty("stop", a.stop(id, false))
	empty("stop true of stopped", a.stop(id, true))
	a.status(id, "absent")
	a.error(a.stop(id, true), 404, "Sandbox "+id+" not found")
	a.error(a.call("GET", "/sandboxes/"+id+"/trajectory", ""), 404, "Sandbox "+id+" not found")
	a.error(a.call("GET", "/sandboxes/"+id+"/trajectory/formatted", ""), 404, "Sandbox "+id+" not found")
}

// TestTrajectory holds both formats.
func TestTrajectory(t *testing.T) {
	a := server(t)
	id := a.started("touch /tmp/setup.txt")
	for _, c := range []string{"cd /tmp", "ls", "# why", "", "printf 'a\\nb\\n\\n'; false", "echo x\necho y"} {
		a.exec(id, c)
	}
	a.alone(id, "echo not recorded here")
	a.exec(id, "echo bye; exit 7")
	want := []struct {
		command, output string
		code            int
	}{{"cd /tmp", "", 0}, {"ls", "setup.txt", 0}, {"# why", "", 0}, {"", "", 0}, {"printf 'a\\nb\\n\\n'; false", "a\nb", 1}, {"echo x\necho y", "x\ny", 0}, {"echo bye; exit 7", "bye", 7}}
	got := a.trajectory(id)
	if len(got) != len(want) {
		t.Fatalf("%d commands, want %d: %+v", len(got), len(want), got)
	}
	var text strings.Builder
	for i, w := range want {
		g := got[i]
		if g.Command != w.command || g.Index != i || g.Result == nil || g.Result.ExitCode != w.code || g.Result.Output != w.output {
			t.Errorf("%d: %+v %+v, want %+v", i, g, g.Result, w)
		}
		if g.Timestamp <= 0 || i > 0 && g.Timestamp <= got[i-1].Timestamp {
			t.Errorf("%d: timestamp %v does not grow", i, g.Timestamp)
		}
		text.WriteString("$ " + w.command + "\n")
		if w.output != "" {
			text.WriteString(w.output + "\n")
		}
	}
	r := a.call("GET", "/sandboxes/"+id+"/trajectory/formatted", "")
	if r.body != text.String() || r.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("formatted: %q, want %q", r.body, text.String())
	}
}
