package conformance

import (
	"strings"
	"testing"
)

// step is a command of a session and what must come back.
type step struct {
	command string
	output  string
	code    int
	exited  bool
	like    string // a pattern for output, in its place
	status  int    // of an error, with output as its text
}

func rc(command, output string, code int) step {
	return step{command: command, output: output, code: code}
}
func ok(command, output string) step { return rc(command, output, 0) }
func ends(command, output string, code int) step {
	return step{command: command, output: output, code: code, exited: true}
}
func like(command, pattern string, code int) step {
	return step{command: command, like: pattern, code: code}
}
func refused(command string, status int, text string) step {
	return step{command: command, output: text, status: status}
}

// gone is what follows the end of the shell.
var gone = refused("echo a", 400, "Sandbox session already exited")

// sessions has a row for each behaviour of the first system's sessions: kept
// where it is a promise, put right where it was a defect.
var sessions = []struct {
	name  string
	steps []step
}{
	{"state", []step{
		ok("cd /tmp; X=1; export Y=2; f() { echo f$X; }; alias zz='echo zed'; set -u; shopt -s nullglob", ""),
		ok("pwd; f; echo $Y; sh -c 'echo $Y'", "/tmp\nf1\n2\n2"), ok("zz", "zed"), rc("false", "", 1), ok("echo $?", "1"),
		ok("shopt nullglob; [[ $- == *u* ]] && echo u", "nullglob       \ton\nu")}},
	{"jobs persist", []step{ok("sleep 300 & true", ""), ok("jobs -r | wc -l", "1"), ok("kill %1; wait %1; jobs -r | wc -l", "0")}},
	{"streams in order", []step{ok("echo out; echo err >&2; echo out2", "out\nerr\nout2"), rc("cd not-exists", "bash: cd: not-exists: No such file or directory", 1)}},
	{"newlines", []step{ok("printf '  a  \\n\\n\\n'", "  a"), ok("printf '\\n\\nb'", "\n\nb"), ok("echo -n abc", "abc"), ok("printf 'a\\r\\nb\\r\\n'", "a\nb")}},
	{"colours", []step{ok("printf '\\033[31mred\\033[0m\\n'", "red"), ok("printf '\\033]0;title\\007x\\n'", "x"), ok("printf 'a\\bb\\n'", "ab"), ok("printf 'a\\0b\\007c\\n'", "abc")}},
	{"UTF-8", []step{ok("printf 'h\\303\\251llo \\342\\234\\223\\n'", "héllo ✓"), ok("printf '\\377\\376\\n'", "\ufffd\ufffd"), ok("echo 'é✓'", "é✓")}},
	{"lines", []step{rc("echo a\nfalse", "a", 1), ok("false\necho a", "a"), ok("true\n\n", "")}},
	{"constructs", []step{ok("for i in 1 2\ndo\n  echo $i\ndone", "1\n2"), ok("if true\nthen echo yes\nfi", "yes"), ok("echo 'a\nb'", "a\nb"), ok("case x in\nx) echo x;;\nesac", "x")}},
	{"heredocs", []step{ok("cat <<E\na\n  b\nE", "a\n  b"), ok("cat <<'E'\nx\ty\nE", "x\ty"), ok("cat <<-E\n\tx\n\tE", "x"),
		ok("cat <<'E' | wc -c\n"+strings.Repeat(strings.Repeat("0123456789", 10)+"\n", 1040)+"E", "105040")}},
	{"blank", []step{ok("", ""), ok("   ", ""), rc("false", "", 1), rc("", "", 1), rc("# c", "", 1), ok("true", ""), rc("false # note", "", 1)}},
	{"codes", []step{rc("sh -c 'exit 3'", "", 3), rc("sh -c 'kill -9 $$'", "", 137), rc("no-such-cmd-xyz", "bash: no-such-cmd-xyz: command not found", 127),
		rc("/etc/passwd", "bash: /etc/passwd: Permission denied", 126), rc("! true", "", 1), rc("return 5", "", 5), ok("false &", "")}},
	{"pipefail", []step{rc("false | true", "", 1), rc("yes | head -1", "y", 141), ok("set +o pipefail; false | true", "")}},
	{"background", []step{ok("sleep 0.2 & echo started", "started"), ok("sleep 0.5", ""), ok("(sleep 0.3; echo late) & true", ""), ok("sleep 1; echo x", "x")}},
	{"exit", []step{ends("echo hi; exit 7; echo bye", "hi", 7), gone}},
	{"exit 3", []step{ends("exit 3", "", 3), gone}},
	{"exit in a function", []step{ok("f() { exit 6; }", ""), ends("f; echo past", "", 6), gone}},
	{"exit in a sourced file", []step{ok("echo 'echo in; exit 4; echo past' > /tmp/s", ""), ends(". /tmp/s", "in", 4), gone}},
	{"exit to /dev/null", []step{ends("exit >/dev/null", "", 0), gone}},
	{"exit elsewhere", []step{rc("(exit 3)", "", 3), ok("x=$(exit 4); echo $?", "4"), ok("bash -c 'exit 3'; echo $?", "3"), rc("true | exit 5", "", 5), ok("sh -c 'exit 3'; echo on", "on"),
		ok("printf '#!/bin/bash\\necho in\\nexit 4\\necho past\\n' > /tmp/s; chmod +x /tmp/s; /tmp/s; echo rc=$?", "in\nrc=4")}},
	{"nothing of ours is shown", []step{ok("env | grep -c BASH_FUNC; declare -f | wc -l; type exit", "0\n0\nexit is a shell builtin"), like("set", "BASH_VERSION=", 0), like("printenv", "(?m)^PATH=", 0),
		like("cat /proc/self/environ | tr '\\0' '\\n'", "PATH=", 0), ok("history", ""), ok("echo on", "on")}},
	{"binary", []step{like("cat /bin/true | head -c 4000", "ELF", 0), ok("printf '\\001hello\\n'", "hello"), ok("printf '\\000hello\\n'", "hello"), ok("printf '\\002\\0\\0\\0\\0\\0\\0\\0x'", "x"), ok("echo ok", "ok")}},
	{"builtin exit", []step{ends("builtin exit 5", "", 5), gone}},
	{"command exit", []step{ends("command exit 3", "", 3), gone}},
	{"exec bash", []step{ends("exec bash", "", 0), gone}},
	{"exec a program", []step{ends("exec sh -c 'echo last; exit 9'", "last", 9), gone}},
	{"set -e", []step{ok("set -e", ""), rc("false || true; echo on", "on", 0), ends("echo before; false; echo after", "before", 1), gone}},
	{"kill -9 $$", []step{ends("echo a; kill -9 $$", "a", 137), gone}},
	{"logout", []step{rc("logout", "bash: logout: not login shell: use `exit'", 1), ok("echo a", "a")}},
	{"open quote", []step{like("echo 'abc", "^bash: .*unexpected EOF while looking for matching `''", 2), like("echo \"abc", "^bash: .*unexpected EOF while looking for matching `\"'", 2), ok("echo a", "a")}},
	{"open substitution", []step{like("echo $(echo a", "^bash: .*unexpected EOF while looking for matching `\\)'", 2), ok("echo \"a b\"", "a b")}},
	{"open list", []step{like("(echo a", "^bash: .*syntax error: unexpected end of file", 2), like("if true; then echo a", "syntax error: unexpected end of file", 2),
		like("echo a |", "syntax error: unexpected end of file", 2), like("echo a &&", "syntax error: unexpected end of file", 2), ok("echo b", "b")}},
	{"open heredoc", []step{like("cat <<E\nbody", "(?s)^(bash: .*here-document.*\n)?body$", 0), ok("echo b", "b")}},
	{"final backslash", []step{ok("echo a \\", "a"), ok("echo b", "b")}},
	{"syntax error", []step{like("fi", "^bash: .*syntax error near unexpected token `fi'", 2), like("}", "syntax error near unexpected token `}'", 2), ok("echo a", "a")}},
	{"stdin", []step{ok("cat", ""), ok("read x; echo \"rc=$? got:$x\"", "rc=1 got:"), ok("sh", ""), ok("bash", ""), ok("echo a", "a")}},
	{"pagers", []step{like("seq 500 > /tmp/n; TERM=xterm more /tmp/n", "(?s)\n1\n2\n.*500$", 0), like("echo $PAGER; git --version || true; echo a", "^cat\n", 0)}},
	{"exclamation marks", []step{ok("echo one", "one"), ok("echo \"wow!!\"", "wow!!"), ok("echo \"hello!world\"", "hello!world"), ok("echo 'a!b'", "a!b")}},
	{"control bytes in the text", []step{ok("echo 'a\tb'", "a\tb"), ok("x='a\x03b\x1b[Db'; echo ${#x}", "7"), ok("x='a\x12\x04b'; echo ${#x}", "4"), ok("echo next", "next")}},
	{"CRLF", []step{ok("printf '%s' 'a\r\nb' | od -An -c | tr -s ' '", " a \\r \\n b")}},
	{"large output", []step{ok("seq 1 20000 | tail -1; seq 1 3", "20000\n1\n2\n3"), like("head -c 20000000 /dev/zero | tr '\\0' 'x'", "^x{1000}", 0), ok("echo next", "next")}},
	{"large commands", []step{ok("echo "+strings.Repeat("x", 5000)+" | wc -c", "5001"), ok("echo '"+strings.Repeat("y", 200000)+"' | wc -c", "200001"), ok("x='"+strings.Repeat("z", 1<<20)+"'; echo ${#x}", "1048576")}},
	{"prompts", []step{ok("PS1=x PS2=y PS4=z", ""), ok("PROMPT_COMMAND='echo PC'", ""), ok("echo a", "a")}},
	{"directory removed", []step{ok("mkdir /tmp/d; cd /tmp/d; rmdir /tmp/d; echo on", "on"), ok("cd /; pwd", "/")}},
}

func TestSessions(t *testing.T) {
	a := server(t)
	for _, c := range sessions {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := a.on(t)
			id := a.started()
			for _, s := range c.steps {
				a.step(id, s)
			}
		})
	}
}

func (a *api) step(id string, s step) {
	a.t.Helper()
	r := a.send(id, s.command)
	what := short(s.command)
	switch {
	case s.status != 0:
		if r.status != s.status || r.body != s.output {
			a.t.Errorf("%s: %d %q, want %d %q", what, r.status, r.body, s.status, s.output)
		}
	case r.status != 200:
		a.t.Errorf("%s: %d %q", what, r.status, r.body)
	case s.like != "":
		matches(a.t, what, r.Output, s.like)
		if *r.ExitCode != s.code || *r.Exited != s.exited {
			a.t.Errorf("%s: code %d, exited %v, want %d, %v", what, *r.ExitCode, *r.Exited, s.code, s.exited)
		}
	case r.Output != s.output || *r.ExitCode != s.code || *r.Exited != s.exited:
		a.t.Errorf("%s: output %s, code %d, exited %v; want %s, %d, %v", what, short(r.Output), *r.ExitCode, *r.Exited, short(s.output), s.code, s.exited)
	}
}

// TestStandalone holds the rows of standalone commands.
func TestStandalone(t *testing.T) {
	a := server(t)
	id := a.started()
	for _, s := range []step{
		ok("printf 'a\\tb\\r\\033[31mc\\n'", "a\tb\r\x1b[31mc\n"), ok("printf '\\377a\\0b'", "\ufffda\x00b"), rc("echo err >&2; exit 4", "err\n", 4),
		ok("pwd", "/\n"), ok("false | true", ""), ok("", ""), ok("read x; echo rc=$? x=$x; cat; echo end", "rc=1 x=\nend\n"),
		rc("echo 'abc", "/bin/bash: -c: line 1: unexpected EOF while looking for matching `''\n", 2),
		rc("no-such-cmd-xyz", "/bin/bash: line 1: no-such-cmd-xyz: command not found\n", 127),
		rc("kill -9 $$", "", 137), ok("echo 1; echo 2 >&2; echo 3; echo 4 >&2", "1\n2\n3\n4\n"), ok("X=1; cd /tmp", ""), ok("echo $X; pwd", "\n/\n"),
		ok("exec >&- 2>&-; sleep 0.3", ""), rc("exec >&- 2>&-; exit 6", "", 6), like("tty; echo $-", "^not a tty\n", 0),
	} {
		r := a.alone(id, s.command)
		if s.like != "" {
			matches(t, s.command, r.Output, s.like)
		} else if r.Output != s.output {
			t.Errorf("%s: output %q, want %q", s.command, r.Output, s.output)
		}
		if *r.ExitCode != s.code || *r.Exited {
			t.Errorf("%s: code %d, exited %v", s.command, *r.ExitCode, *r.Exited)
		}
	}
	if n := len(a.trajectory(id)); n != 0 {
		t.Errorf("%d standalone commands are in the trajectory", n)
	}
	if r := a.row(id); r.SessionCommandCount != 0 || *r.LastStandaloneExitCode != 0 {
		t.Errorf("row %+v", r)
	}
}
