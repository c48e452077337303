package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/sysprog"
)

// trees gives the trees that this host can have for real: that of the detected
// version, and version 2 without controllers where a unified hierarchy is mounted
// beside version 1.
func trees(t *testing.T) map[string]Tree {
	t.Helper()
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("sos-test-%d-%s", os.Getpid(), strings.ToLower(filepath.Base(t.Name())))
	host, err := h.Tree(name)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Tree{fmt.Sprintf("v%d", h.Version): host}
	if _, err := os.Stat("/sys/fs/cgroup/unified/cgroup.procs"); err == nil {
		if all["v2"], err = newV2("/sys/fs/cgroup/unified", name, nil, realDirs{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, tree := range all {
			ids, _ := tree.List()
			for _, id := range ids {
				_ = tree.Open(id).Kill(within(t, 10*time.Second))
				_ = tree.Open(id).Remove(within(t, 10*time.Second))
			}
			if err := tree.Remove(); err != nil {
				t.Error(err)
			}
		}
	})
	return all
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// start runs a shell text in the user level, as a guest's child would.
func start(t *testing.T, g Group, text string) (pid int) {
	t.Helper()
	files, err := g.Join() // what the guest did before, where there is no user level
	if err != nil {
		t.Fatal(err)
	}
	user, err := g.UserJoin()
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, user...)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := sysprog.New()
	for _, f := range files {
		p.Write("join "+f.Name(), int(f.Fd()), "0")
	}
	fd := int(null.Fd())
	p.Files([]int{fd, fd, fd})
	p.CloseOnExecFrom(3)
	p.Exec("/bin/bash", []string{"bash", "-c", text}, []string{"PATH=/usr/bin:/bin"})
	pid, _, err = p.Fork(0, sysprog.ForkOptions{})
	for _, f := range append(files, null) {
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	})
	return pid
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if err := until(within(t, 20*time.Second), func() (bool, error) { return ok(), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// procs gives the members of every level.
func procs(t *testing.T, g Group) []int {
	t.Helper()
	var dirs []string
	switch g := g.(type) {
	case *v1Group:
		dirs = g.dirs()
	case *v2Group:
		dirs = g.all()
	}
	pids, err := members(dirs)
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

func TestLifeOfAGroup(t *testing.T) {
	for name, tree := range trees(t) {
		t.Run(name, func(t *testing.T) {
			g, err := tree.Create("sb-a", Limits{CPU: 0.5, Memory: 64 << 20, PIDs: 32})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tree.Create("sb-a", Limits{}); !errors.Is(err, os.ErrExist) {
				t.Fatalf("a second one: %v", err)
			}
			if ids, err := tree.List(); err != nil || len(ids) != 1 || ids[0] != "sb-a" {
				t.Fatalf("list %v, %v", ids, err)
			}
			pid := start(t, g, "while :; do :; done")
			eventually(t, "cpu is counted", func() bool {
				s, err := g.Stats()
				return err == nil && s.CPU > 20*time.Millisecond
			})
			if err := g.Freeze(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			before, _ := g.Stats()
			cpu := procCPU(t, pid)
			time.Sleep(50 * time.Millisecond) // time passes; a frozen one does not use it
			after, _ := g.Stats()
			if procCPU(t, pid) != cpu || after.CPU-before.CPU > 10*time.Millisecond {
				t.Errorf("used cpu while frozen: %v", after.CPU-before.CPU)
			}
			if err := g.Thaw(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "goes on", func() bool { return procCPU(t, pid) > cpu })
			if err := g.Freeze(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := g.Kill(within(t, 10*time.Second)); err != nil { // frozen as it is
				t.Fatal(err)
			}
			if p := procs(t, g); len(p) != 0 {
				t.Fatalf("left: %v", p)
			}
			if err := g.Remove(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
			for _, f := range []func(context.Context) error{g.Kill, g.Remove} {
				if err := f(within(t, time.Second)); err != nil {
					t.Errorf("a second time: %v", err)
				}
			}
			if _, err := g.Stats(); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("stats of nothing: %v", err)
			}
		})
	}
}

// procCPU gives user and system ticks of a process.
func procCPU(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b))
	return fmt.Sprintf("%10s+%10s", f[13], f[14])
}

func TestForkBomb(t *testing.T) {
	for name, tree := range trees(t) {
		t.Run(name, func(t *testing.T) {
			limit := 64
			g, err := tree.Create("sb-bomb", Limits{CPU: 1, Memory: 256 << 20, PIDs: limit})
			if err != nil {
				t.Fatal(err)
			}
			// It also ends by itself, should the limit not hold.
			bomb := "ulimit -u 4000; b() { b | b & }; b; sleep 1000"
			if tree.Version() == 2 {
				bomb = "for i in {1..60}; do (while :; do sleep 0.01; done) & done; wait" // no pids controller here
			}
			start(t, g, bomb)
			eventually(t, "grows", func() bool { return len(procs(t, g)) > limit/2 })
			if n := len(procs(t, g)); tree.Version() == 1 && n > limit {
				t.Fatalf("%d processes; the limit is %d", n, limit)
			}
			if err := g.Kill(within(t, 20*time.Second)); err != nil {
				t.Fatal(err)
			}
			if p := procs(t, g); len(p) != 0 {
				t.Fatalf("left: %v", p)
			}
			if err := g.Remove(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The way for kernels without cgroup.kill works on version 2 as well.
func TestKillByFreezingOnV2(t *testing.T) {
	tree := trees(t)["v2"]
	if tree == nil {
		t.Fatal("no unified hierarchy here")
	}
	group, err := tree.Create("sb-old", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	g := group.(*v2Group)
	start(t, g, "sleep 1000 & sleep 1000 & wait")
	eventually(t, "started", func() bool { return len(procs(t, g)) == 3 })
	err = killByFreezing(within(t, 10*time.Second), g.all(), func(state string) error {
		return write(g.dir(""), "cgroup.freeze", map[string]int64{"FROZEN": 1, "THAWED": 0}[state])
	})
	if err != nil || len(procs(t, g)) != 0 {
		t.Fatalf("%v, left %v", err, procs(t, g))
	}
}

func TestOOMIsCounted(t *testing.T) {
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	tree := trees(t)[fmt.Sprintf("v%d", h.Version)]
	g, err := tree.Create("sb-oom", Limits{Memory: 24 << 20})
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.OOM()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	start(t, g, "tail /dev/zero; sleep 1000")
	eventually(t, "an OOM kill", func() bool {
		s, err := g.Stats()
		return err == nil && s.OOMKills > 0
	})
	b := make([]byte, 256)
	n, _ := f.ReadAt(b, 0)
	if !strings.Contains(string(b[:n]), "oom_kill 1") && !strings.Contains(string(b[:n]), "oom_kill 2") {
		t.Fatalf("the open file says %q", b[:n])
	}
	s, err := g.Stats()
	if err != nil || s.GuestOOMKills != 0 || s.Peak < 16<<20 || s.Peak > 25<<20 {
		t.Fatalf("%+v, %v", s, err)
	}
}

// A process is born in the guest's level on version 2, and moves itself there on
// version 1.
func TestGuestLevel(t *testing.T) {
	for name, tree := range trees(t) {
		t.Run(name, func(t *testing.T) {
			g, err := tree.Create("sb-guest", Limits{PIDs: 8, Memory: 32 << 20})
			if err != nil {
				t.Fatal(err)
			}
			join, err := g.Join()
			if err != nil {
				t.Fatal(err)
			}
			dir, err := g.Dir()
			if err != nil {
				t.Fatal(err)
			}
			p := sysprog.New()
			for _, f := range join {
				defer f.Close()
				p.Write("join", int(f.Fd()), "0")
			}
			p.CloseOnExecFrom(3)
			p.Exec("/bin/sleep", []string{"sleep", "1000"}, nil)
			opt := sysprog.ForkOptions{}
			if dir != nil {
				defer dir.Close()
				opt.Cgroup = int(dir.Fd())
			}
			pid, _, err := p.Fork(0, opt)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = unix.Kill(pid, unix.SIGKILL)
				_, _ = unix.Wait4(pid, nil, 0, nil)
			})
			out, err := exec.Command("grep", "-c", "/sb-guest/guest$", fmt.Sprintf("/proc/%d/cgroup", pid)).Output()
			want := map[int]string{1: "3", 2: "1"}[tree.Version()]
			if strings.TrimSpace(string(out)) != want {
				t.Errorf("groups at the guest's level: %s, want %s (%v)", out, want, err)
			}
			if err := g.Kill(within(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	for name, tree := range trees(t) {
		t.Run(name, func(t *testing.T) {
			if tree.Version() == 2 {
				t.Run("fake", func(t *testing.T) { fakeFailure(t) })
				return
			}
			if _, err := tree.Create("sb-bad", Limits{Memory: 64 << 20, PIDs: -1}); err != nil {
				t.Fatalf("negative is no limit: %v", err)
			}
			if err := tree.Open("sb-bad").Remove(within(t, time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := tree.Create("sb-bad", Limits{PIDs: 1 << 40}); err == nil {
				t.Fatal("no error")
			}
			if ids, err := tree.List(); err != nil || len(ids) != 0 {
				t.Fatalf("left %v, %v", ids, err)
			}
		})
	}
}
