package server_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// count is n in the long tests and a fifth of it otherwise.
func count(n int) int {
	if os.Getenv("SOS_TEST_FULL") == "" {
		n /= 5
	}
	return testutil.Scale(n)
}

// TestManyExecs: no output is ever empty, no status lost.
func TestManyExecs(t *testing.T) {
	r := newRig(t)
	n := count(5000)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				want := fmt.Sprintf("%d\n", i)
				rec := r.run("", argv("/bin/sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i%256)))
				if rec.text() != want || rec.code() != int(i%256) || rec.exit.Reason != sos.EndExit || rec.atExit != len(want) {
					t.Errorf("%d: %q %+v", i, rec.text(), rec.exit)
				}
			}
		})
	}
	wg.Wait()
}

// TestTails: the end of larger output is always there.
func TestTails(t *testing.T) {
	r := newRig(t)
	want := r.run("seq 1 200000 | tail -c 400000").text()
	for range testutil.Scale(50) {
		if got := r.run("seq 1 200000 | tail -c 400000").text(); got != want || len(got) != 400000 {
			t.Fatalf("%d bytes", len(got))
		}
	}
}

// TestOrphans: statuses beside thousands of orphans, and no zombies.
func TestOrphans(t *testing.T) {
	r := newRig(t)
	stop := make(chan struct{})
	var bg sync.WaitGroup
	for range 2 {
		bg.Go(func() {
			for !ended(stop) {
				r.run("for i in 1 2 3 4 5 6 7 8 9 10; do (true & true &) ; done >/dev/null 2>&1")
			}
		})
	}
	n := count(4000)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				rec := r.run("", argv("/bin/sh", "-c", fmt.Sprintf("exit %d", i%256)))
				if rec.code() != int(i%256) {
					t.Errorf("%d: %+v", i, rec.exit)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	bg.Wait()
	r.run("for i in $(seq 500); do (sleep 0.01 &) ; done")
	zombies := `cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | grep -c '^Z'`
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if got := strings.TrimSpace(r.run(zombies).text()); got == "0" {
			return
		} else if time.Since(begun) > 20*time.Second {
			t.Fatalf("%s zombies", got)
		}
	}
}

// cutter cuts a connection after a number of bytes.
type cutter struct {
	net.Conn
	left atomic.Int64
}

func (c *cutter) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.left.Add(int64(-n)) < 0 {
		c.Conn.Close()
	}
	return n, err
}

// TestCutConnection: random bytes arrive whole over connections that break all
// the time, into a slow sink, and everything is done once.
func TestCutConnection(t *testing.T) {
	var cuts atomic.Int64
	r := newRig(t, rigOptions{conn: func(c net.Conn) net.Conn {
		cuts.Add(1)
		cc := &cutter{Conn: c}
		cc.left.Store(rand.Int64N(6<<20) + 20_000)
		return cc
	}})
	s := newSink(t)
	s.drop = true
	s.slow = func(int) {
		if rand.IntN(50) == 0 {
			time.Sleep(3 * time.Millisecond)
		}
	}
	r.connect(s)
	dir := t.TempDir()
	size := count(100_000_000)
	rec := r.start(fmt.Sprintf("head -c %d /dev/urandom | tee %s/data; exit 5", size, dir))
	var small []*record
	for i := range 50 { // calls meanwhile, each exactly once
		small = append(small, r.start(fmt.Sprintf("echo %d >> %s/log", i, dir)))
		time.Sleep(time.Millisecond)
	}
	rec.wait(t)
	for _, p := range small {
		p.wait(t)
	}
	want, err := os.ReadFile(dir + "/data")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(want); string(sum[:]) != string(rec.hash.Sum(nil)) || len(want) != size {
		t.Errorf("hashes differ: %d bytes of %d", rec.bytes, len(want))
	}
	if rec.code() != 5 && rec.exit.Reason != sos.EndExit {
		t.Errorf("%+v", rec.exit)
	}
	log, _ := os.ReadFile(dir + "/log")
	if n := strings.Count(string(log), "\n"); n != 50 {
		t.Errorf("50 commands ran %d times", n)
	}
	if cuts.Load() < 3 {
		t.Errorf("only %d connections", cuts.Load())
	}
}

// TestNewServer: another client gets what the first has not acknowledged, every end
// that was not released, and the rest of what runs.
func TestNewServer(t *testing.T) {
	r := newRig(t)
	file := t.TempDir() + "/go"
	wait := "while [ ! -e " + file + " ]; do sleep 0.02; done; "
	rec := r.start("echo one; " + wait + "echo two; exit 4")
	waitText(t, rec, r, "one\n")
	survivor := r.run("(" + wait + ") & exit 3")
	quiet := r.start(wait + "echo x; exit 5")
	r.disconnect()
	old := r.sink
	s := newSink(t)
	copied := s.get(rec.id)
	copied.out[sos.StreamOut] = []byte(old.get(rec.id).text())
	r.connect(s)
	for _, id := range []string{rec.id, survivor.id, quiet.id} {
		if n := s.get(id).resumed; n != 1 {
			t.Errorf("%s resumed %d times", id, n)
		}
	}
	again := s.get(survivor.id)
	again.wait(t)
	if again.code() != 3 || !again.exit.Survivors {
		t.Errorf("%+v", again.exit)
	}
	r.run("touch " + file)
	copied.wait(t)
	s.get(quiet.id).wait(t)
	again.waitDrained(t)
	if copied.text() != "one\ntwo\n" || copied.code() != 4 {
		t.Errorf("%q %+v", copied.text(), copied.exit)
	}
	if q := s.get(quiet.id); q.text() != "x\n" || q.code() != 5 {
		t.Errorf("%q %+v", q.text(), q.exit)
	}
}

// TestKeptWithoutHost: output within the window is kept, beyond it the process waits.
func TestKeptWithoutHost(t *testing.T) {
	r := newRig(t)
	r.run("true")
	small := r.start("sleep 0.2; echo kept; exit 6")
	big := r.start("sleep 0.2; head -c 8000000 /dev/zero; exit 7")
	r.disconnect()
	time.Sleep(600 * time.Millisecond)
	r.connect(r.sink)
	small.wait(t)
	big.wait(t)
	if small.text() != "kept\n" || small.code() != 6 || len(big.text()) != 8_000_000 || big.code() != 7 {
		t.Errorf("%q %+v; %d bytes %+v", small.text(), small.exit, len(big.text()), big.exit)
	}
}

// TestMemory: much output leaves little memory in use.
func TestMemory(t *testing.T) {
	r := newRig(t)
	idle := r.private(t)
	var recs []*record
	for range 30 {
		recs = append(recs, r.start("head -c 3000000 /dev/zero"))
	}
	for _, rec := range recs {
		rec.wait(t)
	}
	peak := r.private(t)
	var after int
	for begun := time.Now(); time.Since(begun) < 15*time.Second; time.Sleep(100 * time.Millisecond) {
		if after = r.private(t); after < idle+2048 {
			break
		}
	}
	t.Logf("private KiB: idle %d, after 90 MB %d, then %d", idle, peak, after)
	if after >= idle+2048 || peak > 48<<10 {
		t.Errorf("private KiB: idle %d, after 90 MB %d, then %d", idle, peak, after)
	}
}

// private is the guest's own memory in KiB: what is not in a file.
func (r *rig) private(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var n int
		if _, err := fmt.Sscanf(line, "Anonymous: %d kB", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no Anonymous in\n%s", b)
	return 0
}

// BenchmarkOutput is bytes from a process to a sink that drops them.
func BenchmarkOutput(b *testing.B) {
	r := newRig(b)
	s := &null{}
	r.disconnect()
	r.connectSink(s)
	const size = 1 << 30
	b.SetBytes(size)
	for i := range b.N {
		s.run(b, r, guest.Command{ID: fmt.Sprint("bench", i), Argv: []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}})
		if s.n != size {
			b.Fatalf("%d bytes", s.n)
		}
	}
}

// BenchmarkExec is one command at a time, from start to end.
func BenchmarkExec(b *testing.B) {
	r := newRig(b)
	s := &null{}
	r.disconnect()
	r.connectSink(s)
	for i := range b.N {
		s.run(b, r, guest.Command{ID: fmt.Sprint("bench", i), Argv: []string{"/bin/true"}})
	}
}

type null struct {
	n    int64
	done chan struct{}
}

func (s *null) run(b *testing.B, r *rig, cmd guest.Command) {
	b.Helper()
	s.n, s.done = 0, make(chan struct{})
	if err := r.Start(context.Background(), cmd); err != nil {
		b.Fatal(err)
	}
	<-s.done
}

func (*null) Resume(guest.ProcessInfo) (map[sos.Stream]int64, bool) { return nil, false }
func (*null) Started(string, time.Time)                             {}
func (s *null) Output(_ string, _ sos.Stream, _ int64, data []byte) { s.n += int64(len(data)) }
func (*null) Exited(string, sos.Exit, time.Time)                    {}
func (s *null) Drained(string)                                      { close(s.done) }
func (*null) SessionEnded(string, sos.Exit)                         {}

// BenchmarkReady is from the start of the guest to its answer to hello, with the
// stripped binary that is shipped.
func BenchmarkReady(b *testing.B) {
	dir := b.TempDir()
	bin := dir + "/stripped"
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "github.com/seaofsimulation/sos/cmd/sos-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	hello := wire.Append(nil, 0, &wire.Hello{Protocol: 1, MinProtocol: 1, Client: "x"})
	for i := range b.N {
		path := fmt.Sprint(dir, "/", i)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			b.Fatal(err)
		}
		f, _ := l.File()
		cmd := exec.Command(bin)
		cmd.Env = []string{"SOS_GUEST=listen=3", "GOMAXPROCS=1"}
		cmd.ExtraFiles = []*os.File{f}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			b.Fatal(err)
		}
		c.Write(hello)
		if _, err := wire.NewReader(c, wire.MaxAnswer).Next(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		c.Close()
		f.Close()
		l.Close()
		cmd.Process.Kill()
		cmd.Wait()
		b.StartTimer()
	}
	if st, err := os.Stat(bin); err == nil {
		b.ReportMetric(float64(st.Size())/1e6, "MB")
	}
}
