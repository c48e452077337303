package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// cgroupRoot is where control groups are mounted on every distribution.
const cgroupRoot = "/sys/fs/cgroup"

// leaveUnit moves a process out of the cgroups by which a service manager knows
// what belongs to a unit: those of systemd's own hierarchy and of version 2. What
// the process starts later is born outside, too. Otherwise stopping or restarting
// the server's unit would kill the spawner, and with version 1 every sandbox.
// Groups that limit are left alone.
func leaveUnit(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[2] == "/" {
			continue
		}
		var roots []string
		switch {
		case f[1] == "name=systemd":
			roots = []string{"systemd"}
		case f[0] == "0":
			roots = []string{"unified", "."}
		}
		for _, root := range roots {
			procs := filepath.Join(cgroupRoot, root, "cgroup.procs")
			if !exists(procs) {
				continue
			}
			errs = append(errs, os.WriteFile(procs, fmt.Append(nil, pid), 0))
			break
		}
	}
	return errors.Join(errs...)
}
