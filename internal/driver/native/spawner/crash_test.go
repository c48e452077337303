package spawner

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
	"github.com/seaofsimulation/sos/internal/testutil"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func owner(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// children gives the child processes of a process.
func children(pid int) ([]string, error) {
	var all []string
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			return nil, err
		}
		all = append(all, strings.Fields(string(b))...)
	}
	return all, err
}

// TestAdoption: sandboxes outlive a spawner that was killed, and the next one still
// tells how they ended.
func TestAdoption(t *testing.T) {
	r := newRig(t)
	var reqs []spawn.Create
	for i := range 4 {
		reqs = append(reqs, r.request(fmt.Sprintf("sb-%d", i)))
		r.create(reqs[i])
	}
	r.sh("sb-0", "echo before > /root/x")
	_, _ = r.try("sb-3", "exit 3")
	r.wait("sb-3")
	r.kill()
	if out := r.sh("sb-0", "cat /root/x"); out != "before\n" {
		t.Fatalf("without a spawner: %q", out)
	}
	r.start()
	for _, id := range []string{"sb-0", "sb-1", "sb-2"} {
		if g := r.guest(id); !g.Running || !g.Foreign {
			t.Errorf("%+v", g)
		}
	}
	if g := r.guest("sb-3"); g.Running || g.Exit.Status != 3 {
		t.Errorf("%+v", g)
	}
	if out := r.sh("sb-0", "cat /root/x; echo more"); out != "before\nmore\n" {
		t.Fatalf("adopted: %q", out)
	}
	_, _ = r.try("sb-0", "exit 17")
	if e := r.wait("sb-0"); !e.Known || e.Status != 17 {
		t.Errorf("exit of an adopted one: %+v", e)
	}
	_, _ = r.try("sb-1", "crash")
	if e := r.wait("sb-1"); !e.Known || e.Status != 2 || !strings.Contains(e.Log, "my last words") {
		t.Errorf("crash of an adopted one: %+v", e)
	}
	if err := r.client.Kill(r.ctx(), "sb-2"); err != nil {
		t.Fatal(err)
	}
	if e := r.wait("sb-2"); !e.Known || e.Signal != int(unix.SIGKILL) || !e.Killed {
		t.Errorf("kill of an adopted one: %+v", e)
	}
	r.create(reqs[2])
	if g := r.guest("sb-2"); !g.Running || g.Foreign {
		t.Errorf("started again: %+v", g)
	}
}

// TestEndsWithoutASpawner: what nobody saw is said to be unknown.
func TestEndsWithoutASpawner(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-lost")
	pid := r.create(req).Pid
	r.kill()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	_, _ = r.try(req.ID, "exit 0")
	r.until("init has reaped it", func() bool {
		return unix.PidfdSendSignal(pidfd, 0, nil, 0) == unix.ESRCH
	})
	r.start()
	e := r.wait(req.ID)
	if e.Known {
		t.Fatalf("made up: %+v", e)
	}
}

// TestForgedRecord: a record that names somebody else's process is no guest.
func TestForgedRecord(t *testing.T) {
	r := newRig(t)
	r.kill()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	for id, record := range map[string]spawn.Record{
		"sb-f1": {Pid: os.Getpid(), StartTime: 5, BootID: strings.TrimSpace(string(boot)), Cgroup: "sb-f1", IDBase: 1 << 20},
		"sb-f2": {Pid: os.Getpid(), StartTime: selfStart(t), BootID: "another", Cgroup: "sb-f2", IDBase: 1 << 20},
	} {
		dir := filepath.Join(r.run(), id)
		if err := os.Mkdir(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		if err := writeRecord(dir, record); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	for _, id := range []string{"sb-f1", "sb-f2"} {
		if g := r.guest(id); g.Running || g.Exit.Known {
			t.Errorf("%+v", g)
		}
		if err := r.client.Kill(r.ctx(), id); err != nil { // and it does not kill us
			t.Error(err)
		}
	}
}

func selfStart(t *testing.T) uint64 {
	st, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return st.start
}

// TestStrayGroups: what a create that was cut off left is removed at the next start.
func TestStrayGroups(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-stray")
	r.create(req)
	pid := r.guest(req.ID).Pid
	r.kill()
	if err := os.Remove(filepath.Join(req.RunDir, spawn.RecordFile)); err != nil {
		t.Fatal(err)
	}
	r.start()
	if err := unix.Kill(pid, 0); err == nil {
		st, err := readStat(pid)
		if err == nil && st.state != 'Z' {
			t.Errorf("a guest without a record lives: %c", st.state)
		}
	}
	if groups, _ := filepath.Glob("/sys/fs/cgroup/*/sos-" + r.instance + "/sb-stray"); len(groups) > 0 {
		t.Errorf("left: %v", groups)
	}
}

// TestUserOOM: the kernel takes the user's process; the guest lives and sees it in
// the descriptor that it was given.
func TestUserOOM(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-oom")
	req.Limits.Memory = 32 << 20
	r.create(req)
	out := r.sh(req.ID, "tail /dev/zero; echo status $?")
	if !strings.Contains(out, "status 137") {
		t.Errorf("inside: %q", out)
	}
	for range 3 {
		_, _ = r.try(req.ID, "for i in {1..8}; do (head -c 16m /dev/zero | tail | sleep 1) & done; wait")
	}
	if out := r.sh(req.ID, "echo alive"); out != "alive\n" {
		t.Errorf("after that: %q", out)
	}
	counters, _ := filepath.Glob("/sys/fs/cgroup/memory/sos-" + r.instance + "/sb-oom/user/memory.oom_control")
	if len(counters) == 1 {
		b, err := os.ReadFile(counters[0])
		if err != nil || strings.Contains(string(b), "oom_kill 0\n") {
			t.Errorf("%s, %v", b, err)
		}
	}
	if err := r.client.Kill(r.ctx(), req.ID); err != nil {
		t.Fatal(err)
	}
	if e := r.wait(req.ID); e.OOM {
		t.Errorf("a kill is not an OOM: %+v", e)
	}
}

// TestForkBomb: it stays within its limit, the guest answers beside it, and Kill
// ends all of it.
func TestForkBomb(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-bomb")
	req.Limits.PIDs = 80
	r.create(req)
	_ = r.sh(req.ID, "b() { b | b & }; (b; sleep 100) > /dev/null 2>&1 & exec sleep 0.3")
	procs, err := filepath.Glob("/sys/fs/cgroup/*/sos-" + r.instance + "/sb-bomb/user/pids.max")
	if err != nil || len(procs) != 1 {
		t.Fatalf("%v, %v", procs, err)
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(procs[0]), "pids.peak"))
	peak, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil || peak < 40 || peak > 80 {
		t.Errorf("peak %q, %v", b, err)
	}
	if g := r.guest(req.ID); !g.Running {
		t.Errorf("%+v", g)
	}
	if err := r.client.Kill(r.ctx(), req.ID); err != nil {
		t.Fatal(err)
	}
	if e := r.wait(req.ID); !e.Killed || e.Signal != 9 {
		t.Errorf("%+v", e)
	}
}

func TestQuitLeavesGuests(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-quit")
	r.create(req)
	if err := r.client.Quit(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("the spawner ended with %v", err)
	}
	r.client.Close()
	if out := r.sh(req.ID, "echo on"); out != "on\n" {
		t.Fatalf("%q", out)
	}
	r.start()
	if g := r.guest(req.ID); !g.Running {
		t.Fatalf("%+v", g)
	}
}

// TestKillOfAFrozenSandbox: frozen processes do not die by themselves.
func TestKillOfAFrozenSandbox(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-ice")
	r.create(req)
	r.sh(req.ID, "for i in 1 2 3; do sleep 300 > /dev/null 2>&1 & done")
	h, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := h.Tree("sos-" + r.instance)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Open(req.ID).Freeze(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Kill(r.ctx(), req.ID); err != nil {
		t.Fatal(err)
	}
	if e := r.wait(req.ID); !e.Known || !e.Killed {
		t.Errorf("%+v", e)
	}
}

// TestKilledDuringCreates: whatever step a create was at when the spawner was
// killed, the next one either knows the sandbox or nothing of it is left.
func TestKilledDuringCreates(t *testing.T) {
	r := newRig(t)
	for round := range testutil.Scale(8) {
		var wg sync.WaitGroup
		for i := range 6 {
			req := r.request(fmt.Sprintf("sb-%d-%d", round, i))
			wg.Go(func() {
				if c, err := r.client.Create(r.ctx(), req); err == nil {
					unix.Close(c.Pidfd)
				}
			})
		}
		time.Sleep(time.Duration(round*5) * time.Millisecond) // somewhere in between: any moment will do
		r.kill()
		wg.Wait()
		r.start()
		guests, err := r.client.List(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		alive := 0
		for _, g := range guests {
			if !g.Running {
				continue
			}
			alive++
			if out := r.sh(g.ID, "echo well"); out != "well\n" {
				t.Errorf("%s: %q", g.ID, out)
			}
		}
		// One spawner and the guests that it knows.
		r.until(fmt.Sprintf("only %d guests are left", alive), func() bool { return len(r.processes()) == 1+alive })
		for _, g := range guests {
			if err := r.client.Kill(r.ctx(), g.ID); err != nil {
				t.Error(err)
			}
		}
	}
}
