package native

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// contextFor is for work after the test's own context has ended.
func contextFor(testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// noTrace checks that nothing on the host belongs to an instance any more, except
// the files of its sandboxes.
func noTrace(t testing.TB, cfg Config) {
	t.Helper()
	for _, what := range traces(cfg) {
		t.Errorf("left behind: %s", what)
	}
	if exists(cfg.RunDir) {
		t.Errorf("left behind: %s", cfg.RunDir)
	}
}

// traces finds mounts, cgroups, processes and claims of an instance.
func traces(cfg Config) (found []string) {
	name := groupName(cfg.Instance)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, cfg.DataDir) || strings.Contains(line, cfg.Instance) {
			found = append(found, "mount "+line)
		}
	}
	for _, depth := range []string{"*", "*/*", "*/*/*", "*/*/*/*"} {
		groups, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", depth, name))
		for _, g := range groups {
			found = append(found, "cgroup "+g)
		}
	}
	found = append(found, processesOf(cfg)...)
	claims, _ := filepath.Glob(filepath.Join(DefaultIDsDir, "*"))
	for _, c := range claims {
		if holder, _ := os.Readlink(c); strings.HasPrefix(holder, cfg.DataDir) {
			found = append(found, "claim "+c)
		}
	}
	return found
}

// processesOf finds the processes in an instance's cgroups or of its programs.
func processesOf(cfg Config) (found []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		pid, _ := strconv.Atoi(filepath.Base(p))
		_, state, err := procStat(pid)
		if err != nil || state == 'Z' || state == 'X' {
			continue
		}
		exe, _ := os.Readlink(filepath.Join(p, "exe"))
		group, _ := os.ReadFile(filepath.Join(p, "cgroup"))
		if strings.HasPrefix(exe, cfg.DataDir) || strings.Contains(string(group), groupName(cfg.Instance)) {
			found = append(found, "process "+p+" "+exe)
		}
	}
	return found
}
