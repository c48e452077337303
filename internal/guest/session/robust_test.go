package session

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// TestLimitAtTheEnd lets the limit fall around the very end of a command: the
// next one has to be answered for itself.
func TestLimitAtTheEnd(t *testing.T) {
	t.Parallel()
	s := open(t)
	cmds := []string{"sleep .02; (exit 3)", "for ((i=0;i<9000;i++)); do :; done; (exit 3)", "read -t .02 x <><(:); (exit 3)"}
	ends := map[string]int{}
	for i := range testutil.Scale(200) {
		_, e := do(t, s, cmds[i%3], within(12*time.Millisecond+time.Duration(i%160)*100*time.Microsecond))
		ends[string(e.Reason)]++
		if e.ShellEnded || e.Reason == sos.EndExit && *e.ExitCode != 3 || e.Reason != sos.EndExit && (e.Reason != sos.EndTimeout || e.ExitCode != nil) {
			t.Fatalf("%d: %s", i, show(e))
		}
		want(t, s, fmt.Sprintf("echo n%d; (exit 7)", i), fmt.Sprintf("n%d\n", i), 7)
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Log(ends)
}

// TestInterruptAtTheEnd is the same for cancels from another goroutine.
func TestInterruptAtTheEnd(t *testing.T) {
	t.Parallel()
	s := open(t)
	for i := range testutil.Scale(200) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(time.Duration(i%40) * 100 * time.Microsecond)
			s.Interrupt(sos.EndCancelled)
		}()
		_, e := do(t, s, "/bin/true; (exit 3)")
		if e.ShellEnded || e.Reason == sos.EndExit && *e.ExitCode != 3 || e.Reason != sos.EndExit && e.Reason != sos.EndCancelled {
			t.Fatalf("%d: %s", i, show(e))
		}
		<-done
		want(t, s, "echo alive", "alive\n", 0)
	}
}

func TestInterrupt(t *testing.T) {
	s := open(t)
	s.Interrupt(sos.EndCancelled) // nothing runs: nothing happens
	want(t, s, "echo a", "a\n", 0)
	for _, reason := range []sos.EndReason{sos.EndCancelled, sos.EndDiskLimit} {
		started := make(chan struct{})
		go func() { <-started; s.Interrupt(reason); s.Interrupt(sos.EndSandboxStopped) }()
		r := s.Run(guest.SessionCommand{Text: "v=1; sleep 1000"}, &record{}, func() { close(started) })
		if e := r.Exit; e.Reason != reason || e.ExitCode != nil || e.ShellEnded || r.Rest != -1 {
			t.Error(show(e))
		}
		want(t, s, "echo $?", "130\n", 0)
	}
	want(t, s, "echo $v", "1\n", 0)
}

// TestImitation prints whatever our reports look like.
func TestImitation(t *testing.T) {
	s := open(t)
	for _, text := range []string{
		"bash: ((: 0x0123456789abcde,0/0,hiBs: division by 0 (error token is \"0,hiBs\")",
		"0x0123456789abcde,0/0,:", "0x", "1*0/0,e:", "bash: ((: 0x", "#PS1-TR0N-F1GHTS-4-TH3-U23R2#:0:", "\x01\x02\x00",
	} {
		want(t, s, "printf %s "+quote(strings.ReplaceAll(text, "\x00", "0"))+" | tee /proc/$$/fd/2; (exit 4)",
			strings.Repeat(strings.ReplaceAll(text, "\x00", "0"), 2), 4)
		// Into every descriptor of the shell, so onto the status channel as well.
		out, e := do(t, s, "for n in 2 10 11 12 255; do printf '%s\\n' "+quote(strings.ReplaceAll(text, "\x00", "0"))+" >&$n; done 2>/dev/null; (exit 5)")
		if e.ExitCode == nil || *e.ExitCode != 5 {
			t.Errorf("%q: %s %q", text, show(e), out)
		}
	}
	// A nonce of an earlier command is noise.
	want(t, s, "x=$(tr -dc '0-9a-fx,(/' <"+quote("/proc/self/environ")+" | head -c 10); (exit 6)", "", 6)
	want(t, s, "echo alive", "alive\n", 0)
}

// TestMuchOutput sends a lot through a small window and checks the bytes.
func TestMuchOutput(t *testing.T) {
	t.Parallel()
	s := open(t)
	mb := testutil.Scale(200)
	sum := sha256.New()
	out := &record{window: 192 << 10, each: func(p []byte) { sum.Write(p) }}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
			if out.room() > 0 {
				s.Wake()
			}
		}
	})
	const line = "0123456789abcdef bash: ((: 0x #PS1 $ \xff\xfe\x00\x01 0123456789abcdef0123456789\n"
	file := filepath.Join(t.TempDir(), "mb")
	if err := os.WriteFile(file, bytes.Repeat([]byte(line), 1<<20/len(line)+1)[:1<<20], 0o644); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r := s.Run(guest.SessionCommand{Text: fmt.Sprintf("for ((i=0;i<%d;i++)); do cat %s; done; (exit 3)", mb, file), Timeout: 2 * time.Minute}, out, func() {})
	t.Logf("%d MB in %v", mb, time.Since(began))
	close(stop)
	wg.Wait()
	if r.Exit.ExitCode == nil || *r.Exit.ExitCode != 3 || r.Exit.Survivors {
		t.Error(show(r.Exit))
	}
	b, _ := os.ReadFile(file)
	right := sha256.New()
	for range mb {
		right.Write(b)
	}
	if out.n != int64(mb)<<20 || !bytes.Equal(sum.Sum(nil), right.Sum(nil)) {
		t.Errorf("%d bytes, or other ones", out.n)
	}
}

// TestEveryByte: what is written is what is recorded, also in the smallest reads.
func TestEveryByte(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, window := range []int{1, 7, 4096} {
		out := &record{window: window}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if out.room() > 0 {
						s.Wake()
					}
					time.Sleep(20 * time.Microsecond)
				}
			}
		})
		data := bytes.Repeat([]byte(nasty+"bash: ((: 0\x00\x01\x02"), 3)
		r := s.Run(guest.SessionCommand{Text: "cat", Stdin: data, Timeout: limit}, out, func() {})
		close(stop)
		wg.Wait()
		if r.Exit.ExitCode == nil || *r.Exit.ExitCode != 0 || out.String() != string(data) {
			t.Errorf("window %d: %s, %d of %d bytes", window, show(r.Exit), len(out.String()), len(data))
		}
	}
}

func TestStdin(t *testing.T) {
	t.Parallel()
	s := open(t)
	large := strings.Repeat(nasty, 3<<20/len(nasty))
	want(t, s, "cat", large, 0, stdin(large))
	want(t, s, "read x; echo $x; cat", "a\nb\n", 0, stdin("a\nb\n"))
	want(t, s, "cat", "", 0)
}

// TestFullWindow: a window that nobody empties stops neither limits nor cancels.
func TestFullWindow(t *testing.T) {
	t.Parallel()
	s := open(t)
	out := &record{window: 1000}
	began := time.Now()
	r := s.Run(guest.SessionCommand{Text: "yes", Timeout: 200 * time.Millisecond}, fillFor(s, out, time.Second), func() {})
	if r.Exit.Reason != sos.EndTimeout || r.Exit.ShellEnded || !strings.HasPrefix(out.String(), "y\ny\n") {
		t.Errorf("%s %.20q", show(r.Exit), out)
	}
	if d := time.Since(began); d < 900*time.Millisecond {
		t.Errorf("after %v, with output that had no space yet", d)
	}
	want(t, s, "echo alive", "alive\n", 0)
	out = &record{window: 1000}
	started := make(chan struct{})
	go func() { <-started; time.Sleep(20 * time.Millisecond); s.Interrupt(sos.EndCancelled) }()
	r = s.Run(guest.SessionCommand{Text: "yes"}, fillFor(s, out, 100*time.Millisecond), func() { close(started) })
	if r.Exit.Reason != sos.EndCancelled || r.Exit.ShellEnded {
		t.Error(show(r.Exit))
	}
	want(t, s, "echo alive", "alive\n", 0)
}

// fillFor gives out, which gets room without end after a while.
func fillFor(s *Shell, out *record, d time.Duration) *record {
	time.AfterFunc(d, func() {
		out.mu.Lock()
		out.window = 0
		out.mu.Unlock()
		s.Wake()
	})
	return out
}

// TestLateOutput: what a command leaves in the background writes into its own
// record, never into another's.
func TestLateOutput(t *testing.T) {
	t.Parallel()
	s := open(t)
	var out record
	r := s.Run(guest.SessionCommand{Text: "(sleep .3; echo LATE; echo L2 >&2) & echo one", Timeout: limit}, &out, func() {})
	if r.Exit.ExitCode == nil || *r.Exit.ExitCode != 0 || !r.Exit.Survivors || out.String() != "one\n" {
		t.Fatalf("%s %q", show(r.Exit), out.String())
	}
	want(t, s, "sleep .5; echo two", "two\n", 0)
	if err := unix.SetNonblock(r.Rest, false); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(r.Rest), "rest")
	defer f.Close()
	if late, err := io.ReadAll(f); err != nil || string(late) != "LATE\nL2\n" {
		t.Errorf("%q, %v", late, err)
	}
}

func TestFullDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME, "size=1m,mode=0711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := open(t, func(c *Config) { c.Dir = dir })
	want(t, s, "v=1", "", 0)
	_, e := do(t, s, "cat >/dev/null", stdin(strings.Repeat("x", 2<<20)))
	if e.Reason != sos.EndNotRun || e.ShellEnded || !strings.Contains(e.Message, "no space") {
		t.Error(show(e))
	}
	want(t, s, "echo $v", "1\n", 0)
	do(t, s, "head -c 2m /dev/zero >"+dir+"/junk; ln "+dir+"/junk "+dir+"/j2")
	_, e = do(t, s, "echo hi; echo "+big[:5000]+" >/dev/null")
	if e.Reason != sos.EndNotRun || e.ShellEnded || e.Message == "" {
		t.Error(show(e))
	}
	if err := os.Remove(dir + "/junk"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/j2"); err != nil {
		t.Fatal(err)
	}
	want(t, s, "echo $v", "1\n", 0)
}

func TestDirectoryTakenAway(t *testing.T) {
	s := open(t)
	base := s.cfg.Dir
	want(t, s, "v=1; rm -rf "+base+"/*; (exit 4)", "", 4)
	want(t, s, "echo $v $?", "1 4\n", 0)
	want(t, s, "rm -rf "+base, "", 0) // with what it stands in
	want(t, s, "echo $v", "1\n", 0)
	want(t, s, "d=$(echo "+base+"/*); mv $d "+base+"/away; ln -s /etc $d; (exit 5)", "", 5)
	want(t, s, "echo $v $?", "1 5\n", 0)
	want(t, s, "rm -rf "+base+"/*; mkdir $d; mkdir $d/cmd $d/rc; mkfifo $d/o9; (exit 6)", "", 6)
	want(t, s, "echo $v $?", "1 6\n", 0)
	want(t, s, "rm -rf $d; for d in "+base+"/*; do mkdir $d/{o,i}{1..99} $d/rc; rm -f $d/cmd; mkdir -p $d/cmd/x; done 2>/dev/null; (exit 7)", "", 7)
	want(t, s, "cat; echo $v $?", "in1 0\n", 0, stdin("in"))
	exec.Command("rm", "-rf", base).Run()
	want(t, s, "echo alive", "alive\n", 0)
}

func TestKilled(t *testing.T) {
	t.Parallel()
	s := open(t)
	want(t, s, "sleep 88803 >/dev/null &", "", 0)
	unix.Kill(s.Pid(), unix.SIGKILL)
	<-s.Ended()
	e := s.Exit()
	if e.ExitCode == nil || *e.ExitCode != 137 || e.Signal != "SIGKILL" || e.Reason != sos.EndSignal || !e.ShellEnded {
		t.Error(show(e))
	}
	_, e = do(t, s, "echo no")
	if e.Reason != sos.EndNotRun || !e.ShellEnded {
		t.Error(show(e))
	}
	exec.Command("sh", "-c", "kill $(grep -lz '^8880[3]$' /proc/[0-9]*/cmdline | tr '/' ' ' | sed 's/proc//;s/cmdline//')").Run()

	s = open(t)
	started := make(chan struct{})
	go func() { <-started; time.Sleep(50 * time.Millisecond); unix.Kill(s.Pid(), unix.SIGKILL) }()
	var out record
	r := s.Run(guest.SessionCommand{Text: "echo before; while :; do :; done"}, &out, func() { close(started) })
	if e := r.Exit; e.ExitCode == nil || *e.ExitCode != 137 || e.Signal != "SIGKILL" || e.Reason != sos.EndSignal || !e.ShellEnded || out.String() != "before\n" {
		t.Errorf("%s %q", show(e), out.String())
	}
}

func TestStoppedShell(t *testing.T) {
	t.Parallel()
	s := open(t)
	_, e := do(t, s, "v=1; kill -STOP $$", within(300*time.Millisecond))
	if e.Reason != sos.EndTimeout || e.ShellEnded {
		t.Error(show(e))
	}
	unix.Kill(s.Pid(), unix.SIGSTOP) // while it is idle
	_, e = do(t, s, "echo hi", within(300*time.Millisecond))
	if e.Reason != sos.EndTimeout || e.ShellEnded {
		t.Error(show(e))
	}
	want(t, s, "echo $v alive", "1 alive\n", 0)
}

// TestTwoSessions: they do not wait for each other; in one, commands queue and
// their output does not mix.
func TestTwoSessions(t *testing.T) {
	t.Parallel()
	a, b := open(t), open(t)
	var wg sync.WaitGroup
	started := make(chan struct{})
	wg.Go(func() {
		r := a.Run(guest.SessionCommand{Text: "x=a; sleep 1000"}, &record{}, func() { close(started) })
		if r.Exit.Reason != sos.EndCancelled {
			t.Error(show(r.Exit))
		}
	})
	<-started
	want(t, b, "x=b; echo $x", "b\n", 0)
	a.Interrupt(sos.EndCancelled)
	wg.Wait()
	want(t, a, "echo $x", "a\n", 0)
	for i := range testutil.Scale(20) {
		for _, w := range []string{"A", "B"} {
			wg.Go(func() {
				want(t, a, "for i in 1 2 3; do echo "+w+"; sleep .002; done; (exit "+fmt.Sprint(i)+")", strings.Repeat(w+"\n", 3), i)
			})
		}
	}
	wg.Wait()
}

// TestNothingLeft: descriptors and files do not pile up.
func TestNothingLeft(t *testing.T) {
	s := open(t)
	count := func() int { return len(list("/proc/self/fd")) }
	want(t, s, ":", "", 0)
	before := count()
	for range testutil.Scale(300) {
		want(t, s, "echo x; set -u; (exit 1)", "x\n", 1, stdin("y"))
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
	if names := list(s.dir.path); len(names) > 2 {
		t.Errorf("files %v", names)
	}
}

// TestFlooded: whatever a command writes to the shell's own descriptors holds up
// neither it nor us.
func TestFlooded(t *testing.T) {
	t.Parallel()
	s := open(t)
	want(t, s, "for n in 10 11 12 255; do for ((i=0;i<3000;i++)); do echo $i 0x0123456789abcde,0/0,hB: bash: x; done >&$n; done; (exit 6)", "", 6)
	want(t, s, "(while :; do echo 0x0123456789abcde,0/0,hB: >&12; done) & (exit 7)", "", 7)
	want(t, s, "(exit 8)", "", 8)
	want(t, s, "kill $!; echo alive", "alive\n", 0)
}

func TestForkBomb(t *testing.T) {
	s := open(t)
	// Bounded by itself: the sandbox's pids limit is not here.
	_, e := do(t, s, "b() { local n=$1; ((n > 7)) && exec sleep 88804; b $((n+1)) & b $((n+1)) & wait; }; v=1; b 0", within(500*time.Millisecond))
	if e.Reason != sos.EndTimeout || e.ShellEnded {
		t.Error(show(e))
	}
	eventually(t, "end of the bomb", func() bool { return alone("88804") })
	want(t, s, "echo $v", "1\n", 0)
}
