package cgroup

import (
	"strings"
	"testing"
)

const v1Self = "8:pids:/\n6:freezer:/\n4:memory:/x\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n"

const v1Mounts = `31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/mem\040ory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
`

const unifiedMount = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name, mounts, self, controllers string
		version                         int
		err                             string
	}{
		{name: "v1", mounts: v1Mounts, self: v1Self, version: 1},
		{name: "hybrid", mounts: unifiedMount + v1Mounts, self: v1Self, controllers: "hugetlb", version: 1},
		{name: "v2", mounts: unifiedMount, self: "0::/\n", controllers: "cpuset cpu io memory pids\n", version: 2},
		{name: "v2 without controllers", mounts: unifiedMount, self: "0::/\n", controllers: "io", err: "lacks cpu, memory, pids"},
		{name: "v1 mounts that are not bound", mounts: unifiedMount + v1Mounts, self: "0::/\n", controllers: "cpu memory pids", version: 2},
		{name: "v1 without pids", mounts: v1Mounts, self: strings.Replace(v1Self, "pids", "x", 1), err: "pids"},
		{name: "nothing", err: "no cgroup hierarchy"},
	} {
		h, err := detect(c.mounts, c.self, func(string) string { return c.controllers })
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if err != nil || h.Version != c.version {
			t.Errorf("%s: %+v, %v", c.name, h, err)
			continue
		}
		if h.Version == 1 && h.Mounts["memory"] != "/sys/fs/cgroup/mem ory" {
			t.Errorf("%s: memory at %q", c.name, h.Mounts["memory"])
		}
	}
}

func TestDetectThisHost(t *testing.T) {
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", h)
}
