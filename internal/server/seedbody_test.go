package server

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/seaofsimulation/sos"
)

const (
	parseErr = "Failed to parse the request body as JSON: "
	dataErr  = "Failed to deserialize the JSON body into the target type: "
)

// TestCreateBodyRefused holds the messages that clients of the first system read.
func TestCreateBodyRefused(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"", parseErr + "EOF while parsing a value at line 1 column 0"},
		{"hello", parseErr + "expected value at line 1 column 1"},
		{"nul", parseErr + "EOF while parsing a value at line 1 column 3"},
		{"nulx", parseErr + "expected ident at line 1 column 4"},
		{`{"image": "x"`, parseErr + "EOF while parsing an object at line 1 column 13"},
		{`{"image": "x`, parseErr + "EOF while parsing a string at line 1 column 12"},
		{`{"image" "x"}`, parseErr + "expected `:` at line 1 column 10"},
		{`{"image":"x",}`, parseErr + "trailing comma at line 1 column 14"},
		{`{image:1}`, parseErr + "key must be a string at line 1 column 2"},
		{"{\"image\":\n\"x\" 1}", parseErr + "expected `,` or `}` at line 2 column 5"},
		{"\xef\xbb\xbf{}", parseErr + "expected value at line 1 column 1"},
		{"{\"image\":\"\xff\",\"setup_commands\":[]}", parseErr + "invalid unicode code point at line 1 column 11"},
		{`{"image":"\ud800","setup_commands":[]}`, parseErr + "lone leading surrogate in hex escape at line 1 column 16"},
		{`{"image":"\udc00"}`, parseErr + "lone leading surrogate in hex escape at line 1 column 16"},
		{`{"image":"\x"}`, parseErr + "invalid escape at line 1 column 12"},
		{`{"image":"` + "\n" + `"}`, parseErr + `control character (\u0000-\u001F) found while parsing a string at line 2 column 0`},
		{`{"foo":01}`, parseErr + "invalid number at line 1 column 10"},
		{strings.Repeat("[", 400), parseErr + "recursion limit exceeded at line 1 column 130"},
		{`{"x":` + strings.Repeat("[", 400), parseErr + "recursion limit exceeded at line 1 column 133"},

		{`{}`, dataErr + "missing field `image` at line 1 column 2"},
		{`{"setup_commands":[]}`, dataErr + "missing field `image` at line 1 column 21"},
		{"{\n \"name\": \"a\"\n}", dataErr + "missing field `image` at line 3 column 1"},
		{`{"image":"x","setup_commands":null}`, dataErr + "setup_commands: invalid type: null, expected a sequence at line 1 column 34"},
		{`{"image":"x","setup_commands":"a"}`, dataErr + "setup_commands: invalid type: string \"a\", expected a sequence at line 1 column 33"},
		{`{"image":"x","setup_commands":["a",1]}`, dataErr + "setup_commands[1]: invalid type: integer `1`, expected a string at line 1 column 36"},
		{`{"image":1,"setup_commands":[]}`, dataErr + "image: invalid type: integer `1`, expected a string at line 1 column 10"},
		{`{"image":1.5}`, dataErr + "image: invalid type: floating point `1.5`, expected a string at line 1 column 12"},
		{`{"image":true}`, dataErr + "image: invalid type: boolean `true`, expected a string at line 1 column 13"},
		{`{"image":{}}`, dataErr + "image: invalid type: map, expected a string at line 1 column 11"},
		{`{"image":"a","image":"b","setup_commands":[]}`, dataErr + "duplicate field `image` at line 1 column 21"},
		{"null", dataErr + "invalid type: null, expected an object at line 1 column 4"},
		{`"x"`, dataErr + "invalid type: string \"x\", expected an object at line 1 column 3"},
		{`["x",[],1]`, dataErr + "invalid length, expected an array of at most 2 fields at line 1 column 8"},
		{`[]`, dataErr + "missing field `image` at line 1 column 2"},
		{`{"image":"x","timeout":"soon"}`, dataErr + `timeout: invalid value: "soon" is not a duration; use seconds (300) or a string such as "90s", "5m", "1h30m" or "7d" at line 1 column 29`},
		{`{"image":"x","cpu":"two"}`, dataErr + "cpu: invalid value: string, expected a number at line 1 column 24"},
		{`{"image":"x","env":["A=1"]}`, dataErr + "env: invalid value: array, expected an object at line 1 column 26"},
		{`{"image":"x","user":""}`, dataErr + "user: invalid value: the user is empty; leave the field out for the default user at line 1 column 22"},
	} {
		_, _, err := decodeCreate([]byte(c.body))
		if err == nil || err.Error() != c.want {
			t.Errorf("%.60q:\n got %v\nwant %s", c.body, err, c.want)
		}
	}
}

func TestCreateBodyAccepted(t *testing.T) {
	none := []string{}
	for _, c := range []struct {
		body    string
		want    sos.SandboxSpec
		unknown []string
	}{
		{`{"image":"x","setup_commands":["a","b"]}`, sos.SandboxSpec{Image: "x", SetupCommands: []string{"a", "b"}}, nil},
		{`{"image":"x"}`, sos.SandboxSpec{Image: "x", SetupCommands: none}, nil},
		{`{"image":"","setup_commands":[]}`, sos.SandboxSpec{SetupCommands: none}, nil},
		{`["x",["echo a"]]`, sos.SandboxSpec{Image: "x", SetupCommands: []string{"echo a"}}, nil},
		{`{"image":"x","setup_commands":[]} x`, sos.SandboxSpec{Image: "x", SetupCommands: none}, nil},
		{`{"image":"x","foo":{"a":[1,-2.5e3]},"memroy":1}`, sos.SandboxSpec{Image: "x", SetupCommands: none}, []string{"foo", "memroy"}},
		{`{"image":"a\u00e9\ud83d\ude00\n\/"}`, sos.SandboxSpec{Image: "aé😀\n/", SetupCommands: none}, nil},
		{`{"image":"x","name":"n","cpu":0.5,"memory":"2Gi","disk":1024,"pids":7,"env":{"A":"b"},"workdir":"/w","user":"u","labels":{"l":"v"},"timeout":60,"start_timeout":"5m"}`,
			sos.SandboxSpec{Image: "x", Name: "n", SetupCommands: none, Limits: sos.Limits{CPU: .5, Memory: 2 << 30, Disk: 1024, PIDs: 7},
				Env: map[string]string{"A": "b"}, Workdir: "/w", User: "u", Labels: map[string]string{"l": "v"},
				Timeout: sos.Duration(time.Minute), StartTimeout: sos.Duration(5 * time.Minute)}, nil},
		{`{"image":"x","name":null,"user":null,"timeout":null}`, sos.SandboxSpec{Image: "x", SetupCommands: none}, nil},
	} {
		got, unknown, err := decodeCreate([]byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.body, d)
		}
		if d := cmp.Diff(c.unknown, unknown); d != "" {
			t.Errorf("%s: unknown %s", c.body, d)
		}
	}
}

func TestExecAndStopBodies(t *testing.T) {
	r, _, err := decodeExec([]byte(`["echo hi",true]`))
	if err != nil || r.Command != "echo hi" || !r.Standalone {
		t.Errorf("array: %+v, %v", r, err)
	}
	r, _, err = decodeExec([]byte(`{"command":"c","standalone":null,"timeout":5,"cwd":"/tmp","env":{"A":"1"},"session":"s","stdin":"a\u0000b"}`))
	want := sos.ExecRequest{Command: "c", Timeout: sos.Duration(5 * time.Second), Cwd: "/tmp", Env: map[string]string{"A": "1"}, Session: "s", Stdin: []byte("a\x00b")}
	if err != nil || cmp.Diff(want, r) != "" {
		t.Errorf("object: %v %s", err, cmp.Diff(want, r))
	}
	if r, _, err = decodeExec([]byte(`{"command":"c","stdin_base64":"/wA="}`)); err != nil || string(r.Stdin) != "\xff\x00" {
		t.Errorf("base64: %q, %v", r.Stdin, err)
	}
	if r, _, err = decodeExec([]byte(`{"command":"c","stdin":""}`)); err != nil || r.Stdin == nil {
		t.Errorf("empty stdin must differ from none: %v, %v", r.Stdin, err)
	}
	for body, want := range map[string]string{
		`{"command":"a","standalone":"true"}`: dataErr + "standalone: invalid type: string \"true\", expected a boolean at line 1 column 34",
		`{"command":null}`:                    dataErr + "command: invalid type: null, expected a string at line 1 column 15",
		`{"command":5}`:                       dataErr + "command: invalid type: integer `5`, expected a string at line 1 column 12",
		`{}`:                                  dataErr + "missing field `command` at line 1 column 2",
		`{"command":"c","stdin":"a","stdin_base64":"YQ=="}`: dataErr + "only one of `stdin` and `stdin_base64` may be given at line 1 column 48",
		`{"command":"c","stdin_base64":"?"}`:                dataErr + "stdin_base64: invalid value: not base64 at line 1 column 33",
	} {
		if _, _, err := decodeExec([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", body, err, want)
		}
	}
	st, unknown, err := decodeStop([]byte(`{"remove":true,"grace":"2s","force":true}`))
	if err != nil || !st.Remove || st.Grace != sos.Duration(2*time.Second) || len(unknown) != 1 {
		t.Errorf("stop: %+v %v %v", st, unknown, err)
	}
	if st, _, err = decodeStop([]byte(`{"remove":null}`)); err != nil || st.Remove {
		t.Errorf("stop null: %+v %v", st, err)
	}
	if st, _, err = decodeStop([]byte(`[true]`)); err != nil || !st.Remove {
		t.Errorf("stop array: %+v %v", st, err)
	}
}

// FuzzBody holds the scanner against encoding/json: the same texts are JSON.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{`{"image":"x","setup_commands":["a"]}`, `["x",[]]`, `{"command":"\ud83d\ude00","timeout":1e3}`, `{"a":[1,{"b":null}]} x`, "{\"x\":\"\xff\"}", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, err := range []error{second(decodeCreate(body)), second(decodeExec(body)), second(decodeStop(body))} {
			if err == nil {
				continue
			}
			if _, ok := err.(*failure); !ok {
				t.Fatalf("foreign error %T: %v", err, err)
			}
			if !utf8.ValidString(err.Error()) {
				t.Fatalf("message is not UTF-8: %q", err)
			}
		}
		s := &scanner{buf: body}
		err := s.skip(0)
		s.space()
		switch whole := err == nil && s.eof(); {
		case whole && !json.Valid(body):
			t.Fatalf("accepts what is no JSON: %q", body)
		case err != nil && json.Valid(body) && utf8.Valid(body) && !strings.Contains(err.Error(), "surrogate") &&
			!strings.Contains(err.Error(), "recursion"):
			t.Fatalf("refuses JSON %q: %v", body, err)
		}
	})
}

func second[T any](_ T, _ []string, err error) error { return err }

// FuzzString holds the encoder against encoding/json's reader.
func FuzzString(f *testing.F) {
	f.Add("a\"\\\b\f\n\r\t\x00\x1f<é\xff\u2028😀\x7f")
	f.Fuzz(func(t *testing.T, in string) {
		var out string
		if err := json.Unmarshal(appendString(nil, in), &out); err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		// Each byte that is no UTF-8 becomes one U+FFFD, as in a range over the string.
		var want strings.Builder
		for _, r := range in {
			want.WriteRune(r)
		}
		if out != want.String() {
			t.Fatalf("%q came back as %q", in, out)
		}
	})
}

func TestEncode(t *testing.T) {
	got := string(appendString(nil, "<a>&\"\\/\b\f\n\r\t\x01\x7f\u2028é"))
	if want := `"<a>&\"\\/\b\f\n\r\t\u0001` + "\x7f\u2028é" + `"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for sec, want := range map[float64]string{0: "0.0", 2: "2.0", 0.25: "0.25", 1e-7: "0.0000001"} {
		if got := string(appendSeconds(nil, sec)); got != want {
			t.Errorf("%v: %s, want %s", sec, got, want)
		}
	}
	code := 3
	for _, c := range []struct {
		res  sos.ExecResult
		want string
	}{
		{sos.ExecResult{ExitCode: 1, Output: "a\n"}, `{"exit_code":1,"exited":false,"output":"a\n"}`},
		{sos.ExecResult{ExitCode: 137, Reason: sos.EndSignal}, `{"exit_code":137,"exited":false,"output":""}`},
		{sos.ExecResult{Reason: sos.EndExit}, `{"exit_code":0,"exited":false,"output":""}`},
		{sos.ExecResult{ExitCode: -1, Reason: sos.EndTimeout, TimedOut: true, Output: "x", Truncated: true, OutputBytes: 9, OOMKilled: true, Survivors: true, SessionRestarted: true, Message: "m"},
			`{"exit_code":-1,"exited":false,"output":"x","reason":"timeout","message":"m","timed_out":true,"oom_killed":true,"survivors":true,"session_restarted":true,"truncated":true,"output_bytes":9}`},
	} {
		if got := string(appendExecResult(nil, &c.res, false, nil)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	row := sos.Sandbox{ID: "i", SandboxSpec: sos.SandboxSpec{Image: "x", SetupCommands: []string{"cd /tmp", "echo 'x' > y"}}, Status: sos.StatusStarted, SessionCommandCount: 2, LastStandaloneExitCode: &code}
	if got, want := string(appendRow(nil, &row)), `{"id":"i","image":"x","setup_commands":"cd /tmp && echo 'x' > y","status":"started","session_command_count":2,"last_standalone_exit_code":3}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
