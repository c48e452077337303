package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// TestEnds is the table of how commands end.
func TestEnds(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name, text string
		change     func(*guest.Command)
		code       int // -1: none
		reason     sos.EndReason
		signal     string
		out        string
		survivors  bool
	}{
		{name: "exit 0", text: "echo hi", out: "hi\n", reason: sos.EndExit},
		{name: "exit 42", text: "exit 42", code: 42, reason: sos.EndExit},
		{name: "own 124 is not a timeout", text: "exit 124", code: 124, reason: sos.EndExit},
		{name: "own 137 is not a signal", text: "exit 137", code: 137, reason: sos.EndExit},
		{name: "SIGKILL", text: "kill -9 $$", code: 137, reason: sos.EndSignal, signal: "SIGKILL"},
		{name: "SIGTERM", text: "kill $$", code: 143, reason: sos.EndSignal, signal: "SIGTERM"},
		{name: "SIGSEGV", text: "kill -SEGV $$", code: 139, reason: sos.EndSignal, signal: "SIGSEGV"},
		{name: "real-time signal", text: "kill -40 $$", code: 168, reason: sos.EndSignal, signal: "SIGRTMIN+6"},
		{name: "order of both streams", text: "echo a; echo b >&2; echo c; echo d >&2", out: "a\nb\nc\nd\n", reason: sos.EndExit},
		{name: "binary", text: `printf '\xff\xfeA\x00B'`, out: "\xff\xfeA\x00B", reason: sos.EndExit},
		{name: "no newline", text: "printf x", out: "x", reason: sos.EndExit},
		{name: "nothing", text: ":", reason: sos.EndExit},
		{name: "silent child holds stdout", text: "sleep 301 & echo started", out: "started\n", reason: sos.EndExit, survivors: true},
		{name: "silent child holds stderr only", text: "sleep 302 >/dev/null & echo started", out: "started\n", reason: sos.EndExit, survivors: true},
		{name: "nohup", text: "nohup sleep 303 & exit 3", code: 3, out: "", reason: sos.EndExit, survivors: true},
		{name: "setsid child", text: "setsid sleep 304 & echo x", out: "x\n", reason: sos.EndExit, survivors: true},
		{name: "child that let go of its output", text: "sleep 305 >/dev/null 2>&1 & echo x", out: "x\n", reason: sos.EndExit},
		{name: "late writer within the grace", text: "(sleep 0.01; echo late) & echo x", out: "x\nlate\n", reason: sos.EndExit},
		{name: "no such program", change: argv("no-such-bin"), code: -1, reason: sos.EndSpawnFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var change []func(*guest.Command)
			if c.change != nil {
				change = append(change, c.change)
			}
			begun := time.Now()
			rec := r.run(c.text, change...)
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if got := rec.text(); got != c.out && c.name != "nohup" {
				t.Errorf("output %q, want %q", got, c.out)
			}
			e := rec.exit
			if rec.code() != c.code || e.Reason != c.reason || e.Signal != c.signal || e.Survivors != c.survivors || e.OOMKilled {
				t.Errorf("%+v (code %d)", e, rec.code())
			}
			if !c.survivors {
				rec.waitDrained(t)
			}
			if rec.at.Before(rec.started) {
				t.Errorf("ended %v, started %v", rec.at, rec.started)
			}
		})
	}
}

// TestSpawnFailures: each names what is wrong, and the guest goes on.
func TestSpawnFailures(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t)
	script := func(name, text, mode string) string {
		p := dir + "/" + name
		r.run(fmt.Sprintf("printf '%s' > %s; chmod %s %s", text, p, mode, p))
		return p
	}
	many := make([]string, 60)
	for i := range many {
		many[i] = fmt.Sprintf("K%d=%s", i, strings.Repeat("v", 100_000))
	}
	for name, c := range map[string]struct {
		change func(*guest.Command)
		want   []string
	}{
		"cwd missing":        {func(c *guest.Command) { c.Cwd = "/nope" }, []string{"/nope", "no such file"}},
		"cwd a file":         {func(c *guest.Command) { c.Cwd = "/etc/passwd" }, []string{"/etc/passwd", "not a directory"}},
		"cwd relative":       {func(c *guest.Command) { c.Cwd = "tmp" }, []string{"absolute"}},
		"program":            {argv("no-such-bin"), []string{"no-such-bin", "not found on the PATH"}},
		"program by path":    {argv("/no/such"), []string{"/no/such", "no such file"}},
		"not executable":     {argv("/etc/passwd"), []string{"/etc/passwd", "not executable"}},
		"directory":          {argv("/etc"), []string{"directory"}},
		"empty program":      {argv(""), []string{"empty"}},
		"bad interpreter":    {argv(script("interp", `#!/no/interp\n`, "755")), []string{"bad interpreter", "/no/interp"}},
		"no program at all":  {argv(script("text", `hello`, "755")), []string{"exec format error"}},
		"other architecture": {argv(script("elf", `\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\363\0\1\0\0\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa`, "755")), []string{"another architecture"}},
		"user":               {func(c *guest.Command) { c.User = "nobody2" }, []string{"nobody2", "no such user"}},
		"group":              {func(c *guest.Command) { c.User = "root:nogroup2" }, []string{"nogroup2", "no such group"}},
		"long argument":      {argv("/bin/echo", strings.Repeat("x", 300_000)), []string{"too long"}},
		"long environment":   {func(c *guest.Command) { c.Env = many }, []string{"too long"}},
		"PATH of the command": {func(c *guest.Command) {
			c.Argv, c.Env = []string{"ls"}, []string{"PATH=/nowhere"}
		}, []string{"ls", "not found"}},
	} {
		t.Run(name, func(t *testing.T) {
			rec := r.run("true", c.change)
			if rec.exit.Reason != sos.EndSpawnFailed || rec.exit.ExitCode != nil || !rec.started.IsZero() {
				t.Errorf("%+v", rec.exit)
			}
			for _, w := range c.want {
				if !strings.Contains(rec.exit.Message, w) {
					t.Errorf("message %q lacks %q", rec.exit.Message, w)
				}
			}
			rec.waitDrained(t)
		})
	}
	for name, change := range map[string]func(*guest.Command){
		"NUL in argv": argv("echo", "a\x00b"),
		"NUL in env":  func(c *guest.Command) { c.Env = []string{"A=\x00"} },
		"NUL in cwd":  func(c *guest.Command) { c.Cwd = "/\x00" },
		"no program":  func(c *guest.Command) { c.Argv = nil },
		"bad env":     func(c *guest.Command) { c.Env = []string{"NOEQUALS"} },
	} {
		cmd := guest.Command{ID: "bad", Argv: []string{"true"}}
		change(&cmd)
		if err := r.Start(r.ctx(20), cmd); sos.ErrorCode(err) != sos.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if rec := r.run("echo alive"); rec.text() != "alive\n" {
		t.Errorf("afterwards: %q", rec.text())
	}
}

// TestEnvironment: what a command finds.
func TestEnvironment(t *testing.T) {
	r := newRig(t)
	with := func(env ...string) func(*guest.Command) {
		return func(c *guest.Command) { c.Env = env }
	}
	user := func(u string) func(*guest.Command) {
		return func(c *guest.Command) { c.User = u }
	}
	for name, c := range map[string]struct {
		text, want string
		change     []func(*guest.Command)
	}{
		"defaults":         {`echo $HOME $USER $LANG; echo $PATH`, "/root root C.UTF-8\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n", nil},
		"given ones stay":  {`echo $HOME $LANG`, "/x de\n", []func(*guest.Command){with("HOME=/x", "LANG=de")}},
		"LC_ALL stays":     {`echo "$LC_ALL.$LANG"`, "C.\n", []func(*guest.Command){with("LC_ALL=C")}},
		"cwd":              {`pwd`, "/usr/bin\n", []func(*guest.Command){func(c *guest.Command) { c.Cwd = "/usr/bin" }}},
		"default cwd":      {`pwd`, "/\n", nil},
		"stdin empty":      {`cat; readlink /proc/self/fd/0`, "/dev/null\n", nil},
		"stdin":            {`sort`, "a\nb\n", []func(*guest.Command){func(c *guest.Command) { c.Stdin = []byte("b\na\n") }}},
		"stdin, not read":  {`true`, "", []func(*guest.Command){func(c *guest.Command) { c.Stdin = make([]byte, 5<<20) }}},
		"descriptors":      {`for ((n = 0; n < 300; n++)); do [ -e /proc/$$/fd/$n ] && printf '%d ' $n; done`, "0 1 2 ", nil},
		"no terminal":      {`tty; : </dev/tty`, "not a tty\n/bin/bash: line 1: /dev/tty: No such device or address\n", nil},
		"own session":      {`read -r _ _ _ _ pgrp sid _ </proc/$$/stat; echo $((pgrp-$$)) $((sid-$$))`, "0 0\n", nil},
		"signals":          {`grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\t'`, "SigBlk:0000000000000000\nSigIgn:0000000000000000\n", nil},
		"umask":            {`umask`, "0022\n", nil},
		"files limit":      {`ulimit -Sn`, "1024\n", nil},
		"user by name":     {`id -un; id -u; echo $HOME $USER`, "nobody\n65534\n/nonexistent nobody\n", []func(*guest.Command){user("nobody")}},
		"user by number":   {`id -u; id -G; echo $HOME`, "12345\n0\n/\n", []func(*guest.Command){user("12345")}},
		"user and group":   {`id -u; id -G`, "12345\n54321\n", []func(*guest.Command){user("12345:54321")}},
		"name and group":   {`id -un; id -gn`, "nobody\ntty\n", []func(*guest.Command){user("nobody:tty")}},
		"no capabilities":  {`grep CapEff /proc/self/status | tr -d '\t'`, "CapEff:0000000000000000\n", []func(*guest.Command){user("nobody")}},
		"/dev/stdout":      {`echo x > /dev/stdout; echo y >/dev/stderr`, "x\ny\n", []func(*guest.Command){user("nobody")}},
		"/dev/stdin":       {`cat /dev/stdin`, "in", []func(*guest.Command){user("nobody"), func(c *guest.Command) { c.Stdin = []byte("in") }}},
		"unicode":          {"echo $1é😀", "é😀\n", nil},
		"program by PATH":  {``, "hi\n", []func(*guest.Command){argv("echo", "hi")}},
		"relative program": {``, "hi\n", []func(*guest.Command){argv("./echo", "hi"), func(c *guest.Command) { c.Cwd = "/bin" }}},
	} {
		t.Run(name, func(t *testing.T) {
			rec := r.run(c.text, c.change...)
			if rec.text() != c.want {
				t.Errorf("%q, want %q (%+v)", rec.text(), c.want, rec.exit)
			}
		})
	}
	rec := r.run("echo out; echo err >&2; echo out2", func(c *guest.Command) { c.Split = true })
	if string(rec.out[sos.StreamStdout]) != "out\nout2\n" || string(rec.out[sos.StreamStderr]) != "err\n" || len(rec.out) != 2 {
		t.Errorf("split: %q", rec.out)
	}
}

// TestSurvivorsOutput: what comes after the end is recorded under the same id.
func TestSurvivorsOutput(t *testing.T) {
	r := newRig(t)
	file := t.TempDir() + "/go"
	rec := r.run("(while [ ! -e " + file + " ]; do sleep 0.02; done; echo LATE) & echo now")
	if rec.text() != "now\n" || !rec.exit.Survivors {
		t.Fatalf("%q %+v", rec.text(), rec.exit)
	}
	if other := r.run("echo two"); other.text() != "two\n" {
		t.Errorf("the next command: %q", other.text())
	}
	r.run("touch " + file)
	rec.waitDrained(t)
	if rec.text() != "now\nLATE\n" || rec.atExit != 4 {
		t.Errorf("%q, %d bytes at its end", rec.text(), rec.atExit)
	}
}
