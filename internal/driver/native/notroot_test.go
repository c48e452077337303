package native

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Open by somebody who may not do what it needs: it says so, and nothing breaks.
func TestOpenWithoutRoot(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "notroot-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe := filepath.Join(dir, "server") // where everybody may execute it
	if err := os.WriteFile(exe, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(serverConfig{DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run"), Instance: "aaaaaaaa"})
	if err != nil {
		t.Fatal(err)
	}
	one := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	for name, c := range map[string]struct {
		attr *syscall.SysProcAttr
		says string
	}{
		"user":                {&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, "needs root; this process runs as user 65534"},
		"root of a namespace": {&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one}, "only root of a user namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), serverEnv+"="+string(text))
			cmd.SysProcAttr = c.attr
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.says) {
				t.Errorf("it ends with %v and says %q; want %q", err, out, c.says)
			}
		})
	}
	if exists(filepath.Join(dir, "data")) {
		t.Error("a data directory was made")
	}
}
