package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Host is where the controllers of this host are.
type Host struct {
	Version     int               // 1 or 2
	Mounts      map[string]string // version 1: mount point by controller
	Root        string            // version 2: mount point
	Controllers []string          // version 2: those that sandboxes get
	Swap        bool              // swap is accounted
}

// v1Needed and v2Needed are what the limits need.
var (
	v1Needed = []string{"cpu", "cpuacct", "memory", "pids", "freezer"}
	v2Needed = []string{"cpu", "memory", "pids"}
)

// Detect finds the controllers. On a hybrid host it is where they are bound that
// counts, not which file systems are mounted: often version 2 is mounted and has
// none.
func Detect() (*Host, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	h, err := detect(string(mounts), string(self), func(mount string) string {
		b, _ := os.ReadFile(filepath.Join(mount, "cgroup.controllers")) // none: no controllers
		return string(b)
	})
	if err != nil {
		return nil, err
	}
	if h.Version == 1 {
		_, err = os.Stat(filepath.Join(h.Mounts["memory"], "memory.memsw.limit_in_bytes"))
		h.Swap = err == nil
	} else {
		// The root group has no swap file; the kernel lists what it accounts by device.
		_, err = os.Stat("/proc/swaps")
		h.Swap = err == nil
	}
	return h, nil
}

func detect(mountinfo, self string, controllers func(mount string) string) (*Host, error) {
	bound := boundV1(self)
	v1 := map[string]string{}
	unified := ""
	for _, line := range strings.Split(mountinfo, "\n") {
		before, after, ok := strings.Cut(line, " - ")
		if !ok {
			continue
		}
		b, a := strings.Fields(before), strings.Fields(after)
		if len(b) < 5 || len(a) < 3 {
			continue
		}
		switch point := unescape(b[4]); a[0] {
		case "cgroup2":
			if unified == "" {
				unified = point
			}
		case "cgroup":
			for _, c := range strings.Split(a[2], ",") {
				if bound[c] && v1[c] == "" {
					v1[c] = point
				}
			}
		}
	}
	missing1 := missing(v1Needed, func(c string) bool { return v1[c] != "" })
	if len(missing1) == 0 {
		return &Host{Version: 1, Mounts: v1}, nil
	}
	if unified == "" {
		return nil, fmt.Errorf("no cgroup hierarchy has these controllers: %s", strings.Join(missing1, ", "))
	}
	have := strings.Fields(controllers(unified))
	if m := missing(v2Needed, func(c string) bool { return slices.Contains(have, c) }); len(m) > 0 {
		return nil, fmt.Errorf("controllers are missing: version 2 at %s lacks %s, version 1 lacks %s",
			unified, strings.Join(m, ", "), strings.Join(missing1, ", "))
	}
	return &Host{Version: 2, Root: unified, Controllers: v2Needed}, nil
}

// boundV1 gives the controllers that /proc/self/cgroup shows on a version 1
// hierarchy.
func boundV1(self string) map[string]bool {
	bound := map[string]bool{}
	for _, line := range strings.Split(self, "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 || f[0] == "0" {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			bound[c] = true
		}
	}
	return bound
}

func missing(need []string, have func(string) bool) []string {
	var m []string
	for _, c := range need {
		if !have(c) {
			m = append(m, c)
		}
	}
	return m
}

var escapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescape(s string) string { return escapes.Replace(s) }

// Tree makes the instance's group ("sos-" and the instance) unless it is there.
func (h *Host) Tree(name string) (Tree, error) {
	if h.Version == 1 {
		return newV1(h.Mounts, name)
	}
	return newV2(h.Root, name, h.Controllers, realDirs{})
}
