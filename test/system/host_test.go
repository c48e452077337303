package system

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/client"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// private runs the server in a mount namespace of its own, in which a script has
// changed the host.
func private(script string) []string {
	return []string{"unshare", "--mount", "sh", "-ec", script + `; exec "$@"`, "sh"}
}

// TestSickHosts: a server on a host that lacks something says so in its first
// lines, in /health and in the failing call, with what to do, and half makes
// nothing.
func TestSickHosts(t *testing.T) {
	zero := filepath.Join(t.TempDir(), "zero")
	if err := os.WriteFile(zero, []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		under []string
		data  func(t *testing.T, dir string) // prepares where the data directory is
		cause string                         // of which all three speak
	}{
		{name: "no capabilities", under: []string{"setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"}, cause: "capabilities"},
		{name: "root of a user namespace only", under: []string{"unshare", "--user", "--map-root-user"}, cause: "user namespace"},
		{name: "user namespaces are off", under: private("mount --bind " + zero + " /proc/sys/user/max_user_namespaces"), cause: "max_user_namespaces"},
		{name: "no cgroups", under: private("mount -t tmpfs none /sys/fs/cgroup"), cause: "limits cannot be set"},
		{name: "cgroups cannot be written", under: private("for d in $(awk '$5 ~ \"^/sys/fs/cgroup/\" {print $5}' /proc/self/mountinfo) /sys/fs/cgroup; do mount -o remount,bind,ro $d; done"), cause: "limits cannot be set"},
		{name: "data on an overlay", data: onOverlay, cause: "overlay"},
		{name: "data without attributes", data: onRamfs, cause: "ramfs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if c.data != nil {
				c.data(t, dir)
			}
			data := filepath.Join(dir, "data")
			srv, err := testutil.StartServer(testutil.ServerConfig{Bin: testutil.Binary(t), Data: data, Under: c.under})
			if err != nil {
				if srv != nil {
					_ = srv.Stop(syscall.SIGKILL)
				}
				t.Fatal(err)
			}
			sickServer(t, srv, c.cause)
			if err := srv.Stop(syscall.SIGTERM); err != nil {
				t.Errorf("after SIGTERM: %v\n%s", err, srv.Log())
			}
			srv.TearDown(t.Errorf)
		})
	}
}

// sickServer holds what a server on a sick host says to the cause.
func sickServer(t *testing.T, srv *testutil.Server, cause string) {
	t.Helper()
	if srv.Healthy {
		t.Errorf("it says that it is ready:\n%s", srv.Log())
		return
	}
	eventually(t, "it says what to do", func() bool { return strings.Contains(srv.Log(), "Fix: ") })
	if text := srv.Log(); !strings.Contains(text, cause) || !strings.Contains(text, "FAILED ") {
		t.Errorf("it says\n%s\nand nothing of %q", text, cause)
	}
	resp, err := http.Get(srv.URL + "/health")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var health struct{ Reasons []string }
	if err := json.NewDecoder(resp.Body).Decode(&health); err != nil || resp.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(strings.Join(health.Reasons, "\n"), cause) {
		t.Errorf("health says %s, %q, %v", resp.Status, health.Reasons, err)
	}
	c := client.New(client.Config{URL: srv.URL})
	s, err := c.CreateSandbox(deadline(t), sos.SandboxSpec{Image: ubuntu})
	if err == nil {
		_, err = c.StartSandbox(deadline(t), s.ID)
	}
	e, ok := err.(*sos.Error)
	if !ok || e.Code != sos.CodeUnavailable || e.Fix == "" || !strings.Contains(e.Message, cause) {
		t.Errorf("a start says %#v", err)
	}
	list, err := c.ListSandboxes(deadline(t), sos.SandboxFilter{})
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, s := range list {
		if s.Status != sos.StatusCreated && s.Status != sos.StatusFailed {
			t.Errorf("after the start it is %+v", s)
		}
		if err := c.RemoveSandbox(deadline(t), s.ID); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	empty(t, srv.Data)
}

// empty demands that no sandbox is in a data directory.
func empty(t *testing.T, data string) {
	t.Helper()
	for _, dir := range []string{"sandboxes", "trash", "journal"} {
		if found, err := filepath.Glob(filepath.Join(data, dir, "*")); err != nil || len(found) > 0 {
			t.Errorf("left: %v, %v", found, err)
		}
	}
}

func mounted(t *testing.T, source, dir, kind, options string) {
	t.Helper()
	if err := unix.Mount(source, dir, kind, 0, options); err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		// What has just ended may hold it for a moment.
		eventually(t, "the unmount of "+dir, func() bool { return unix.Unmount(dir, 0) == nil })
	})
}

func onRamfs(t *testing.T, dir string) { mounted(t, "ramfs", dir, "ramfs", "") }

func onOverlay(t *testing.T, dir string) {
	base := t.TempDir()
	for _, d := range []string{"l", "u", "w"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mounted(t, "overlay", dir, "overlay", "lowerdir="+base+"/l,upperdir="+base+"/u,workdir="+base+"/w")
}
