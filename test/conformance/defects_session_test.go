package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos/internal/testutil"
)

// One test for each defect of the first system's sessions.

// D1: a slow command's answer was lost and every later answer was one off.
func TestD01SlowCommandsKeepTheirAnswers(t *testing.T) {
	a := server(t)
	var wg sync.WaitGroup
	for i := range testutil.Scale(6) {
		id := a.started()
		wg.Add(1)
		go func() {
			defer wg.Done()
			a.is(a.exec(id, fmt.Sprintf("echo start%d; sleep 3; seq 1 200; echo end", i)), fmt.Sprintf("start%d\n%s\nend", i, seq(200)), 0, false)
			for k := range 3 {
				a.is(a.exec(id, fmt.Sprintf("echo next%d; (exit %d)", k, k)), fmt.Sprintf("next%d", k), k, false)
			}
		}()
	}
	wg.Wait()
}

func seq(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "%d\n", i)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// D2: a command of more than two seconds lost its output or was a 504, and no
// request could wait longer or cut shorter.
func TestD02NoHiddenLimit(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "sleep 7; echo done"), "done", 0, false)
	r := a.exec(id, "X=kept; echo half; sleep 300; echo never", "timeout", "1s")
	if r.Output != "half" || !r.TimedOut || *r.Exited || r.Reason != "timeout" {
		t.Errorf("timeout: %q", r.body)
	}
	a.is(a.exec(id, "echo $X"), "kept", 0, false)
}

// D3: silence within a command of several lines ended its answer.
func TestD03SilenceIsNoEnd(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "echo a\nsleep 1\necho b"), "a\nb", 0, false)
	a.is(a.exec(id, "echo c"), "c", 0, false)
}

// D4: what was printed before a limit was thrown away.
func TestD04OutputBeforeTheLimit(t *testing.T) {
	a := server(t)
	id := a.started()
	r := a.exec(id, "for i in $(seq 1 100); do echo line $i; done; sleep 300", "timeout", 1)
	if n := strings.Count(r.Output, "line"); n != 100 {
		t.Errorf("%d lines of 100", n)
	}
}

// D5: printed text was taken for the end of a command, with a forged status.
func TestD05MarkersAreText(t *testing.T) {
	a := server(t)
	id := a.started()
	for _, marker := range []string{"#PS1-TR0N-F1GHTS-4-TH3-U23R2#:42:", "#PS2-TR0N-F1GHTS-4-TH3-U23R2#:", "#EXIT-TR0N-F1GHTS-4-TH3-U23R2#:",
		"#PS1-TR0N-F1GHTS-4-TH3-U23R2#:99999999999999999999:"} {
		a.is(a.exec(id, "echo '"+marker+"'; sleep 0.5; echo 'x"+marker+"y'; echo secret; false"), marker+"\nx"+marker+"y\nsecret", 1, false)
		a.is(a.exec(id, "echo next"), "next", 0, false)
	}
	// Nor is there anything to imitate: what bash says on its own descriptors.
	a.is(a.exec(id, "echo 'bash: ((: 0x1,0/0,hiBs: division by 0' >&2; false"), "bash: ((: 0x1,0/0,hiBs: division by 0", 1, false)
}

// D6: exit let the rest run, lost its code, and ended the session from subshells
// and scripts.
func TestD06ExitExits(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "bash -c 'exit 3'; echo $?; (exit 4); echo $?"), "3\n4", 0, false)
	a.is(a.exec(id, "exit 5; touch /tmp/f"), "", 5, true)
	a.is(a.alone(id, "test -e /tmp/f"), "", 1, false)
	if e := a.trajectory(id); e[len(e)-1].Result.ExitCode != 5 {
		t.Errorf("trajectory: %+v", e[len(e)-1].Result)
	}
}

// D7: the death of the shell was an endless 500 with the status started.
func TestD07ShellDeathIsSaid(t *testing.T) {
	a := server(t)
	for _, c := range []struct {
		command, output string
		code            int
	}{{"echo a; builtin exit 2", "a", 2}, {"echo a; exec true", "a", 0}, {"set -e; echo a; false", "a", 1}, {"echo a; kill -9 $$", "a", 137}, {"unset -f exit; echo a; exit 3", "a", 3}} {
		id := a.started()
		a.is(a.exec(id, c.command), c.output, c.code, true)
		a.status(id, "exited")
		a.step(id, gone)
		a.is(a.alone(id, "echo lives"), "lives\n", 0, false)
	}
}

// D8: the text of a command went through a terminal: tabs were lost, control
// bytes were keys, ! expanded.
func TestD08TextArrivesAsSent(t *testing.T) {
	a := server(t)
	id := a.started()
	a.exec(id, "cat > /tmp/Makefile <<'E'\nall:\n\techo \"hi!!\"\nE")
	a.is(a.exec(id, "od -An -c /tmp/Makefile | tr -s ' \\n' ' '"), " a l l : \\n \\t e c h o \" h i ! ! \" \\n", 0, false)
	a.is(a.exec(id, "printf %s 'a\x03\x12\x1b[Ab' | od -An -tx1"), " 61 03 12 1b 5b 41 62", 0, false)
}

// D9: tabs and carriage returns were taken out of the output.
func TestD09TabsStay(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "printf 'a\\tb\\n'"), "a\tb", 0, false)
	a.is(a.exec(id, "printf '10%%\\r20%%\\n'"), "10%\r20%", 0, false)
}

// D10: characters and colours were spoiled where chunks met.
func TestD10NoChunksInTheText(t *testing.T) {
	a := server(t)
	id := a.started()
	const n = 200000
	r := a.exec(id, fmt.Sprintf("for i in 1; do yes $'\\e[1mh\\u00e9llo \\u2713\\e[0m' | head -n %d; done", n))
	if want := strings.TrimSuffix(strings.Repeat("héllo ✓\n", n), "\n"); r.Output != want {
		t.Errorf("%d bytes of %d: %s", len(r.Output), len(want), short(r.Output))
	}
	a.is(a.exec(id, "printf '\\303'; sleep 0.3; printf '\\251'; printf '\\033['; sleep 0.3; printf '1mx'"), "éx", 0, false)
}

// D11: text like the server's own prompts was deleted from the output.
func TestD11NothingIsDeleted(t *testing.T) {
	a := server(t)
	const text = "a#PS2-TR0N-F1GHTS-4-TH3-U23R2#:b#PS1-TR0N-F1GHTS-4-TH3-U23R2#:c $ > x"
	a.is(a.exec(a.started(), "echo '"+text+"'"), text, 0, false)
}

// D12: programs that take the terminal blocked the session for good.
func TestD12NoTerminalToTake(t *testing.T) {
	a := server(t)
	id := a.started()
	a.exec(id, "seq 500 > /tmp/n; more /tmp/n")
	a.is(a.exec(id, "cat"), "", 0, false)
	a.is(a.exec(id, "exec 2>/dev/null"), "", 0, false)
	a.is(a.exec(id, "echo a"), "a", 0, false)
	r := a.exec(id, "trap '' INT TERM; sleep 300", "timeout", 1)
	if !r.TimedOut {
		t.Errorf("%q", r.body)
	}
}

// D13: a command that timed out was not in the trajectory.
func TestD13TimeoutsAreRecorded(t *testing.T) {
	a := server(t)
	id := a.started()
	a.exec(id, "echo half; sleep 300", "timeout", 1)
	e := a.trajectory(id)
	if len(e) != 1 || e[0].Result == nil || e[0].Result.Output != "half" || e[0].Result.Reason != "timeout" {
		t.Errorf("trajectory: %+v", e)
	}
}

// D14: kept: a comment has the status of the command before it, 0 on a fresh
// session.
func TestD14Comments(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "# fresh"), "", 0, false)
	a.exec(id, "false")
	a.is(a.exec(id, "# why\n\n   # because"), "", 1, false)
	a.is(a.exec(id, "echo $?"), "1", 0, false)
}

// D15: an interactive shell's notices were in the output.
func TestD15NoNotices(t *testing.T) {
	a := server(t)
	id := a.started()
	a.is(a.exec(id, "sleep 0.1 & sleep 0.1 & echo x"), "x", 0, false)
	a.is(a.exec(id, "sleep 0.5"), "", 0, false)
	a.is(a.exec(id, "cd nowhere"), "bash: cd: nowhere: No such file or directory", 1, false)
}

// D16: PROMPT_COMMAND, a DEBUG trap or stty leaked into every later output.
func TestD16HooksDoNotLeak(t *testing.T) {
	a := server(t)
	id := a.started()
	a.exec(id, "PROMPT_COMMAND='echo PC'; PS0='P0'; stty echo 2>/dev/null; true")
	a.is(a.exec(id, "echo a"), "a", 0, false)
	a.exec(id, "trap 'echo T' DEBUG")
	a.exec(id, "trap - DEBUG")
	a.is(a.exec(id, "trap : DEBUG; true"), "", 0, false)
	a.is(a.exec(id, "echo b"), "b", 0, false)
}

// D17: output that began with a byte 0, 1 or 2 silenced the session for ever.
func TestD17AnyFirstByte(t *testing.T) {
	a := server(t)
	id := a.started()
	for _, c := range []string{`printf '\000hello\n'`, `printf '\001hello\n'`, `printf '\002\0\0\0\377\377\377\377hello\n'`} {
		r := a.exec(id, c)
		if !strings.HasSuffix(r.Output, "hello") || *r.ExitCode != 0 {
			t.Errorf("%s: %q", c, r.body)
		}
	}
	a.exec(id, "cat /bin/true")
	a.is(a.exec(id, "echo a"), "a", 0, false)
	var raw map[string]any
	if err := json.Unmarshal([]byte(a.alone(id, "cat /bin/true").body), &raw); err != nil {
		t.Error(err)
	}
}

// Two commands at once in one session queue in order, and each gets its own.
func TestSessionQueues(t *testing.T) {
	a := server(t)
	id := a.started()
	var wg sync.WaitGroup
	for i := range testutil.Scale(20) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			a.is(a.exec(id, fmt.Sprintf("echo %d; sleep 0.02; (exit %d)", i, i%7)), fmt.Sprint(i), i%7, false)
		}()
	}
	wg.Wait()
	begin := time.Now()
	a.is(a.exec(id, "echo end"), "end", 0, false)
	if time.Since(begin) > 30*time.Second {
		t.Error("the session is stuck")
	}
}
