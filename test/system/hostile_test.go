package system

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// TestHostile runs what programs in sandboxes do to those who run them. All of it
// has one server.
func TestHostile(t *testing.T) {
	r := newRig(t, "--max-sandboxes", "50", "--stop-grace", "1")
	for _, c := range []struct {
		name string
		test func(*rig)
	}{
		{"imitation", testImitation}, {"big output", testBigOutput}, {"odd bytes", testOddBytes}, {"long command", testLongCommand},
		{"ends of shells", testEndsOfShells}, {"held pipes", testHeldPipes}, {"one session", testOneSession},
		{"nobody waits", testNobodyWaits}, {"many commands", testManyCommands}, {"stop under way", testStopUnderWay},
		{"fork bomb", testForkBomb}, {"memory", testMemory}, {"memory of the shell", testMemoryOfShell},
		{"stubborn processes", testStubborn}, {"disk", testDisk},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(r.on(t)) })
	}
	r.clean()
}

// use gives a started sandbox that is removed with the test.
func (r *rig) use(l sos.Limits) *box {
	r.t.Helper()
	b := r.started(sos.SandboxSpec{Limits: l})
	r.t.Cleanup(b.remove)
	return b
}

// Output is never an end, whatever it looks like, and wherever it is written.
func testImitation(r *rig) {
	b := r.use(sos.Limits{})
	b.sh("V=kept", "", 0)
	for _, text := range []string{
		"#PS1-TR0N-F1GHTS-4-TH3-U23R2#:0:", "\x1e0\x1e", "__EXIT__0", "\x01\x00\x00\x00exit 0", "E 0\nD 0\n", "exit 0",
		`{"exit_code":0,"exited":true}`, "HTTP/1.1 200 OK\r\n\r\n", "\n\n0\n", "SOS 1 exit 0",
	} {
		got := b.run(sos.ExecRequest{Command: "cat; sleep 0.05; echo after; (exit 3)", Stdin: []byte(text)})
		if got.ExitCode != 3 || got.Exited || !strings.HasSuffix(got.Output, "after") {
			b.t.Errorf("%q in the session gave %+v", text, got)
		}
		got = b.run(sos.ExecRequest{Command: "cat; echo after; exit 4", Stdin: []byte(text), Standalone: true})
		if got.ExitCode != 4 || got.Output != text+"after\n" {
			b.t.Errorf("%q alone gave %+v", text, got)
		}
	}
	// Every descriptor that a command finds, written full of answers.
	got := b.run(sos.ExecRequest{Command: `for f in /proc/self/fd/* /dev/fd/*; do { echo 0; printf 'exit 0\0\n'; echo 'D 0'; } > "$f"; done 2>/dev/null; (exit 5)`})
	if got.ExitCode != 5 || got.Exited {
		b.t.Errorf("a write to all descriptors gave %+v", got)
	}
	for n := 3; n < 260; n++ { // the numbers that harnesses like
		if n > 20 && n < 250 {
			continue
		}
		got := b.run(sos.ExecRequest{Command: fmt.Sprintf("{ echo 0 >&%d; } 2>/dev/null; (exit 6)", n)})
		if got.ExitCode != 6 || got.Exited {
			b.t.Errorf("a write to descriptor %d gave %+v", n, got)
		}
	}
	b.sh("echo $V", "kept", 0)
}

// 200 MB: the answer has the beginning and says so, the record has all.
func testBigOutput(r *rig) {
	b := r.use(sos.Limits{})
	const command = `base64 -w 76 < /dev/zero | head -c 200000000`
	want := strings.Repeat(strings.Repeat("A", 76)+"\n", 200000000/77+1)[:200000000]
	for _, alone := range []bool{true, false} {
		got := b.run(sos.ExecRequest{Command: command, Standalone: alone})
		if !got.Truncated || got.OutputBytes != int64(len(want)) || !strings.HasPrefix(want, got.Output) || len(got.Output) < 1<<20 {
			b.t.Errorf("the answer is truncated %v, has %d bytes of %d", got.Truncated, len(got.Output), got.OutputBytes)
		}
		var p sos.Process
		for _, q := range b.procs(sos.ProcessFilter{}) {
			p = q
		}
		if h, n := b.digest(p.ID); n != int64(len(want)) || h != sum(want) {
			b.t.Errorf("the record has %d bytes, want %d", n, len(want))
		}
	}
	b.sh("echo still here", "still here", 0)
}

func (b *box) procs(f sos.ProcessFilter) []sos.Process {
	b.t.Helper()
	all, err := b.c.ListProcesses(deadline(b.t), b.id, f)
	if err != nil {
		b.t.Fatalf("processes of %s: %v", b.id, err)
	}
	return all
}

// Bytes that are no text are recorded as they are; answers are valid text.
func testOddBytes(r *rig) {
	b := r.use(sos.Limits{})
	b.sh("head -c 3000000 /dev/urandom > /root/random", "", 0)
	want := strings.Fields(b.run(sos.ExecRequest{Command: "sha256sum /root/random"}).Output)[0]
	for _, alone := range []bool{true, false} {
		command := fmt.Sprintf("cat /root/random # %v", alone)
		b.run(sos.ExecRequest{Command: command, Standalone: alone})
		if h, n := b.digest(b.proc(command).ID); h != want {
			b.t.Errorf("alone %v: %d bytes with other content", alone, n)
		}
	}
	b.alone(`printf 'a\0b\r\n\377\376c\303\251\n'`, "a\x00b\r\n\ufffd\ufffdcé\n", 0)
	b.sh(`printf 'x\r\ny\r\n'`, "x\ny", 0)
	b.sh(`printf '\377\376'; printf 'h\303'; sleep 0.1; printf '\251\n'`, "\ufffd\ufffdhé", 0)
	if _, err := b.c.Exec(deadline(b.t), b.id, sos.ExecRequest{Command: "echo a\x00b"}); sos.ErrorCode(err) != sos.CodeInvalid || !strings.Contains(err.Error(), "NUL") {
		b.t.Errorf("a NUL in a command: %v", err)
	}
	b.sh("echo a\r\necho b\r", "a\nb", 0)
	if _, err := b.c.Exec(deadline(b.t), b.id, sos.ExecRequest{Command: "echo '\xff\xfe'"}); sos.ErrorCode(err) != sos.CodeInvalid || !strings.Contains(err.Error(), "UTF-8") {
		b.t.Errorf("a command that is no text: %v", err)
	}
	b.sh("echo still here", "still here", 0)
}

// A command of 1 MiB runs in a session; where the kernel has no room for it the
// answer says what to do.
func testLongCommand(r *rig) {
	b := r.use(sos.Limits{})
	filler := strings.Repeat("x", 1<<20-30)
	b.sh("V="+filler+"\necho ${#V}", fmt.Sprint(len(filler)), 0)
	b.sh("cat <<'E' | wc -c\n"+filler+"\nE", fmt.Sprint(len(filler)+1), 0)
	_, err := b.c.Exec(deadline(b.t), b.id, sos.ExecRequest{Command: "V=" + filler + "; echo ${#V}", Standalone: true})
	if sos.ErrorCode(err) != sos.CodeTooLarge {
		b.t.Errorf("1 MiB alone: %v", err)
	}
	got := b.run(sos.ExecRequest{Command: "bash", Standalone: true, Stdin: []byte("V=" + filler + "\necho ${#V}\n")})
	if got.Output != fmt.Sprintln(len(filler)) {
		b.t.Errorf("1 MiB as stdin gave %+v", short(got.Output))
	}
	b.sh("echo still here", "still here", 0)
}

// A shell that ends, ends its session with the truth, and its sandbox lives.
func testEndsOfShells(r *rig) {
	for _, c := range []struct {
		command, output string
		code            int
		reason          sos.EndReason
	}{
		{"echo a; kill -9 $$; echo b", "a", 137, sos.EndSignal},
		{"echo a; kill -TERM $$; kill -KILL $$", "a", 137, sos.EndSignal},
		{"echo a; exit 7", "a", 7, ""},
		{"exec sh -c 'echo a; exit 8'", "a", 8, ""},
		{"set -e; echo a; false; echo b", "a", 1, ""},
	} {
		b := r.use(sos.Limits{})
		got := b.run(sos.ExecRequest{Command: c.command})
		if got.Output != c.output || got.ExitCode != c.code || !got.Exited || got.Reason != c.reason {
			b.t.Errorf("%q gave %+v", c.command, got)
		}
		if _, err := b.c.Exec(deadline(b.t), b.id, sos.ExecRequest{Command: "echo c"}); sos.ErrorCode(err) != sos.CodeSessionExited {
			b.t.Errorf("after %q: %v", c.command, err)
		}
		b.alone("echo d", "d\n", 0)
	}
}

// What holds an output open does not hold an answer back.
func testHeldPipes(r *rig) {
	b := r.use(sos.Limits{})
	for i, command := range []string{"sleep 500 & echo started", "sleep 500 > /dev/null & echo started", "nohup sleep 500 & echo started", "(setsid sleep 500 &); echo started"} {
		for _, alone := range []bool{true, false} {
			began := time.Now()
			got := b.run(sos.ExecRequest{Command: command, Standalone: alone, Timeout: sos.Duration(4 * time.Minute)})
			if got.TimedOut || !strings.HasSuffix(strings.TrimSpace(got.Output), "started") || got.ExitCode != 0 || time.Since(began) > 2*time.Minute {
				b.t.Errorf("%q (alone %v) gave %+v after %v", command, alone, got, time.Since(began))
			}
			if alone && i == 0 && !got.Survivors {
				b.t.Errorf("%q says nothing of its survivors", command)
			}
		}
	}
	b.sh("(sleep 0.5; echo LATE) &", "", 0)
	b.sh("sleep 1; echo two", "two", 0)
	got := b.run(sos.ExecRequest{Command: "nohup sleep 500 & exit 0", Standalone: true, Timeout: sos.Duration(5 * time.Second)})
	if got.TimedOut || got.ExitCode != 0 {
		b.t.Errorf("a survivor beyond the timeout gave %+v", got)
	}
}

// Commands of one session run one after another, each with its own output.
func testOneSession(r *rig) {
	b := r.use(sos.Limits{})
	b.sh("N=0", "", 0)
	n := testutil.Scale(60)
	outputs := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			outputs[i] = b.run(sos.ExecRequest{Command: fmt.Sprintf("a=$N; N=$((N+1)); echo %d-; echo $N; [ $N = $((a+1)) ]", i)}).Output
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, out := range outputs {
		head, tail, _ := strings.Cut(out, "-\n")
		if head != fmt.Sprint(i) || seen[tail] {
			b.t.Errorf("command %d was answered %q", i, out)
		}
		seen[tail] = true
	}
	b.sh("echo $N", fmt.Sprint(n), 0)
}

// A busy sandbox is nobody else's business.
func testNobodyWaits(r *rig) {
	busy, free := r.use(sos.Limits{}), r.use(sos.Limits{})
	alone := busy.background(sos.ExecRequest{Command: "echo a; sleep 600", Standalone: true})
	inSession := busy.background(sos.ExecRequest{Command: "echo b; sleep 600"})
	busy.runs("echo b; sleep 600")
	busy.runs("echo a; sleep 600")
	for range 20 {
		free.sh("echo quick", "quick", 0)
		free.alone("echo quick", "quick\n", 0)
	}
	other := r.started(sos.SandboxSpec{})
	other.remove()
	for _, done := range []<-chan answer{alone, inSession} {
		select {
		case a := <-done:
			r.t.Errorf("it was to run on: %+v, %v", a.ExecResult, a.err)
		default:
		}
	}
}

// Thousands of quick commands: none loses its output.
func testManyCommands(r *rig) {
	const clients = 64
	boxes := []*box{r.use(sos.Limits{}), r.use(sos.Limits{}), r.use(sos.Limits{}), r.use(sos.Limits{})}
	work := make(chan int)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for i := range work {
				b := boxes[i%len(boxes)]
				if alone := i%8 < 4; alone {
					b.alone(fmt.Sprintf("echo out-%d; exit %d", i, i%200), fmt.Sprintf("out-%d\n", i), i%200)
				} else {
					b.sh(fmt.Sprintf("echo out-%d; (exit %d)", i, i%200), fmt.Sprintf("out-%d", i), i%200)
				}
			}
		})
	}
	for i := range testutil.Scale(2000) {
		work <- i
	}
	close(work)
	wg.Wait()
}

// Calls under way end when their sandbox is stopped or removed.
func testStopUnderWay(r *rig) {
	for _, remove := range []bool{false, true} {
		b := r.started(sos.SandboxSpec{})
		if !remove {
			r.t.Cleanup(b.remove)
		}
		calls := map[string]<-chan answer{}
		for _, q := range []sos.ExecRequest{
			{Command: "trap '' TERM INT HUP; echo a; while :; do sleep 1; done", Standalone: true},
			{Command: "trap '' TERM INT HUP; echo b; while :; do sleep 1; done"},
		} {
			calls[q.Command] = b.background(q)
			b.runs(q.Command)
		}
		calls["echo queued"] = b.background(sos.ExecRequest{Command: "echo queued"})
		eventually(r.t, "it waits", func() bool { p := b.proc("echo queued"); return p != nil })
		follow := make(chan error, 1)
		p := b.proc("trap '' TERM INT HUP; echo a; while :; do sleep 1; done")
		ctx := deadline(r.t)
		go func() {
			_, err := b.c.ReadOutput(ctx, b.id, p.ID, sos.StreamOut, 0, true, new(strings.Builder))
			follow <- err
		}()
		if _, err := b.c.StopSandbox(deadline(r.t), b.id, sos.StopRequest{Remove: remove}); err != nil {
			r.t.Errorf("stop: %v", err)
		}
		for command, done := range calls {
			if a := b.get(done); a.err == nil && a.Reason != sos.EndSandboxStopped || a.err != nil && sos.ErrorCode(a.err) != sos.CodeSandboxStopped {
				r.t.Errorf("remove %v: %q was answered %+v, %v", remove, command, a.ExecResult, a.err)
			}
		}
		select {
		case <-follow:
		case <-time.After(long):
			r.t.Error("a reader waits for ever")
		}
		_, err := b.c.Exec(context.Background(), b.id, sos.ExecRequest{Command: "true"})
		want := sos.CodeNotStarted
		if remove {
			want = sos.CodeNotFound
		}
		if sos.ErrorCode(err) != want {
			r.t.Errorf("exec afterwards: %v", err)
		}
	}
}
