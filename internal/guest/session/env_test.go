package session

import (
	"os"
	"strings"
	"testing"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/testutil"
)

func env(kv ...string) func(*guest.SessionCommand) {
	return func(c *guest.SessionCommand) {
		c.Env = map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			c.Env[kv[i]] = kv[i+1]
		}
	}
}

func cwd(dir string) func(*guest.SessionCommand) {
	return func(c *guest.SessionCommand) { c.Cwd = dir }
}

// nasty is every byte that a variable can hold, and what quoting gets wrong.
var nasty = func() string {
	var b strings.Builder
	for c := 1; c < 256; c++ {
		b.WriteByte(byte(c))
	}
	return b.String() + "'\"`$(echo no)${x}\\\n\n'; exit 3; '\xff\xfe é \\'"
}()

// modes are states of a shell in which variables and directory have to work.
var modes = []string{"", "set -e", "set -u", "set -eu -o pipefail", "set -x; exec 7>/dev/null; BASH_XTRACEFD=7", "set -k", "set -a", "set -o posix",
	"IFS=0123456789aAbB/\\'", "alias cd=false builtin=false return=false", "cd() { :; }; readonly -f cd", "trap 'x=1' DEBUG ERR RETURN",
	"readonly PWD OLDPWD 2>/dev/null", "shopt -s cdable_vars; CDPATH=/usr", "set -f -C -T -E", "trap 'exit 9' USR1; umask 777"}

func TestEnvIsForOneCommand(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			do(t, s, mode)
			want(t, s, `printf %s "$A"; printenv B`, nasty+"two\n", 0, env("A", nasty, "B", "two"))
			want(t, s, `echo "[${A-unset}] [${B-unset}]"`, "[unset] [unset]\n", 0)
			do(t, s, "A=old; export A")
			want(t, s, `echo "$A $(printenv A)"`, "new new\n", 0, env("A", "new"))
			want(t, s, `echo "$A $(printenv A)"`, "old old\n", 0)
		})
	}
}

func TestEnvKeepsStatus(t *testing.T) {
	s := open(t)
	want(t, s, "(exit 5)", "", 5)
	want(t, s, `echo "$? $A"`, "5 x\n", 0, env("A", "x"))
	want(t, s, "(exit 6)", "", 6)
	want(t, s, "echo $?", "6\n", 0, cwd("/usr"))
	want(t, s, "(exit 7)", "", 7)
	want(t, s, "echo $? $A $PWD", "7 x /etc\n", 0, cwd("/etc"), env("A", "x"))
	want(t, s, "echo $?", "0\n", 0)
	want(t, s, "f() { return 3; }; f", "", 3, env("A", "x"))
	want(t, s, "echo $?", "3\n", 0)
}

// TestQuotesAfterBrokenText: bash 5.2 writes in front of its stack of quotes when
// a quote follows an unterminated substitution. Control lines with variables
// have quotes.
func TestQuotesAfterBrokenText(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	for range testutil.Scale(12) {
		s := open(t)
		for _, broken := range []string{"echo 'echo $(echo a' >/tmp/sos-broken; . /tmp/sos-broken; true", "echo $(echo a", "echo \"$(echo '", "x=`echo a", "eval 'echo $(echo a'; true", "eval 'echo \"$(echo \"'; (exit 4)"} {
			broken = strings.ReplaceAll(broken, "/tmp", tmp)
			do(t, s, broken)
			want(t, s, `echo "$A" '$B'`, "a 'b\" $B\n", 0, env("A", "a 'b\"", "B", nasty))
			do(t, s, broken, env("A", nasty))
			want(t, s, `echo "a" 'b' "$(echo "c")"`, "a b c\n", 0, cwd("/usr"))
			do(t, s, broken)
			want(t, s, `echo "a" 'b' "$(echo "c")"`, "a b c\n", 0)
			if t.Failed() {
				t.Fatalf("after %q", broken)
			}
		}
	}
}

func TestEnvRefused(t *testing.T) {
	s := open(t)
	for _, e := range [][2]string{{"", "x"}, {"1A", "x"}, {"A B", "x"}, {"A=B", "x"}, {"é", "x"}, {"a[0]", "x"}, {"$(id)", "x"}, {"A", "x\x00y"}, {"A", strings.Repeat("x", 1<<17)}} {
		started := false
		r := s.Run(guest.SessionCommand{Text: "echo no", Env: map[string]string{e[0]: e[1]}}, &record{}, func() { started = true })
		if r.Exit.Reason != sos.EndNotRun || r.Exit.Message == "" || r.Exit.ExitCode != nil || started {
			t.Errorf("env %.20q: %s, started %v", e[0], show(r.Exit), started)
		}
	}
	for _, e := range []string{"RO", "UID", "SHELLOPTS"} {
		do(t, s, "readonly RO=1 2>/dev/null")
		out, x := do(t, s, "echo ran", env(e, "x", "FINE", "y"))
		if x.Reason != sos.EndNotRun || out != "" || !strings.Contains(x.Message, e+": readonly variable") {
			t.Errorf("readonly %s: %s %q", e, show(x), out)
		}
	}
	want(t, s, "echo $RO alive", "1 alive\n", 0)
}

func TestCwd(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, tmp := open(t), t.TempDir()
			if err := os.Chmod(tmp, 0o755); err != nil {
				t.Fatal(err)
			}
			dir := tmp + "/a 'b\" $(x)\n\xff-é\\"
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			do(t, s, mode)
			readonly := strings.HasPrefix(mode, "readonly PWD")
			where := "/bin/pwd -P"
			if readonly {
				_, e := do(t, s, where, cwd("/usr")) // cd itself fails there, as the user has it
				if e.ExitCode == nil || *e.ExitCode != 1 {
					t.Errorf("readonly PWD: %s", show(e))
				}
				return
			}
			want(t, s, where, dir+"\n", 0, cwd(dir))
			want(t, s, where, dir+"\n", 0) // it stays
			want(t, s, where, "/usr\n", 0, cwd("/usr"))
			want(t, s, where, "/usr/bin\n", 0, cwd("bin"))
			out, e := do(t, s, "echo ran", cwd("/no such\ndir"))
			if e.Reason != sos.EndExit || e.ExitCode == nil || *e.ExitCode != 1 || e.ShellEnded || strings.Contains(out, "ran\n") || !strings.Contains(out, "No such file") {
				t.Errorf("missing directory: %s %q", show(e), out)
			}
			out, e = do(t, s, "echo ran", cwd("-"))
			if e.ExitCode == nil || *e.ExitCode != 1 || strings.Contains(out, "ran\n") {
				t.Errorf("a dash is a path: %s %q", show(e), out)
			}
			want(t, s, where, "/usr/bin\n", 0)
		})
	}
}

func TestCwdRefused(t *testing.T) {
	s := open(t)
	_, e := do(t, s, "echo no", cwd("/u\x00sr"))
	if e.Reason != sos.EndNotRun {
		t.Error(show(e))
	}
	want(t, s, "", "", 0, cwd("/usr")) // nothing but the directory
	want(t, s, "pwd", "/usr\n", 0)
	want(t, s, "echo 'one\ntwo'\ncat <<E\n$PWD\nE", "one\ntwo\n/etc\n", 0, cwd("/etc"))
}
