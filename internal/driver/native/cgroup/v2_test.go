package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeDirs stands for a cgroup2 with controllers: a new directory has the files
// that the kernel would put there, those of a controller only where the parent
// enables it.
type fakeDirs struct{ without string }

func (f fakeDirs) mkdir(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	on, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	files := map[string]string{
		"cgroup.procs": "", "cgroup.subtree_control": "", "cgroup.freeze": "0", "cgroup.kill": "",
		"cgroup.events": "populated 0\nfrozen 0\n", "cpu.stat": "usage_usec 1500\nuser_usec 1000\n",
	}
	for controller, add := range map[string]map[string]string{
		"cpu": {"cpu.max": "max 100000", "cpu.weight": "100"},
		"memory": {"memory.max": "max", "memory.swap.max": "max", "memory.current": "5000\n", "memory.peak": "9000\n",
			"memory.stat": "anon 1\ninactive_file 2000\n", "memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"},
		"pids": {"pids.max": "max", "pids.current": "4\n"},
	} {
		if strings.Contains(string(on), controller) {
			for file, content := range add {
				files[file] = content
			}
		}
	}
	for file, content := range files {
		if file == f.without {
			continue
		}
		if err := os.WriteFile(filepath.Join(path, file), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (f fakeDirs) rmdir(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			return os.ErrInvalid // children first
		}
	}
	return os.RemoveAll(path)
}

func fakeRoot(t *testing.T) string {
	root := t.TempDir()
	for file, content := range map[string]string{"cgroup.subtree_control": "cpuset", "cgroup.procs": "1\n"} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestV2Files(t *testing.T) {
	root := fakeRoot(t)
	tree, err := newV2(root, "sos-x", v2Needed, fakeDirs{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := tree.Create("sb-a", Limits{CPU: 1.5, Memory: 1 << 30, PIDs: 77})
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cgroup.subtree_control":            "+cpu +memory +pids",
		"sos-x/cgroup.subtree_control":      "+cpu +memory +pids",
		"sos-x/sb-a/cgroup.subtree_control": "+cpu +memory +pids",
		"sos-x/sb-a/cpu.max":                "150000 100000",
		"sos-x/sb-a/cpu.weight":             "150",
		"sos-x/sb-a/user/memory.max":        "1073741824",
		"sos-x/sb-a/user/memory.swap.max":   "0",
		"sos-x/sb-a/user/pids.max":          "77",
		"sos-x/sb-a/guest/memory.max":       "max",
		"sos-x/sb-a/guest/pids.max":         "max",
		"sos-x/sb-a/memory.max":             "max",
	} {
		if got, err := readString(root, file); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", file, got, err, want)
		}
	}
	s, err := g.Stats()
	want := Stats{CPU: 1500 * time.Microsecond, Memory: 3000, Peak: 9000, PIDs: 4, OOMKills: 2, GuestOOMKills: 2}
	if err != nil || s != want {
		t.Errorf("stats %+v, %v; want %+v", s, err, want)
	}
	join, err := g.UserJoin()
	if err != nil || len(join) != 1 || join[0].Name() != filepath.Join(root, "sos-x/sb-a/user/cgroup.procs") {
		t.Errorf("join %v, %v", join, err)
	}
	if f, err := g.OOM(); err != nil || filepath.Base(f.Name()) != "memory.events" {
		t.Errorf("oom %v, %v", f, err)
	}
	if err := g.Kill(within(t, time.Second)); err != nil {
		t.Error(err)
	}
	if got, _ := readString(root, "sos-x/sb-a/cgroup.kill"); got != "1" {
		t.Errorf("cgroup.kill %q", got)
	}
	if err := g.Remove(within(t, time.Second)); err != nil {
		t.Error(err)
	}
	if ids, err := tree.List(); err != nil || len(ids) != 0 {
		t.Errorf("left %v, %v", ids, err)
	}
}

func TestV2WithoutSwapOrPeak(t *testing.T) {
	for _, file := range []string{"memory.swap.max", "memory.peak"} {
		tree, err := newV2(fakeRoot(t), "sos-x", v2Needed, fakeDirs{without: file})
		if err != nil {
			t.Fatal(err)
		}
		g, err := tree.Create("sb-a", Limits{Memory: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Stats(); err != nil {
			t.Errorf("without %s: %v", file, err)
		}
	}
}

// fakeFailure: a controller file that is missing fails the create, and its
// directories go again.
func fakeFailure(t *testing.T) {
	tree, err := newV2(fakeRoot(t), "sos-x", v2Needed, fakeDirs{without: "pids.max"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Create("sb-a", Limits{PIDs: 5}); err == nil {
		t.Fatal("no error")
	}
	if ids, _ := tree.List(); slices.Contains(ids, "sb-a") {
		t.Fatalf("left %v", ids)
	}
}
