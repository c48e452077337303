package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// processesIn gives the processes whose /proc/PID/cgroup satisfies want.
func processesIn(want func(cgroups string) bool) ([]int, error) {
	return processes("cgroup", want)
}

// processesWith gives the processes with word in their command line.
func processesWith(word string) ([]int, error) {
	return processes("cmdline", func(s string) bool { return strings.Contains(s, word) })
}

func processes(file string, want func(string) bool) ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, file))
		if err != nil {
			continue // it ended meanwhile
		}
		if want(string(b)) {
			n, _ := strconv.Atoi(filepath.Base(d))
			pids = append(pids, n)
		}
	}
	if len(pids) == 0 {
		return nil, errors.New("no process found")
	}
	return pids, nil
}

// privateBytes sums the private pages of processes.
func privateBytes(pids []int) (sum int64, err error) {
	for _, p := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) >= 2 && (f[0] == "Private_Clean:" || f[0] == "Private_Dirty:") {
				n, _ := strconv.ParseInt(f[1], 10, 64)
				sum += n << 10
			}
		}
	}
	return sum, nil
}
