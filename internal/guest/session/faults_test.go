package session

import "testing"

// faults are what went wrong in other systems' sessions, by their number in our
// list of known faults.
var faults = []tcase{
	{"B010 a heredoc hangs the session", []step{
		ok("cat <<'EOF'\nhello\nEOF", "hello\n"),
		ok("cat <<'EOF'\nno terminator", "~no terminator\n$"),
		ok("cat <<-EOF > /tmp/sl.a\n\tx\n\tEOF", ""), ok("cat /tmp/sl.a", "x\n"), alive}},
	{"B011 no newline at the end", []step{
		ok("printf x", "x"), ok("printf 'a\\nb'", "a\nb"), ok("head -c 5 /dev/zero", "\x00\x00\x00\x00\x00"), ok("true", "")}},
	{"B012 marker in the output or the echo", []step{
		rc("set -x; false", "++ false\n", 1), rc("set +x", "++ set +x\n", 0),
		rc("set -v; false", "", 1), ok("set +v", "set +v\n"),
		rc("fc -l; cat ~/.bash_history; false", "~", 1),
		rc("echo 'bash: ((: 0x0123456789abcde,0/0,hiBs: division by 0'; false", "bash: ((: 0x0123456789abcde,0/0,hiBs: division by 0\n", 1),
		rc("cat /proc/$$/cmdline | tr '\\0' ' '; false", "bash --norc --noediting +o history -i ", 1)}},
	{"B013 strict mode", []step{
		ok("set -euo pipefail", ""), ends("false", "", 1)}},
	{"B013 strict mode, unset variable", []step{
		ok("set -euo pipefail", ""), may("echo $UNSET", "bash: UNSET: unbound variable\n", anyCode, "exit|shell_ended")}},
	{"B013 strict mode takes effect", []step{ends("set -e; false; echo no", "", 1)}},
	{"B014 exit", []step{ends("exit 7", "", 7), {cmd: "echo alive; pwd", code: -1, why: "not_run"}}},
	{"B014 kill", []step{ends("kill -9 $$", "", 137), {cmd: "echo alive", code: -1, why: "not_run"}}},
	{"B014 exit of a sourced file", []step{ok("echo 'exit 3' >/tmp/sl.x", ""), ends("source /tmp/sl.x", "", 3)}},
	{"B017 prompts and traps", []step{
		ok(`PS1="x> "; PROMPT_COMMAND="echo hi"; PS4="+ "; trap "echo dbg" DEBUG`, ""),
		ok("echo a", "~^(dbg\n)?a\n$"), ok("trap : DEBUG", "~"), ok("echo a", "a\n")}},
	{"B018 legal commands", []step{
		ok("diff <(echo a) <(echo a)", ""), rc("diff <(echo a) <(echo b)", "1c1\n< a\n---\n> b\n", 1),
		ok("case x in (x) echo y;; esac", "y\n"), ok("a=(1 2); echo ${a[1]}", "2\n"),
		rc("if then", "~syntax error near unexpected token `then'", 2), alive}},
	{"B020 working directory removed", []step{
		ok("mkdir /tmp/sl.d && cd /tmp/sl.d && rm -rf /tmp/sl.d", ""), ok("echo hi", "hi\n"), ok("cd / && pwd", "/\n")}},
	{"B021 harmful options", []step{
		ok("set -n", ""), ok("alias echo=false; set -o posix; shopt -s expand_aliases", ""), ok("printf ok", "ok")}},
	{"B021 set -t ends the shell and says so", []step{
		may("set -t; echo a", "~^(a\n)?$", anyCode, "exit|shell_ended"), may("printf ok", "~", anyCode, "not_run|shell_ended")}},
	{"B022 overrides", []step{
		ok(`shopt -s expand_aliases; alias cd=false; echo(){ :; }; printf(){ :; }; trap "" EXIT; unset -f command; PATH=/nowhere`, ""),
		ok("/bin/ls / >/dev/null; builtin echo ok", "ok\n")}},
	{"B024 a stuck command", []step{
		ok("v=kept; cd /usr", ""), over("sleep 1000", ""), ok("echo $v $PWD alive", "kept /usr alive\n")}},
	{"B024 a stuck shell", []step{
		{cmd: "trap '' INT TERM; while :; do :; done", code: -1, why: "timeout_killed", limit: limit / 60},
		{cmd: "echo alive", code: -1, why: "not_run"}}},
	{"B028 nothing is left of a command that ran out of time", []step{
		over(`(trap "" TERM INT; while :; do :; done) & setsid sleep 88802 & wait`, ""), nobody("88802"), alive}},
	{"B053 text that is not ASCII", []step{ok("echo é; printf '\\u00e9\\n'", "é\né\n"), ok("x=naïve; echo ${#x}", "5\n")}},
	{"B054 a long argument", []step{ok("echo "+big[:300000]+" | wc -c", "300001\n")}},
}

func TestFaults(t *testing.T) {
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table(t, c.steps)
		})
	}
}
