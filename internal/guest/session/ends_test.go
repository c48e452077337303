package session

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// TestSurvivorsOfTheShell: the end of the shell does not wait for them, and they
// go on writing into the record of the command.
func TestSurvivorsOfTheShell(t *testing.T) {
	t.Parallel()
	s := open(t)
	var out record
	r := s.Run(guest.SessionCommand{Text: "(sleep .3; echo late) & echo now; exit 3", Timeout: limit}, &out, func() {})
	if e := r.Exit; e.ExitCode == nil || *e.ExitCode != 3 || !e.ShellEnded || !e.Survivors || r.Rest < 0 || out.String() != "now\n" {
		t.Fatalf("%s %q", show(e), out.String())
	}
	defer closeAll(r.Rest)
	var late []byte
	eventually(t, "late output", func() bool {
		var b [64]byte
		if n, _ := unix.Read(r.Rest, b[:]); n > 0 {
			late = append(late, b[:n]...)
		}
		return string(late) == "late\n"
	})
}

// TestTimeoutOfTheShellItself: where a program has taken the place of the shell,
// the limit ends the session.
func TestTimeoutOfTheShellItself(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"exec sleep 1000", "trap 'exit 5' INT; sleep 1000", "exec perl -e '$SIG{INT} = sub {}; sleep 5 while 1'", "trap '' INT; exec sleep 1000"} {
		s := open(t)
		out, e := do(t, s, "echo first; "+text, within(300*time.Millisecond))
		if e.Reason != sos.EndTimeout || !e.ShellEnded || e.ExitCode != nil || out != "first\n" {
			t.Errorf("%s: %s %q", text, show(e), out)
		}
	}
}

// TestTimeoutUnderOptions: the shell survives a limit whatever the user has set.
func TestTimeoutUnderOptions(t *testing.T) {
	for _, mode := range []string{"set -e", "set -eu -o pipefail", "set -u", "set -x", "set -v", "set -o posix", "set -T -E; trap ': x' DEBUG ERR", "trap 'x=1' INT",
		"set -m", "shopt -s lastpipe", "shopt -s extdebug", "PROMPT_COMMAND='echo hi; sleep .01'"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			do(t, s, mode)
			for _, text := range []string{"v=1; sleep 1000", "sleep 1000 | cat", "f() { sleep 1000; }; f", "x=$(sleep 1000)"} {
				if _, e := do(t, s, text, within(200*time.Millisecond)); e.Reason != sos.EndTimeout || e.ShellEnded {
					t.Fatalf("%s: %s", text, show(e))
				}
				if out, e := do(t, s, "echo $? $v"); e.ShellEnded || !strings.Contains(out, "130 1\n") {
					t.Fatalf("after %s: %s %q", text, show(e), out)
				}
			}
		})
	}
}

// TestEveryVariable gives each variable that bash knows a value for one command:
// refused or not, the session goes on as it was.
func TestEveryVariable(t *testing.T) {
	t.Parallel()
	s := open(t)
	names, _ := do(t, s, "compgen -v")
	before, _ := do(t, s, "set +o; shopt; echo $PATH $HOME $PWD")
	for _, n := range append(strings.Fields(names), "POSIXLY_CORRECT", "BASH_ENV", "ENV", "TMOUT", "HISTFILE", "PROMPT_COMMAND", "PS0", "PS4", "LC_ALL", "LC_MESSAGES", "LANG",
		"BASH_COMPAT", "GLOBIGNORE", "IGNOREEOF", "BASH_XTRACEFD", "EXECIGNORE", "FUNCNEST", "INPUTRC", "TIMEFORMAT", "MAILCHECK", "CHILD_MAX", "COLUMNS", "BASH_ARGV0", "BASH_LOADABLES_PATH", "_") {
		for _, v := range []string{"", "1", "x y"} {
			_, e := do(t, s, "(exit 5)", env(n, v))
			if e.ShellEnded || e.Reason == sos.EndExit && *e.ExitCode != 5 || e.Reason != sos.EndExit && e.Reason != sos.EndNotRun {
				t.Fatalf("%s=%q: %s", n, v, show(e))
			}
			want(t, s, "echo alive", "alive\n", 0)
		}
	}
	if after, _ := do(t, s, "set +o; shopt; echo $PATH $HOME $PWD"); after != before {
		t.Errorf("from %q to %q", before, after)
	}
}

// TestLargeEnv: control lines are read in small pieces; a lot of variables still
// takes no noticeable time.
func TestLargeEnv(t *testing.T) {
	t.Parallel()
	s := open(t)
	e := map[string]string{}
	for _, c := range "ABCDEFG" {
		e[string(c)] = strings.Repeat("\xff", 120<<10)
	}
	want(t, s, `echo ${#A} $((${#A} + ${#G}))`, "122880 245760\n", 0, func(c *guest.SessionCommand) { c.Env = e })
	want(t, s, "/bin/echo ${A-none}", "none\n", 0)
}

// TestBigText is as large as the protocol lets it be, on a directory that has
// the place.
func TestBigText(t *testing.T) {
	t.Parallel()
	s := open(t)
	want(t, s, "cat >/dev/null <<'E'\n"+strings.Repeat("x\n", guest.MaxText/2-32)+"E\necho done", "done\n", 0)
	_, e := do(t, s, strings.Repeat("x", guest.MaxText+1))
	if e.Reason != sos.EndNotRun || e.Message == "" {
		t.Error(show(e))
	}
}
