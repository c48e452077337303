package server

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// oomKills reads how often the kernel has killed for memory in the cgroup of the
// user processes: the line "oom_kill N" of memory.oom_control (v1) or
// memory.events (v2). Without such a file it is always 0.
func oomKills(fd int) int64 {
	if fd < 0 {
		return 0
	}
	var buf [1024]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil || n <= 0 {
		return 0
	}
	return parseOOM(buf[:n])
}

func parseOOM(b []byte) int64 {
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}
