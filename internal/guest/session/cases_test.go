package session

import "time"

// A step is one command with what must come of it. Out is exact, or a regular
// expression after "~"; Code -1: anyCode, or unknown; Why "": exit.
type step struct {
	cmd, out string
	code     int
	why      string // "a|b" allows either
	limit    time.Duration
	stdin    string
}

// /tmp/sl. stands for a directory of the test.
type tcase struct {
	name  string
	steps []step
}

const anyCode = -2

func ok(cmd, out string) step          { return step{cmd: cmd, out: out} }
func rc(cmd, out string, c int) step   { return step{cmd: cmd, out: out, code: c} }
func ends(cmd, out string, c int) step { return step{cmd: cmd, out: out, code: c, why: "shell_ended"} }
func over(cmd, out string) step {
	return step{cmd: cmd, out: out, code: anyCode, why: "timeout", limit: 300 * time.Millisecond}
}
func nobody(arg string) step {
	return step{cmd: "grep -lsz '^" + arg[:4] + "[" + arg[4:] + "]$' /proc/[0-9]*/cmdline", code: anyCode}
}
func may(cmd, out string, c int, w string) step { return step{cmd: cmd, out: out, code: c, why: w} }

var alive = ok("/bin/echo alive", "alive\n")

var cases = []tcase{
	// plain
	{"echo", []step{ok("echo hi", "hi\n")}},
	{"no newline", []step{ok("printf x", "x"), ok("printf 'a\\nb'", "a\nb"), ok("true", "")}},
	{"binary output", []step{ok(`printf '\x00\xff\xfe\x80'`, "\x00\xff\xfe\x80"), ok("head -c 5 /dev/zero", "\x00\x00\x00\x00\x00")}},
	{"status", []step{rc("false", "", 1), ok("echo $?", "1\n"), rc("(exit 137)", "", 137), ok("echo $?", "137\n"), ok("echo $?", "0\n")}},
	{"state", []step{ok("cd /usr; v=1; export e=2; f() { echo f$1; }; alias ll='echo al'; shopt -s nullglob", ""), ok("pwd; echo $v; bash -c 'echo $e'; f 3; ll; echo /nope*", "/usr\n1\n2\nf3\nal\n\n")}},
	{"order of both streams", []step{ok("echo a; echo b >&2; echo c; /bin/echo d >&2; /bin/echo e", "a\nb\nc\nd\ne\n")}},
	{"error text", []step{rc("cd nope", "bash: cd: nope: No such file or directory\n", 1), rc("nosuchcmd", "bash: nosuchcmd: command not found\n", 127)}},
	{"pipefail", []step{rc("false | true", "", 1), rc("yes | head -1", "y\n", 141)}},
	{"lines", []step{rc("echo a\nfalse", "a\n", 1), ok("for i in 1 2\ndo\n echo $i\ndone", "1\n2\n"), ok("if true; then\n\techo t\nfi\n\n\n", "t\n")}},
	{"heredocs", []step{ok("cat <<'EOF'\nhello $x\nEOF", "hello $x\n"), ok("cat <<-EOF\n\tx\n\tEOF", "x\n"), ok("cat <<A; cat <<B\n1\nA\n2\nB\n", "1\n2\n")}},
	{"tabs and control bytes", []step{ok("echo 'a\tb\x01\x1b[0m\x03'", "a\tb\x01\x1b[0m\x03\n")}},
	{"history expansion", []step{ok(`echo "wow!!"; echo a!b`, "wow!!\na!b\n"), ok("set -H; set -o history", "~"), ok(`echo "x!y"`, "x!y\n")}},
	{"CRLF", []step{ok("echo a\r", "a\r\n")}},
	{"bad UTF-8", []step{ok("echo \xff\xfe", "\xff\xfe\n")}},
	{"NUL refused", []step{may("echo a\x00b", "", anyCode, "not_run"), alive}},
	{"leading dash", []step{rc("-x", "~command not found", 127), rc("--version", "~command not found", 127)}},
	{"comment and blank", []step{ok("# c", ""), ok("  ", ""), ok("", ""), rc("false", "", 1), rc("# c", "", 1), ok("echo $?", "1\n")}},
	{"legal syntax", []step{ok("diff <(echo a) <(echo a)", ""), ok("case x in (x) echo y;; esac", "y\n"), ok("a=(1 2); echo ${a[1]}", "2\n"), ok("shopt -s extglob", ""), ok("echo /et@(c|x)", "/etc\n")}},
	{"1 MiB command", []step{ok("v='"+big+"'; echo ${#v}", "1048576\n"), alive}},
	{"5 MB output", []step{{cmd: "head -c 5000000 /dev/zero | tr '\\0' x; echo; false", out: "~^x{1000}", code: 1}, alive}},
	{"stdin is empty", []step{ok("cat", ""), rc("read x", "", 1), rc("perl -e 'defined(<STDIN>) or exit 3'", "", 3), ok("cat /dev/stdin; bash", ""), alive}},
	{"stdin given", []step{{cmd: "cat", stdin: "a\nb", out: "a\nb"}, {cmd: "while read l; do echo \"<$l>\"; done", stdin: "a\nb\n", out: "<a>\n<b>\n"}, rc("read x", "", 1)}},
	{"streams by name", []step{ok("echo x >/dev/stderr; echo y >/dev/stdout; echo z | tee /dev/stderr", "x\ny\nz\nz\n")}},
	{"limit: no crash message", []step{rc("bash -c 'kill -SEGV $$'", "", 139), alive}},
	{"limit: kill 0 in a script ends older jobs", []step{ok("sleep 3 & j=$!", ""), may("bash -c 'trap \"kill 0\" EXIT; true'", "~", anyCode, ""), rc("wait $j", "", 143), alive}},
	{"no terminal", []step{rc("tty", "not a tty\n", 1), rc(": </dev/tty", "~No such device", 1)}},
	// broken text
	{"unbalanced single quote", []step{may("echo 'a", "~EOF", anyCode, ""), alive}},
	{"unbalanced double quote", []step{may("echo \"a", "~EOF", anyCode, ""), alive}},
	{"open heredoc", []step{ok("cat <<EOF\nx", "~x\n$"), alive}},
	{"open heredoc, quoted", []step{ok("cat <<'EOF'\nno $x", "~no \\$x\n$"), alive}},
	{"open paren", []step{may("( echo a", "~syntax error", anyCode, ""), alive}},
	{"open if", []step{may("if true", "~syntax error", anyCode, ""), alive}},
	{"open substitution", []step{may("echo $(echo a", "~EOF|syntax error", anyCode, ""), alive}},
	{"open substitution, many times", []step{may("echo $(echo a", "~EOF", anyCode, ""), ok("echo \"a b\" 'c d' \"$(echo \"x\")\"", "a b c d x\n"), rc("echo \"$(echo '", "~EOF", 2), rc("cat <(echo a", "~EOF", 2), rc("x=`echo a", "~EOF", 2), ok("for i in 1 2 3; do echo \"$i\"; done", "1\n2\n3\n"), rc("echo ${x", "~EOF", 2), ok("echo \"$(echo \"$(echo 'deep')\")\"", "deep\n"), ok("echo $?", "0\n"), alive}},
	{"open brace", []step{may("{ echo a", "~syntax error", anyCode, ""), alive}},
	{"open pipe", []step{may("echo a |", "~syntax error", anyCode, ""), alive}},
	{"open and", []step{may("true &&", "~syntax error", anyCode, ""), alive}},
	{"open arithmetic", []step{may("echo $((1", "~", anyCode, ""), alive}},
	{"trailing backslash", []step{ok("echo a \\", "a\n"), alive}},
	{"stray closers", []step{rc("}", "~syntax error", 2), rc(")", "~syntax error", 2), rc(";;", "~syntax error", 2), rc("fi", "~syntax error", 2), rc("done", "~syntax error", 2), alive}},
	{"break out of a wrapper", []step{rc("} >/dev/null; echo hi; {", "~syntax error", 2), rc("' ; echo pwn; '", "~command not found", 127), alive}},
	{"syntax error late", []step{may("echo one\nfi", "~^one\n.*syntax error|^[^o]*syntax error", anyCode, ""), alive}},
	// background
	{"background returns", []step{ok("sleep 5 & echo started", "started\n"), ok("sleep 5 >/dev/null & echo s2", "s2\n"), ok("nohup sleep 5 >/dev/null 2>&1 & echo s3", "s3\n"), alive}},
	{"late output stays away", []step{ok("(sleep .15; echo LATE; echo L2 >&2) &", ""), ok("sleep .3; echo two", "two\n"), alive}},
	{"no job notices", []step{ok("sleep .05 &", ""), ok("sleep .15", ""), ok("sleep .05 & wait; sleep .01; echo x", "x\n"), ok("kill %1; sleep .01", "~")}},
	{"status of a job, later", []step{ok("(exit 3) & p=$!", ""), ok("sleep .05", ""), ok("wait $p; echo $?", "3\n")}},
	{"job table", []step{ok("sleep 3 &", ""), ok("jobs | grep -c sleep; kill %1; wait %1; echo $?", "1\n143\n")}},
	{"wait and orphans", []step{ok("(setsid sleep .4 >/dev/null 2>&1 &); wait; echo done", "done\n"), ok("sleep .5; for f in /proc/[0-9]*/stat; do read -r l <$f && [[ $l == *\") Z $$ \"* ]] && echo $l; done 2>/dev/null; true", "")}},
	{"coproc", []step{ok("coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} l; echo $l; kill $COPROC_PID", "hi\n"), alive}},
	{"process substitution", []step{ok("cat <(echo a); echo hi > >(cat)", "~^a\nhi\n$"), alive}},
	{"stopped child", []step{over("bash -c 'kill -STOP $$'", ""), alive}},
	// the shell ends
	{"exit", []step{ends("echo hi; exit 7; echo bye", "hi\n", 7)}},
	{"exit in function", []step{ends("f() { exit 4; }; f; echo no", "", 4)}},
	{"exit in sourced file", []step{ok("echo 'exit 5' >/tmp/sl.src", ""), ends("source /tmp/sl.src; echo no", "", 5)}},
	{"exit of subshells", []step{rc("(exit 3)", "", 3), rc("bash -c 'exit 3'", "", 3), rc("x=$(exit 4)", "", 4), rc("exit 5 | cat", "", 5), alive}},
	{"exit trap", []step{ok("trap 'echo bye' EXIT", ""), ends("exit 3", "bye\n", 3)}},
	{"kill -9 self", []step{ends("echo a; kill -9 $$; echo b", "a\n", 137)}},
	{"signals to self", []step{may("kill -INT $$; echo no", "~^(no\n)?$", anyCode, ""), alive, may("kill -TERM $$; echo t", "~", anyCode, "exit|shell_ended")}},
	{"kill -HUP self", []step{ends("kill -HUP $$", "", 129)}},
	{"exec program", []step{ends("exec sleep .1", "", 0)}},
	{"exec bash -c", []step{ends("exec bash -c 'echo in; exit 9'", "in\n", 9)}},
	{"exec bash", []step{ends("exec bash", "", 0)}},
	{"exec nothing", []step{may("exec nosuch", "~not found", 127, "exit|shell_ended")}},
	{"set -e", []step{ok("set -e", ""), ok("false || true", ""), ok("if false; then :; fi", ""), ends("false; echo no", "", 1)}},
	{"set -e, status kept", []step{ok("set -e", ""), rc("! true", "", 1), ok("echo $?", "1\n"), rc("[ -e /nope ] && echo y", "", 1), ok("echo a \\", "a\n"), may("cat <<E\nx", "~x\n$", 0, ""), rc("! (exit 2)", "", 0), rc("(exit 2) && true", "", 2), alive, ends("fi", "~syntax", 2)}},
	{"set -e in the same command", []step{rc("set -e; false && true", "", 1), rc("set -u; false && true", "", 1), alive, ends("false", "", 1)}},
	{"set -e and exit trap", []step{ok("set -e; trap 'echo bye' EXIT", ""), ends("echo a; false; echo b", "a\nbye\n", 1)}},
	{"set -e and ERR trap", []step{ok("set -e; trap 'echo err' ERR", ""), ends("false", "err\n", 1)}},
	{"strict mode", []step{ok("set -euo pipefail", ""), ok("echo a", "a\n"), ends("false", "", 1)}},
	{"recursion", []step{{cmd: "f() { f; }; f", out: "~", code: anyCode, why: "shell_ended|exit|timeout|timeout_killed", limit: time.Second}}},
	{"suspend, logout", []step{may("suspend", "~cannot suspend|^$", anyCode, ""), rc("logout", "~not login shell", 1), alive}},
	// options
	{"set -u", []step{ok("set -u", ""), may("echo $nope; echo no", "~^bash: nope: unbound variable\n$", anyCode, "exit|shell_ended")}},
	{"error in expansion", []step{may("echo ${x?gone}; echo no", "~^bash: x: gone\n$", anyCode, "exit|shell_ended")}},
	{"set -x", []step{rc("set -x; false", "~^\\++ false\n$", 1), ok("echo a", "~^\\++ echo a\na\n$"), ok("set +x", "~^\\++ set \\+x\n$"), alive}},
	{"limit: set -x to a descriptor gets a line of ours", []step{ok("exec 7>/tmp/sl.x; BASH_XTRACEFD=7; set -x", ""), ok("echo a", "a\n"), ok("set +x", ""), ok("grep -c '^+ [.] /dev/shm' /tmp/sl.x", "2\n")}},
	{"set -v", []step{rc("set -v; false", "~^[^/]*$", 1), ok("echo a", "~^(echo a\n)?a\n$"), ok("set +v", "~^(set \\+v\n)?$"), alive}},
	{"set -ev", []step{ok("set -ev", ""), ok("echo a", "~^(echo a\n)?a\n$")}},
	{"trap that moves stderr", []step{{cmd: "trap 'exec 2>/dev/null' DEBUG", out: "", code: -1, why: "broken"}, {cmd: "(exit 17)", code: -1, why: "not_run"}}},
	{"set -n", []step{may("set -n", "", anyCode, ""), may("echo n", "~", anyCode, "exit|shell_ended|broken"), may("echo m", "~", anyCode, "exit|not_run|shell_ended|broken")}},
	{"set -n is harmless", []step{ok("set -n", ""), ok("echo n", "n\n")}},
	{"set -t", []step{may("set -t; echo a", "~^(a\n)?$", anyCode, "exit|shell_ended"), may("echo b", "~", anyCode, "exit|not_run|shell_ended")}},
	{"set -r", []step{ok("set -r", ""), may("echo b", "~", anyCode, "exit|not_run"), may("echo b", "~", anyCode, "exit|not_run")}},
	{"set -f -C -k -b -a -E -T -P", []step{ok("set -fCkbaETP", ""), rc("(exit 9)", "", 9), ok("echo $?", "9\n"), alive}},
	{"posix mode", []step{ok("set -o posix", ""), rc("(exit 9)", "", 9), alive, ok("set +o posix; POSIXLY_CORRECT=1", ""), alive}},
	{"extdebug and DEBUG trap that refuses", []step{may("shopt -s extdebug; trap 'false' DEBUG", "", anyCode, "exit|broken"), may("echo x", "~", anyCode, "exit|broken|not_run|timeout|timeout_killed")}},
	// names
	{"functions over builtins", []step{ok("echo() { :; }; printf() { :; }; read() { :; }; eval() { :; }; builtin() { :; }; command() { :; }; trap() { :; }; test() { :; }; true() { false; }; exec() { :; }; set() { :; }; source() { :; }; return() { :; }; unset() { :; }", ""), rc("(exit 17)", "", 17), alive, rc("(exit 3)", "", 3)}},
	{"function over eval", []step{ok("eval() { :; }", ""), rc("(exit 17)", "", 17), alive}},
	{"function over printf", []step{ok("printf() { :; }", ""), rc("(exit 17)", "", 17), alive}},
	{"function over read", []step{ok("read() { :; }", ""), rc("(exit 17)", "", 17), alive}},
	{"function over dot", []step{ok(".() { :; }", ""), may("(exit 17)", "", anyCode, "not_run")}},
	{"enable -n", []step{ok("enable -n eval printf read echo builtin command test trap set", ""), rc("(exit 17)", "", 17), alive}},
	{"enable -n dot", []step{ok("enable -n .", ""), may("(exit 17)", "~", anyCode, "not_run")}},
	{"aliases", []step{ok("alias .=false [[=false eval=false printf=false echo=false exec=false cd=false if=false", "~"), rc("(exit 17)", "", 17), alive}},
	{"readonly variables", []step{may("readonly REPLY IFS PS1 PS2 PS4 PROMPT_COMMAND n t o c i cmd s status rc", "~", anyCode, ""), rc("(exit 17)", "", 17), alive}},
	{"IFS", []step{ok("IFS=0123456789/", ""), rc("(exit 17)", "", 17), alive}},
	{"PATH, env", []step{ok("PATH=/nowhere; unset HOME PWD BASH_ENV", ""), rc("(exit 17)", "", 17), alive}},
	{"prompt variables", []step{ok("PS1='x> '; PROMPT_COMMAND='echo hi'; PS4='+ '; PS0='zero'", ""), ok("echo a", "a\n"), rc("(exit 17)", "", 17), alive}},
	{"prompt variables that run programs", []step{ok("PS1='$(echo p >&2; cat /proc/uptime)'; PROMPT_COMMAND='cat </dev/null; date'", ""), ok("echo a", "a\n"), rc("(exit 17)", "", 17)}},
	{"unset everything", []step{ok("unset -f $(compgen -A function) ; unset PS1 PS2 IFS PROMPT_COMMAND N", "~"), rc("(exit 17)", "", 17), alive}},
	// traps
	{"DEBUG trap", []step{ok("trap 'echo dbg' DEBUG", "~^(dbg\n)*$"), ok("echo a", "~^(dbg\n)*a\n(dbg\n)*$"), rc("(exit 17)", "~^(dbg\n)*$", 17)}},
	{"ERR trap", []step{rc("trap 'echo err' ERR; false", "err\n", 1), ok("true", ""), ok("echo $?", "0\n"), rc("(exit 4)", "err\n", 4), ok("echo x", "x\n")}},
	{"limit: a RETURN trap fires after each command", []step{ok("trap 'echo ret' RETURN", "ret\n"), ok("echo a", "a\nret\n"), rc("(exit 17)", "ret\n", 17), ok("trap - RETURN", ""), alive}},
	{"CHLD trap", []step{ok("trap 'echo chld' CHLD", ""), ok("/bin/true; echo x", "~x\n"), alive2, alive2}},
	{"EXIT trap kept", []step{ok("trap 'echo bye' EXIT", ""), alive, ok("trap - EXIT", ""), alive}},
	{"USR1 trap", []step{ok("trap 'echo usr' USR1; kill -USR1 $$", "usr\n"), alive}},
	// control flow at the top
	{"return", []step{may("return 3", "~^(bash: return: can only `return' from a function or sourced script\n)?$", anyCode, ""), alive}},
	{"return ends what follows", []step{may("return 3; echo x", "~", anyCode, "")}},
	{"break, continue", []step{may("break; echo b", "~b\n$", 0, ""), may("continue; echo c", "~c\n$", 0, ""), alive}},
	{"local", []step{rc("local x", "~can only be used in a function", 1), alive}},
	// descriptors
	{"exec >file", []step{ok("exec >/tmp/sl.o; echo hid", ""), ok("echo vis; cat /tmp/sl.o", "vis\nhid\n")}},
	{"exec 2>/dev/null", []step{ok("exec 2>/dev/null; echo e >&2", ""), rc("cd nope", "~No such file", 1), alive}},
	{"exec closes 0 1 2", []step{ok("exec >&- 2>&- <&-", ""), alive, ok("cat; echo e >&2", "e\n")}},
	{"exec <file", []step{ok("exec </etc/passwd", ""), rc("read x", "", 1), alive}},
	{"exec 3> persists", []step{ok("exec 3>/tmp/sl.3", ""), ok("echo x >&3; cat /tmp/sl.3", "x\n"), ok("exec 3>&-", ""), rc("echo x >&3", "~Bad file descriptor", 1)}},
	{"exec 8> 9>", []step{ok("exec 8>/tmp/sl.8 9>/tmp/sl.9", ""), ok("echo x >&8; echo y >&9; cat /tmp/sl.8 /tmp/sl.9", "x\ny\n"), alive}},
	{"limit: exec 10> 11> 12> does not outlive the command", []step{ok("exec 10>/tmp/sl.10 11>/tmp/sl.11 12>/tmp/sl.12", ""), ok("echo z >&12; cat /tmp/sl.12", ""), alive}},
	{"exec {v}>", []step{ok("exec {v}>/tmp/sl.v; echo x >&$v", ""), ok("echo y >&$v; cat /tmp/sl.v", "x\ny\n"), alive}},
	{"exec 200> 254>", []step{ok("exec 200>/tmp/sl.200 254>/tmp/sl.254; flock -n 200; echo x >&254; cat /tmp/sl.254", "x\n"), ok("echo y >&200; cat /tmp/sl.200", "y\n"), alive}},
	{"flock idiom", []step{ok("( flock -n 9 || exit 1; echo in ) 9>/tmp/sl.lock", "in\n"), ok("( flock -n 200; echo in ) 200>/tmp/sl.lock; { echo a >&10; } 10>/tmp/sl.a; cat /tmp/sl.a", "in\na\n"), alive}},
	{"children get 0 1 2 only", []step{ok("ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 "), ok("perl -e 'opendir D, \"/proc/self/fd\"; print join \" \", sort grep /^[0-9]+$/, readdir D'", "0 1 2 3")}},
	{"close 8 9 200 255", []step{ok("exec 8>&- 9>&- 200>&- 255>&-", "~"), alive, rc("(exit 17)", "", 17)}},
	{"close 3 to 255", []step{may("for i in {3..255}; do eval \"exec $i>&-\"; done; echo closed", "~^closed\n", anyCode, "exit|shell_ended"), may("echo b", "~", anyCode, "exit|not_run|shell_ended")}},
	{"write to all descriptors", []step{rc("for f in /proc/$$/fd/*; do n=${f##*/}; [ $n -gt 2 ] && echo 'junk 0xNONCE,0/0,: 0xPROMPT,0/0,:' >&$n; done 2>/dev/null; (exit 6)", "~^(junk[^\n]*\n)*$", 6), alive}},
	{"read from all descriptors", []step{rc("for n in {3..255}; do read -t .01 -u $n x; done 2>/dev/null; (exit 6)", "", 6), alive}},
	{"write into the parent's descriptors", []step{rc("for f in /proc/$$/fd/*; do (echo 'exit 0' >$f) 2>/dev/null; done; (exit 6)", "~", 6), alive}},
	{"print the known markers", []step{rc("echo 0xNONCE,0/0,:; echo 0xPROMPT,0/0,:; (exit 6)", "0xNONCE,0/0,:\n0xPROMPT,0/0,:\n", 6), alive}},
	{"/dev/full", []step{rc("exec >/dev/full; echo x", "~write error|^$", 1), alive}},
	{"ulimit -n 3", []step{ok("ulimit -n 3", ""), may("echo x", "~", anyCode, "not_run|exit"), may("echo x", "~", anyCode, "not_run|exit")}},
	{"ulimit -n 20", []step{ok("ulimit -n 20", ""), alive, rc("(exit 17)", "", 17)}},
	{"ulimit -f 0", []step{ok("ulimit -f 0", ""), alive, rc("(exit 17)", "", 17)}},
	{"cwd is gone", []step{ok("mkdir -p /tmp/sl.d && cd /tmp/sl.d && rm -rf /tmp/sl.d", ""), ok("echo hi", "hi\n"), ok("cd / && pwd", "/\n")}},
	{"umask, job control on", []step{ok("umask 777; set -m", ""), ok("sleep .01; /bin/echo m", "m\n"), over("sleep 50", ""), alive}},
	{"no harness in history", []step{ok("history; fc -l 2>/dev/null; true", "~^[^/]*$"), ok("set -o history", ""), ok("echo a", "a\n"), ok("history", "~^[^/]*$")}},
	{"no harness names", []step{rc("declare -p | grep -v -e BASH_SOURCE -e BASH_ARGV -e ' _=' | grep -c -e /dev/shm/sos -e NONCE", "0\n", 1), {cmd: "trap; alias; declare -f", out: "", code: 0}}},
	{"limit: BASH_SOURCE is ours", []step{ok("echo \"[${BASH_SOURCE[0]}] [${FUNCNAME[0]}]\"", "~^\\[/dev/shm/sos-session-.*/cmd\\] \\[\\]\n$")}},
	{"limit: PIPESTATUS of the last command is lost", []step{rc("false | true", "", 1), ok("echo ${PIPESTATUS[@]}", "~^[01]\n$"), ok("false | true; echo ${PIPESTATUS[@]}", "1 0\n")}},
	// time limits
	{"timeout", []step{ok("v=1; cd /usr", ""), over("echo first; sleep 50; echo no", "first\n"), ok("echo $v; pwd", "1\n/usr\n")}},
	{"timeout: loop of a builtin", []step{over("while :; do :; done", ""), alive}},
	{"timeout: loop of a program", []step{over("while :; do sleep .05; done", ""), alive, over("until /bin/false; do sleep .1; done", ""), alive}},
	{"timeout: pipeline", []step{over("sleep 50 | cat | cat", ""), alive}},
	{"timeout: INT ignored by the child", []step{over("(trap '' INT TERM; while :; do sleep .2; done)", ""), alive}},
	{"timeout: loop of such children", []step{over("while :; do (trap '' INT; sleep 50); done", ""), alive}},
	{"timeout: INT handled by the child", []step{{cmd: "perl -e '$SIG{INT} = sub {}; sleep 5 while 1'", out: "", code: anyCode, why: "timeout", limit: 500 * time.Millisecond}, alive}},
	{"timeout: INT ignored by the shell", []step{{cmd: "trap '' INT; while :; do :; done", out: "", code: anyCode, why: "timeout_killed", limit: 300 * time.Millisecond}}},
	{"timeout: INT trapped by the shell", []step{{cmd: "trap 'echo int' INT; while :; do :; done", out: "~", code: anyCode, why: "timeout_killed|timeout", limit: 300 * time.Millisecond}}},
	{"timeout: setsid and wait", []step{over("setsid sleep 88801 & wait", ""), nobody("88801")}},
	{"timeout: daemon", []step{over("(setsid sleep 88701 >/dev/null 2>&1 </dev/null &); sleep 50", ""), nobody("88701")}},
	{"timeout: blocking open, read, wait", []step{ok("rm -f /tmp/sl.f; mkfifo /tmp/sl.f", ""), over("exec 7</tmp/sl.f", "~"), alive, over("read x </tmp/sl.f", "~"), alive, over("sleep 50 & wait", ""), alive}},
	{"timeout: stopped shell", []step{over("kill -STOP $$; echo s", "~"), alive}},
	{"timeout spares older jobs", []step{ok("sleep 50 & j=$!", ""), over("sleep 60", ""), ok("kill -0 $j && echo yes; kill $j", "yes\n")}},
	{"timeout in a function, in a loop", []step{over("f() { local v=2; while :; do sleep 1; done; }; v=1; for i in 1 2; do f; done", ""), ok("echo $v", "1\n"), alive}},
	{"timeout in eval, source, trap", []step{ok("echo 'sleep 50' >/tmp/sl.src", ""), over(". /tmp/sl.src", ""), alive, over("eval 'eval \"sleep 50\"'", ""), alive, over("x=$(sleep 50); echo no", ""), alive}},
	{"timeout: output flood", []step{over("yes", "~^(y\n){100}"), alive}},
	{"timeout twice, status after", []step{over("sleep 50", ""), over("sleep 50", ""), rc("(exit 17)", "", 17), ok("echo $?", "17\n")}},
}

var alive2 = step{cmd: "/bin/echo alive", out: "~alive\n"}

var big = func() string {
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return string(b)
}()
