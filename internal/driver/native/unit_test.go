package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLeaveUnit(t *testing.T) {
	p := exec.Command("sleep", "1000")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { p.Process.Kill(); p.Wait() }()
	name := "sos-test-" + newID()
	put := 0
	for _, root := range []string{"systemd", "unified", "."} {
		dir := filepath.Join(cgroupRoot, root, name)
		if !exists(filepath.Join(cgroupRoot, root, "cgroup.procs")) {
			continue
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer unix.Rmdir(dir)
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, p.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
		put++
	}
	if b := procFile(t, p.Process.Pid, "cgroup"); strings.Count(b, name) != put || put == 0 {
		t.Fatalf("the process is in %s", b)
	}
	if err := leaveUnit(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if b := procFile(t, p.Process.Pid, "cgroup"); strings.Contains(b, name) {
		t.Errorf("the process is still in %s", b)
	}
}
