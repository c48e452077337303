package spawner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

func (r *rig) wait(id string) spawn.Exit {
	r.t.Helper()
	e, err := r.client.Wait(r.ctx(), id)
	if err != nil {
		r.t.Fatalf("wait for %s: %v", id, err)
	}
	return e
}

func TestExitIsRecorded(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-exit")
	r.create(req)
	_, _ = r.try(req.ID, "exit 42")
	e := r.wait(req.ID)
	if !e.Known || e.Status != 42 || e.Signal != 0 || e.OOM || e.Killed || e.When.IsZero() {
		t.Fatalf("%+v", e)
	}
	b, err := os.ReadFile(filepath.Join(req.RunDir, spawn.ExitFile))
	if err != nil {
		t.Fatal(err)
	}
	var file spawn.Exit
	if err := json.Unmarshal(b, &file); err != nil || file.Status != 42 || !file.Known {
		t.Fatalf("%s, %v", b, err)
	}
	// Waiting again, also later, gives the same.
	if again := r.wait(req.ID); again.Status != 42 {
		t.Fatalf("%+v", again)
	}
	// A new run of the id forgets it and keeps the files.
	r.create(req)
	r.sh(req.ID, "echo saved > /root/file")
	if err := r.client.Kill(r.ctx(), req.ID); err != nil {
		t.Fatal(err)
	}
	if e := r.wait(req.ID); !e.Known || e.Signal != int(unix.SIGKILL) || !e.Killed {
		t.Fatalf("%+v", e)
	}
	r.create(req)
	if out := r.sh(req.ID, "cat /root/file; stat -c %u /root/file"); out != "saved\n0\n" {
		t.Fatalf("after a restart: %q", out)
	}
}

func TestLastWordsAndBoundedLog(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-log")
	r.create(req)
	// The test's guest gives its own descriptor 2 to nobody; root of the host can write.
	pid := r.guest(req.ID).Pid
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", pid), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := f.Write([]byte(strings.Repeat("noise ", 1000) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	// A guest's words are lost while its pipe is full, by design.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ); err != nil || time.Now().After(end) {
			t.Fatalf("the pipe still holds %d bytes (%v)", n, err)
		} else if n == 0 {
			break
		}
	}
	f.Close()
	_, _ = r.try(req.ID, "crash")
	e := r.wait(req.ID)
	if e.Status != 2 || !strings.Contains(e.Log, "these are my last words") || len(e.Log) > lastWords {
		t.Fatalf("%+v", e)
	}
	total := int64(0)
	for _, name := range []string{"log", "log.1"} {
		info, err := os.Stat(filepath.Join(req.RunDir, name))
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 2*logMax {
		t.Fatalf("log of %d bytes", total)
	}
}

func (r *rig) guest(id string) spawn.Guest {
	r.t.Helper()
	all, err := r.client.List(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, g := range all {
		if g.ID == id {
			return g
		}
	}
	r.t.Fatalf("%s is not in %+v", id, all)
	return spawn.Guest{}
}

func TestTwoSandboxesAreApart(t *testing.T) {
	r := newRig(t)
	a, b := r.request("sb-a"), r.request("sb-b")
	r.create(a)
	r.create(b)
	r.sh(a.ID, "echo secret > /root/s; chmod 600 /root/s; echo a > /etc/hostname; sleep 300 > /dev/null 2>&1 & true")
	for text, want := range map[string]string{
		"ls /root/s 2>&1":              "ls: cannot access '/root/s': No such file or directory\n[exit status 2]",
		"ps -e -o comm= | grep -c sle": "0\n[exit status 1]",
		"cat /etc/hostname":            "box-sb-b\n",
	} {
		if out := r.sh(b.ID, text); out != want {
			t.Errorf("%s: %q, want %q", text, out, want)
		}
	}
	for _, req := range []spawn.Create{a, b} {
		st, err := os.Stat(filepath.Join(req.StateDir, "u"))
		if err != nil {
			t.Fatal(err)
		}
		if uid := owner(st); uid != req.IDBase {
			t.Errorf("the files of %s are those of %d, not %d", req.ID, uid, req.IDBase)
		}
	}
}

func TestCreateIsIdempotent(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-same")
	var mu sync.Mutex
	pids := map[int]int{}
	fresh := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c, err := r.client.Create(r.ctx(), req)
			if err != nil {
				t.Error(err)
				return
			}
			unix.Close(c.Pidfd)
			mu.Lock()
			defer mu.Unlock()
			pids[c.Pid]++
			if !c.Existed {
				fresh++
			}
		})
	}
	wg.Wait()
	if len(pids) != 1 || fresh != 1 {
		t.Fatalf("pids %v, %d new", pids, fresh)
	}
}

func TestParallelCreates(t *testing.T) {
	r := newRig(t)
	const n = 20
	var wg sync.WaitGroup
	for i := range n {
		req := r.request(fmt.Sprintf("sb-%d", i))
		wg.Go(func() {
			c, err := r.client.Create(r.ctx(), req)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(c.Pidfd)
			if out, err := r.try(req.ID, "hostname"); err != nil || out != "box-"+req.ID+"\n" {
				t.Errorf("%s: %q, %v", req.ID, out, err)
			}
			if err := r.client.Kill(r.ctx(), req.ID); err != nil {
				t.Error(err)
			}
			p := []unix.PollFd{{Fd: int32(c.Pidfd), Events: unix.POLLIN}}
			if ready, err := unix.Poll(p, 0); err != nil || ready != 1 {
				t.Errorf("%s lives after kill: %d, %v", req.ID, ready, err)
			}
		})
	}
	wg.Wait()
}

// TestFailedStepsLeaveNothing breaks one thing after the other.
func TestFailedStepsLeaveNothing(t *testing.T) {
	r := newRig(t)
	ok := r.request("sb-ok")
	r.create(ok) // the others fail beside a living one
	link := filepath.Join(r.dir, "linked")
	if err := os.MkdirAll(link, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(link, "proc")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*spawn.Create)
		step   string
		errno  unix.Errno
	}{
		"missing layer":   {func(c *spawn.Create) { c.Layers = []string{"/nonexistent"} }, "open layer /nonexistent", unix.ENOENT},
		"layer is a file": {func(c *spawn.Create) { c.Layers = []string{"/etc/passwd"} }, "open layer /etc/passwd", unix.ENOTDIR},
		"no guest":        {func(c *spawn.Create) { c.GuestPath = "/nonexistent" }, "open the guest's program", unix.ENOENT},
		"/proc is a link": {func(c *spawn.Create) { c.Layers = []string{link} }, "check that the image's /proc is a directory", unix.ENOTDIR},
		"memory limit":    {func(c *spawn.Create) { c.Limits.PIDs = 1 << 40 }, "make cgroup", unix.EINVAL},
		"broken upper": {func(c *spawn.Create) {
			_ = os.Mkdir(c.StateDir, 0o700)
			_ = os.WriteFile(filepath.Join(c.StateDir, "u"), nil, 0o600)
		}, "overlay option upperdir", unix.EINVAL},
		"state dir nowhere": {func(c *spawn.Create) { c.StateDir = "/nonexistent/x" }, "make the state directory", unix.ENOENT},
	} {
		t.Run(name, func(t *testing.T) {
			req := r.request("sb-bad")
			c.change(&req)
			_, existed := os.Stat(req.StateDir)
			_, err := r.client.Create(r.ctx(), req)
			var e *spawn.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v", err)
			}
			if e.Step != c.step || !strings.HasPrefix(e.Message, c.step+": ") || unix.Errno(e.Errno) != c.errno {
				t.Errorf("step %q, errno %v, message %q", e.Step, unix.Errno(e.Errno), e.Message)
			}
			if _, err := os.Stat(req.RunDir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the run directory is left: %v", err)
			}
			if _, err := os.Stat(req.StateDir); (err == nil) != (existed == nil) {
				t.Errorf("the state directory: before %v, after %v", existed, err)
			}
			_ = os.RemoveAll(req.StateDir)
			if groups, _ := filepath.Glob("/sys/fs/cgroup/*/sos-" + r.instance + "/sb-bad"); len(groups) > 0 {
				t.Errorf("cgroups are left: %v", groups)
			}
		})
	}
	// Nothing was left running: the spawner has one child. The holders of namespaces
	// are collected behind the answer.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		out, err := children(r.cmd.Process.Pid)
		if err == nil && len(out) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("children of the spawner: %v, %v", out, err)
			break
		}
	}
	if out := r.sh(ok.ID, "echo fine"); out != "fine\n" {
		t.Errorf("the living one: %q", out)
	}
}

// TestBareImage: an image may have nothing but a program.
func TestBareImage(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-bare")
	bare := filepath.Join(r.dir, "bare")
	if err := os.MkdirAll(bare, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(bare, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	// As distributions with systemd have it: the target is not there.
	if err := os.Symlink("../run/systemd/resolve/stub-resolv.conf", filepath.Join(bare, "etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	req.Layers = []string{bare}
	pid := r.create(req).Pid
	root := fmt.Sprintf("/proc/%d/root/", pid)
	for _, path := range []string{"proc/1", "dev/null", "sys/class", "etc/hosts", "etc/resolv.conf", "workspace", "tmp"} {
		if _, err := os.Stat(root + path); err != nil {
			t.Error(err)
		}
	}
}

// TestManyLayers: 127 of them, the highest wins, both ways.
func TestManyLayers(t *testing.T) {
	for _, how := range []string{overlayFD, overlayAttach} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, "-overlay", how)
			req := r.request("sb-many")
			for i := 1; i < spawn.MaxLayers; i++ {
				dir := filepath.Join(r.dir, fmt.Sprintf("layer%d", i))
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"top", fmt.Sprintf("l%d", i)} {
					if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "%d\n", i), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				req.Layers = append(req.Layers, dir)
			}
			r.create(req)
			if out := r.sh(req.ID, "cat /top; ls -d /l[0-9]* | wc -l; stat -c %u /top"); out != "126\n126\n0\n" {
				t.Fatalf("inside: %q", out)
			}
		})
	}
}

func TestDeadClientChangesNothing(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-dead")
	c, err := spawn.Dial(r.ctx(), filepath.Join(r.run(), spawn.Socket))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if created, err := c.Create(r.ctx(), req); err == nil {
			unix.Close(created.Pidfd)
		}
	}()
	// Cut off as soon as the create has begun.
	r.until("the create begins", func() bool { _, err := os.Stat(req.RunDir); return err == nil })
	c.Close()
	<-done
	r.until("the create ends well", func() bool {
		all, err := r.client.List(r.ctx())
		return err == nil && len(all) == 1 && all[0].Running
	})
	if out := r.sh(req.ID, "echo here"); out != "here\n" {
		t.Fatalf("%q", out)
	}
}

func TestOnlyOneSpawner(t *testing.T) {
	r := newRig(t)
	err := New(Config{RunDir: r.run(), Instance: r.instance, Log: discard()}).Run(r.ctx())
	if err == nil || !strings.Contains(err.Error(), "another spawner") {
		t.Fatalf("a second one: %v", err)
	}
}

func TestKillOfAnUnknownIsNil(t *testing.T) {
	r := newRig(t)
	for _, f := range []func() error{
		func() error { return r.client.Kill(r.ctx(), "sb-none") },
		func() error { return r.client.Forget(r.ctx(), "sb-none") },
	} {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
	var e *spawn.Error
	if _, err := r.client.Wait(r.ctx(), "sb-none"); !errors.As(err, &e) || e.Code != spawn.CodeNotFound {
		t.Errorf("wait: %v", err)
	}
	req := r.request("sb-live")
	r.create(req)
	if err := r.client.Forget(r.ctx(), req.ID); !errors.As(err, &e) || e.Code != spawn.CodeInvalid {
		t.Errorf("forget of one that runs: %v", err)
	}
}

// TestGuestMustBeGuarded: a guest that others may read is refused, since then the
// kernel would not guard its memory.
func TestGuestMustBeGuarded(t *testing.T) {
	r := newRig(t)
	req := r.request("sb-open")
	b, err := os.ReadFile(req.GuestPath)
	if err != nil {
		t.Fatal(err)
	}
	req.GuestPath = filepath.Join(r.dir, "open-guest")
	if err := os.WriteFile(req.GuestPath, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Create(r.ctx(), req); err == nil || !strings.Contains(err.Error(), "mode 711") {
		t.Fatalf("error %v", err)
	}
}
