package spawner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// TestOnVersion2 makes a sandbox on the unified hierarchy, whatever this host uses
// for its limits: the guest is born in its group, and users join by the descriptor.
func TestOnVersion2(t *testing.T) {
	h, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	if h.Version == 1 {
		h = &cgroup.Host{Version: 2, Root: "/sys/fs/cgroup/unified"} // without controllers
	}
	r := &rig{t: t, dir: t.TempDir(), instance: fmt.Sprintf("t%d-v2", os.Getpid())}
	r.base.Store(1 << 20)
	ctx, quit := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- New(Config{RunDir: r.run(), Instance: r.instance, Log: discard(), Cgroups: h}).Run(ctx)
	}()
	defer func() {
		quit()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if tree, err := h.Tree("sos-" + r.instance); err != nil || tree.Remove() != nil {
			t.Errorf("a cgroup is left: %v", err)
		}
	}()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if r.client, err = spawn.Dial(ctx, filepath.Join(r.run(), spawn.Socket)); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer r.client.Close()

	req := r.request("sb-v2")
	c, err := r.client.Create(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(c.Pidfd)
	where := "0::/sos-" + r.instance + "/sb-v2"
	if got := proc(t, c.Pid, "cgroup"); !strings.Contains(got, where+"/guest\n") {
		t.Errorf("the guest is in %s", got)
	}
	r.sh(req.ID, "sleep 300 > /dev/null 2>&1 &")
	b, err := os.ReadFile(filepath.Join(h.Root, "sos-"+r.instance, req.ID, "user/cgroup.procs"))
	if err != nil || len(strings.Fields(string(b))) != 1 {
		t.Errorf("in the user level: %q, %v", b, err)
	}
	if out := r.sh(req.ID, "grep ^0: /proc/self/cgroup"); out != "0::/../user\n" && out != "0::/user\n" {
		t.Errorf("a user's process sees %q", out)
	}
	if err := r.client.Kill(ctx, req.ID); err != nil {
		t.Fatal(err)
	}
	if e := r.wait(req.ID); !e.Known || !e.Killed {
		t.Errorf("%+v", e)
	}
	if _, err := os.Stat(filepath.Join(h.Root, "sos-"+r.instance, req.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is left: %v", err)
	}
}
