package session

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// home gives a session a home directory with this .bashrc.
func home(t *testing.T, bashrc string) func(*Config) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/.bashrc", []byte(bashrc), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) {
		c.Spec.Env = append([]string{"HOME=" + dir}, c.Spec.Env[1:]...)
		c.StartLimit = 700 * time.Millisecond
	}
}

func TestStartFiles(t *testing.T) {
	for _, c := range []struct {
		name, rc, note string
		text, output   string
	}{
		{"used", "alias hi='echo hello'; X=1; PROMPT_COMMAND='echo prompt'; PS1='me> '; echo banner; f() { echo f; }", "", "hi; echo $X; f", "hello\n1\nf\n"},
		{"guards against no prompt", "[ -z \"$PS1\" ] && return; X=2", "", "echo $X", "2\n"},
		{"guards against scripts", "case $- in *i*) ;; *) return;; esac; X=2", "", "echo $X", "2\n"},
		{"reads", "sleep .1; read x; X=after", "", "echo $X", "after\n"},
		{"fails", "false; nosuchcommand; cd /nope", "", "echo ok", "ok\n"},
		{"is broken", "echo 'a", "", "echo ok", "ok\n"},
		{"prints much", "head -c 3000000 /dev/zero | tr '\\0' x; X=1", "", "echo $X", "1\n"},
		{"strict", "set -euo pipefail", "", "echo ok", "ok\n"},
		{"exits", "X=1; exit 3", "ended with status 3", "echo $X.", ".\n"},
		{"execs", "exec true", "ended with status 0", "echo ok", "ok\n"},
		{"dies", "kill -9 $$", "ended with status 137", "echo ok", "ok\n"},
		{"hangs", "X=1; sleep 1000", "did not answer within 700ms", "echo $X.", ".\n"},
		{"hangs for good", "trap '' INT; while :; do :; done", "did not answer within 700ms", "echo ok", "ok\n"},
		{"takes dot away", "enable -n .", "did not answer", "echo ok", "ok\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := open(t, home(t, c.rc))
			if !strings.Contains(s.Note(), c.note) || (c.note == "") != (s.Note() == "") {
				t.Errorf("note %q, want %q", s.Note(), c.note)
			}
			want(t, s, c.text, c.output, 0)
			want(t, s, "false | true || echo failed", "failed\n", 0) // pipefail, whatever the files did
			if s.Pid() <= 1 {
				t.Error(s.Pid())
			}
		})
	}
}

func TestOpenEnvironment(t *testing.T) {
	s := open(t, func(c *Config) { c.Spec.Env, c.Spec.Cwd = []string{"PATH=/usr/bin:/bin", "A=b c"}, "/usr" })
	want(t, s, `echo "$A $LC_ALL $LANG $PAGER $HOME $PWD"; printenv HOME`, "b c C.UTF-8 C.UTF-8 cat "+homeOf(t)+" /usr\n"+homeOf(t)+"\n", 0)
	s = open(t, func(c *Config) { c.Spec.Env = []string{"PATH=/usr/bin:/bin", "LANG=C", "PAGER=less", "HOME="} })
	want(t, s, `echo "$LC_ALL $LANG $PAGER [$HOME]"`, " C less []\n", 0)
}

// homeOf is root's home as the system has it.
func homeOf(t *testing.T) string {
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Split(line, ":"); len(f) > 5 && f[2] == "0" {
			return f[5]
		}
	}
	return "/"
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		code   sos.Code
		says   string
	}{
		{"no directory", func(c *Config) { c.Spec.Cwd = "/nope" }, sos.CodeSpawnFailed, "/nope"},
		{"not a directory", func(c *Config) { c.Spec.Cwd = "/etc/passwd" }, sos.CodeSpawnFailed, "/etc/passwd"},
		{"no user", func(c *Config) { c.Spec.User = "nobody2" }, sos.CodeSpawnFailed, "nobody2"},
		{"no program", func(c *Config) { c.Bash = "/nope/bash" }, sos.CodeSpawnFailed, "/nope/bash"},
		{"not a program", func(c *Config) { c.Bash = "/etc/passwd" }, sos.CodeSpawnFailed, "/etc/passwd"},
		{"not a bash", func(c *Config) { c.Bash = "/bin/true" }, sos.CodeSpawnFailed, "ended"},
		{"mute", func(c *Config) { c.Bash, c.StartLimit = "/bin/cat", 100*time.Millisecond }, sos.CodeSpawnFailed, "bash"},
		{"a name that bash would not take", func(c *Config) { c.Dir = "/tmp/a b" }, sos.CodeSpawnFailed, "invalid"},
	} {
		cfg := config(t)
		c.change(&cfg)
		s, err := Open(cfg)
		if s != nil {
			s.Close()
			t.Errorf("%s: opened", c.name)
		}
		if sos.ErrorCode(err) != c.code || !strings.Contains(sos.ErrorMessage(err), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if left := list(cfg.Dir); len(left) > 0 {
			t.Errorf("%s: left %v", c.name, left)
		}
	}
}

// TestNoBash opens a session in a root without bash.
func TestNoBash(t *testing.T) {
	cfg, root := config(t), t.TempDir()
	got := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its root
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			got <- err
		} else if err := unix.Chroot(root); err != nil {
			got <- err
		} else {
			cfg.Bash, cfg.Spec.Cwd = "", "/"
			_, err := Open(cfg)
			got <- err
		}
	}()
	err := <-got
	if sos.ErrorCode(err) != sos.CodeUnsupported || !strings.Contains(err.(*sos.Error).Fix, "standalone") {
		t.Errorf("%v", err)
	}
}

// TestOtherUser runs the session as somebody who is not root and cannot be
// looked at: only the state and cpu time of the shell are seen then.
func TestOtherUser(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *Config) { c.Spec.User = "65534" })
	s.noPeek = true
	want(t, s, "id -u; echo x >/dev/stderr; echo y >/dev/stdout", "65534\nx\ny\n", 0)
	want(t, s, "cat; echo $A", "in1\n", 0, stdin("in"), env("A", "1"))
	want(t, s, "ls "+s.cfg.Dir, "ls: cannot open directory '"+s.cfg.Dir+"': Permission denied\n", 2)
	for _, text := range []string{"sleep 1000", "while :; do :; done", "read x <><(:)", "while :; do (trap '' INT; sleep 50); done", "kill -STOP $$; sleep 100"} {
		_, e := do(t, s, text, within(300*time.Millisecond))
		if e.Reason != sos.EndTimeout || e.ShellEnded {
			t.Errorf("%s: %s", text, show(e))
		}
		want(t, s, "echo alive", "alive\n", 0)
	}
	// What only looks like waiting for a command.
	want(t, s, "read -t 1 x <><(:); echo $?", "142\n", 0)
	want(t, s, "sleep 1 & wait; echo done; (exit 3)", "done\n", 3)
	want(t, s, "echo $?", "3\n", 0)
	want(t, s, "exec 7</dev/null; set -r; true", "", 0)
	if _, e := do(t, s, "echo no"); e.Reason != sos.EndNotRun || !strings.Contains(e.Message, "restricted") {
		t.Error(show(e))
	}
	s = open(t, func(c *Config) { c.Spec.User = "65534" })
	s.noPeek = true
	if _, e := do(t, s, "shopt -s extdebug; trap 'false' DEBUG"); e.Reason != sos.EndShellBroken && e.Reason != sos.EndExit {
		t.Error(show(e))
	}
	if _, e := do(t, s, "echo no"); e.Reason != sos.EndShellBroken && e.Reason != sos.EndNotRun || !e.ShellEnded {
		t.Error(show(e))
	}
}

func TestExecAsOtherUser(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *Config) { c.Spec.User = "65534" })
	s.noPeek = true
	out, e := do(t, s, "exec bash -c 'sleep 1.2; echo late; exit 4'")
	if out != "late\n" || !e.ShellEnded || e.ExitCode == nil || *e.ExitCode != 4 || e.Reason != sos.EndExit {
		t.Errorf("%s %q", show(e), out)
	}
}

func TestSubshellsOfTheCommandAreOurs(t *testing.T) {
	s := open(t)
	want(t, s, "sleep 88805 >/dev/null & (setsid sleep 88806 >/dev/null &) ; true", "", 0)
	eventually(t, "both", func() bool { return !alone("88805") && !alone("88806") })
	_, e := do(t, s, "(setsid perl -e 'fork; fork; sleep 88807' >/dev/null 2>&1 &); sleep 1000", within(500*time.Millisecond))
	if e.Reason != sos.EndTimeout || e.ShellEnded {
		t.Error(show(e))
	}
	if alone("88805") || alone("88806") {
		t.Error("older jobs were killed")
	}
	s.Close()
	eventually(t, "their end", func() bool { return alone("88805") && alone("88806") })
}

func TestClose(t *testing.T) {
	s := open(t)
	started, done := make(chan struct{}), make(chan Result)
	full := &record{window: 1}
	go func() {
		done <- s.Run(guest.SessionCommand{Text: "yes & trap '' INT; while :; do :; done"}, full, func() { close(started) })
	}()
	<-started
	s.Close()
	r := <-done
	closeAll(r.Rest)
	if r.Exit.Reason != sos.EndCancelled || !r.Exit.ShellEnded || r.Exit.ExitCode != nil {
		t.Error(show(r.Exit))
	}
	<-s.Ended()
	if e := s.Exit(); !e.ShellEnded || e.Signal != "SIGKILL" {
		t.Error(show(e))
	}
	s.Close() // again
	s.Wake()
	s.Interrupt(sos.EndCancelled)
	if _, e := do(t, s, "echo no"); e.Reason != sos.EndNotRun || !e.ShellEnded {
		t.Error(show(e))
	}

	s = open(t)
	want(t, s, "sleep 88808 & true", "", 0)
	s.Close()
	if e := s.Exit(); e.Reason != sos.EndCancelled || e.Message == "" {
		t.Error(show(e))
	}
	eventually(t, "end of the job", func() bool { return alone("88808") })
}

func TestShellExit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		code   int
		signal string
		reason sos.EndReason
	}{
		{"exit 7", 7, "", sos.EndExit}, {"kill -9 $$", 137, "SIGKILL", sos.EndSignal}, {"kill -HUP $$", 129, "SIGHUP", sos.EndSignal},
		{"exec bash -c 'kill -TERM $$'", 143, "SIGTERM", sos.EndSignal}, {"exec bash -c 'ulimit -c 0; kill -40 $$'", 168, "signal 40", sos.EndSignal},
	} {
		s := open(t)
		_, e := do(t, s, c.text)
		if x := s.Exit(); show(x) != show(e) || e.ExitCode == nil || *e.ExitCode != c.code || e.Signal != c.signal || e.Reason != c.reason || !e.ShellEnded {
			t.Errorf("%s: %s, shell %s", c.text, show(e), show(x))
		}
	}
}

func TestStarted(t *testing.T) {
	s := open(t)
	for text, calls := range map[string]int{"true": 1, "": 1, "# c": 1, "exit 3": 1, "a\x00b": 0} {
		n := 0
		s := s
		if text == "exit 3" {
			s = open(t)
		}
		s.Run(guest.SessionCommand{Text: text, Timeout: limit}, &record{}, func() { n++ })
		if n != calls {
			t.Errorf("%q: started %d times", text, n)
		}
	}
}
