package app

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// memAvailable is the part of the host's memory that is free for use, 0 to 1.
func memAvailable() (float64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var total, available float64
	for s := bufio.NewScanner(f); s.Scan(); {
		name, rest, _ := strings.Cut(s.Text(), ":")
		switch name {
		case "MemTotal":
			_, err = fmt.Sscanf(rest, "%f", &total)
		case "MemAvailable":
			_, err = fmt.Sscanf(rest, "%f", &available)
		}
		if err != nil {
			return 0, fmt.Errorf("read /proc/meminfo: %w", err)
		}
	}
	if total == 0 {
		return 0, errors.New("/proc/meminfo names no memory")
	}
	return available / total, nil
}

// diskFree tells of the filesystem that holds dir.
func diskFree(dir string) func() (free, total int64, err error) {
	return func() (int64, int64, error) {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			return 0, 0, fmt.Errorf("statfs %s: %w", dir, err)
		}
		return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
	}
}
