package server_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// TestTimeout: everything that a command started is gone at its time, whatever it
// does against that, and what it printed stays.
func TestTimeout(t *testing.T) {
	r := newRig(t)
	const limit, grace = 300 * time.Millisecond, 200 * time.Millisecond
	for name, c := range map[string]struct{ text, out string }{
		"sleep":                  {"echo first; sleep 701", "first\n"},
		"partial output":         {"head -c 5000000 /dev/zero; sleep 702", strings.Repeat("\x00", 5000000)},
		"children and setsid":    {`(trap "" TERM INT; while :; do :; done) & setsid sleep 703 & echo x; wait`, "x\n"},
		"ignores TERM":           {`trap "" TERM; echo x; while :; do sleep 704; done`, "x\n"},
		"child ignores TERM":     {`echo x; bash -c 'trap "" TERM; while :; do sleep 705; done' & sleep 706`, "x\n"},
		"double fork":            {`echo x; (setsid bash -c 'trap "" TERM; sleep 707; sleep 708' &) ; sleep 709`, "x\n"},
		"daemon, then waits":     {`echo x; (setsid setsid sleep 710 >/dev/null 2>&1 </dev/null &); exec sleep 711`, "x\n"},
		"stopped":                {`echo x; kill -STOP $$; echo y`, "x\n"},
		"stopped child":          {`echo x; sleep 712 & kill -STOP $!; wait`, "x\n"},
		"handler that exits 0":   {`trap 'echo bye; exit 0' TERM; echo x; while :; do :; done`, "x\nbye\n"},
		"starts more and more":   {`trap "" TERM; echo x; while :; do sleep 713 & sleep 0.01; done`, "x\n"},
		"orphans more and more":  {`trap "" TERM; echo x; while :; do (setsid sleep 714 &) ; sleep 0.01; done`, "x\n"},
		"flood":                  {`echo x; exec yes >/dev/null`, "x\n"},
		"TERM starts a new one":  {`exec 2>/dev/null; trap 'sleep 715 & sleep 716' TERM; echo x; while :; do sleep 0.05; done`, "x\n"},
		"children that multiply": {`f() { (trap "" TERM; sleep 0.2; f) & (trap "" TERM; sleep 717) & wait; }; echo x; f`, "x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			rec := r.run(c.text, timeout(limit, grace))
			took := time.Since(begun)
			if rec.text() != c.out {
				t.Errorf("%d bytes of output, want %d: %.50q", len(rec.text()), len(c.out), rec.text())
			}
			if rec.exit.Reason != sos.EndTimeout || rec.exit.Survivors {
				t.Errorf("%+v", rec.exit)
			}
			if took < limit || took > limit+grace+10*time.Second {
				t.Errorf("took %v", took)
			}
			rec.waitDrained(t)
			if left := r.ps(); left != "" {
				t.Errorf("left over:\n%s", left)
			}
		})
	}
}

// TestForkBomb: bounded in number by a limit, as a sandbox is.
func TestForkBomb(t *testing.T) {
	r := newRig(t)
	rec := r.run(`ulimit -u 300; bomb() { trap "" TERM; bomb & bomb & }; echo x; bomb; sleep 801`,
		timeout(500*time.Millisecond, 200*time.Millisecond), func(c *guest.Command) { c.User = "daemon" })
	if rec.exit.Reason != sos.EndTimeout || !strings.HasPrefix(rec.text(), "x\n") {
		t.Errorf("%+v %.60q", rec.exit, rec.text())
	}
	r.waitGone("bomb")
}

// TestExitStands: an end that came before the first signal is no timeout, and
// survivors are left alone by a timeout that comes later.
func TestExitStands(t *testing.T) {
	r := newRig(t)
	rec := r.run("echo x; sleep 720 & exit 3", timeout(400*time.Millisecond, time.Second))
	if rec.code() != 3 || rec.exit.Reason != sos.EndExit || !rec.exit.Survivors {
		t.Errorf("%+v", rec.exit)
	}
	time.Sleep(500 * time.Millisecond) // past its timeout: nothing must happen
	if !strings.Contains(r.ps(), "sleep 720") {
		t.Error("the survivor was killed")
	}
	for range 30 { // on the edge, either end is right, but never mixed
		rec := r.run("sleep 0.03; exit 7", timeout(32*time.Millisecond, time.Second))
		switch rec.exit.Reason {
		case sos.EndExit:
			if rec.code() != 7 {
				t.Errorf("%+v", rec.exit)
			}
		case sos.EndTimeout:
		default:
			t.Errorf("%+v", rec.exit)
		}
	}
}

// TestSlowHostKeepsExit: a command that ended in time did so, however long the
// host takes over its output.
func TestSlowHostKeepsExit(t *testing.T) {
	r := newRig(t)
	r.sink.slow = func(n int) { time.Sleep(time.Duration(n) * 100 * time.Nanosecond) } // 10 MB/s
	rec := r.run("head -c 6000000 /dev/zero; exit 3", timeout(20*time.Second, time.Second))
	if rec.code() != 3 || rec.exit.Reason != sos.EndExit || len(rec.text()) != 6000000 {
		t.Errorf("%+v, %d bytes", rec.exit, len(rec.text()))
	}
}

// TestTimeoutWithoutHost: the guest needs nobody for it.
func TestTimeoutWithoutHost(t *testing.T) {
	r := newRig(t)
	rec := r.start("echo first; sleep 730", timeout(200*time.Millisecond, 100*time.Millisecond))
	early := r.start("sleep 0.05; exit 9")
	r.disconnect()
	time.Sleep(time.Second)
	r.connect(r.sink)
	rec.wait(t)
	early.wait(t)
	if rec.exit.Reason != sos.EndTimeout || rec.text() != "first\n" || rec.at.Sub(rec.started) > 900*time.Millisecond {
		t.Errorf("%+v %q after %v", rec.exit, rec.text(), rec.at.Sub(rec.started))
	}
	if early.code() != 9 {
		t.Errorf("%+v", early.exit)
	}
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	rec := r.start("trap '' TERM; echo x; sleep 740 & wait; while :; do sleep 741; done")
	waitText(t, rec, r, "x\n")
	if err := r.Cancel(r.ctx(20), rec.id, sos.EndCancelled, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	rec.wait(t)
	if rec.exit.Reason != sos.EndCancelled || rec.exit.Signal != "SIGKILL" || rec.text() != "x\n" {
		t.Errorf("%+v", rec.exit)
	}
	// A second cancel does not wait for the grace of the first.
	rec = r.start("trap '' TERM; echo x; while :; do sleep 742; done")
	waitText(t, rec, r, "x\n")
	r.Cancel(r.ctx(20), rec.id, sos.EndDiskLimit, time.Hour)
	r.Cancel(r.ctx(20), rec.id, sos.EndCancelled, time.Hour)
	rec.wait(t)
	if rec.exit.Reason != sos.EndDiskLimit {
		t.Errorf("%+v", rec.exit)
	}
	if left := r.ps(); left != "" {
		t.Errorf("left over:\n%s", left)
	}
	if err := r.Cancel(r.ctx(20), rec.id, sos.EndCancelled, 0); err != nil {
		t.Errorf("cancel of what has ended: %v", err)
	}
}

// waitText waits until a process has printed text. The sink must not be slow.
func waitText(t *testing.T, rec *record, r *rig, text string) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		r.sink.mu.Lock()
		got := rec.text()
		r.sink.mu.Unlock()
		if got == text {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("%q, want %q", got, text)
		}
	}
}

func TestSignal(t *testing.T) {
	r := newRig(t)
	rec := r.start("trap 'echo got INT; exit 5' INT; echo ready; while :; do sleep .05; done")
	waitText(t, rec, r, "ready\n")
	if err := r.Signal(r.ctx(20), rec.id, int(syscall.SIGINT)); err != nil {
		t.Fatal(err)
	}
	rec.wait(t)
	if rec.text() != "ready\ngot INT\n" || rec.code() != 5 || rec.exit.Reason != sos.EndExit {
		t.Errorf("%q %+v", rec.text(), rec.exit)
	}
	if err := r.Signal(r.ctx(20), rec.id, 15); sos.ErrorCode(err) != sos.CodeNotFound {
		t.Errorf("signal to what has ended: %v", err)
	}
	if err := r.Signal(r.ctx(20), "none", 15); sos.ErrorCode(err) != sos.CodeNotFound {
		t.Errorf("signal to nobody: %v", err)
	}
}

// TestGuestSurvivesSignals: no signal from inside ends process 1.
func TestGuestSurvivesSignals(t *testing.T) {
	r := newRig(t)
	rec := r.run(`for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; command -v python3 >/dev/null && python3 - <<'PY'
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
for s in range(1, 65):
    info = ctypes.create_string_buffer(struct.pack("iii", s, 0, -1) + b"\0" * 116)  # SI_QUEUE
    libc.syscall(129, 1, s, info)
PY
echo done`)
	if !strings.Contains(rec.text(), "done") {
		t.Errorf("%q", rec.text())
	}
	if rec := r.run("echo alive; cat /proc/1/status | grep -E '^(State|Threads)' | wc -l"); !strings.HasPrefix(rec.text(), "alive\n2") {
		t.Errorf("%q", rec.text())
	}
	if err := r.Ping(r.ctx(20)); err != nil {
		t.Error(err)
	}
}

// TestStoppedGuest: calls end by their deadlines when the guest does not answer.
func TestStoppedGuest(t *testing.T) {
	r := newRig(t)
	r.cmd.Process.Signal(syscall.SIGSTOP)
	for begun := time.Now(); !strings.Contains(hostStat(t, r), ") T "); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("the guest does not stop")
		}
	}
	ctx := r.ctx(1)
	if err := r.Ping(ctx); sos.ErrorCode(err) != sos.CodeUnavailable {
		t.Errorf("ping: %v", err)
	}
	err := r.Start(ctx, guest.Command{ID: "late", Argv: []string{"true"}})
	if sos.ErrorCode(err) != sos.CodeUnavailable {
		t.Errorf("start: %v", err)
	}
	r.cmd.Process.Signal(syscall.SIGCONT)
	if err := r.Ping(r.ctx(20)); err != nil {
		t.Errorf("after CONT: %v", err)
	}
}

func hostStat(t *testing.T, r *rig) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(r.cmd.Process.Pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
