package spawner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// collectPatience bounds the waiting for init to reap a guest that is not ours.
const collectPatience = 5 * time.Second

// collect gives the status of a guest that has ended.
func collect(ctx context.Context, g *guest) (known bool, status, signal int) {
	if !g.foreign {
		var info unix.Siginfo
		if err := waitPidfd(g.pidfd, &info); err != nil {
			return false, 0, 0
		}
		code, st := siginfoStatus(&info)
		if code == cldExited {
			return true, st, 0
		}
		return true, 0, st
	}
	return collectForeign(ctx, g)
}

const cldExited = 1 // CLD_EXITED of siginfo

// collectForeign reads the status of a process that another one collects: from its
// zombie while it is one, afterwards from the pidfd (Linux 6.15).
func collectForeign(ctx context.Context, g *guest) (known bool, status, signal int) {
	ctx, cancel := context.WithTimeout(ctx, collectPatience)
	defer cancel()
	for {
		if ws, err := pidfdStatus(g.pidfd); err == nil {
			return split(ws)
		}
		st, err := readStat(g.record.Pid)
		if err == nil && st.start == g.record.StartTime && st.state == 'Z' {
			return split(st.exit)
		}
		// Reaped: one more look at the descriptor, whose status came with the reaping.
		if ws, err := pidfdStatus(g.pidfd); err == nil {
			return split(ws)
		}
		if err != nil || st.start != g.record.StartTime {
			return false, 0, 0
		}
		select {
		case <-ctx.Done():
			return false, 0, 0
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func split(ws unix.WaitStatus) (known bool, status, signal int) {
	if ws.Signaled() {
		return true, 0, int(ws.Signal())
	}
	return true, ws.ExitStatus(), 0
}

// pidfdInfo is struct pidfd_info in its first version.
type pidfdInfo struct {
	mask, cgroup                                     uint64
	pid, tgid, ppid                                  uint32
	ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid uint32
	exit                                             int32
}

const (
	pidfdInfoExit = 1 << 3
	pidfdGetInfo  = 0xC0000000 | 0xFF<<8 | 11 | unsafe.Sizeof(pidfdInfo{})<<16 // _IOWR(0xFF, 11, …)
)

var errNoStatus = errors.New("the kernel has no status")

// pidfdStatus asks for the status of a process that was reaped.
func pidfdStatus(pidfd int) (unix.WaitStatus, error) {
	info := &pidfdInfo{mask: pidfdInfoExit}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), pidfdGetInfo, uintptr(unsafe.Pointer(info))); errno != 0 {
		return 0, errno
	}
	if info.mask&pidfdInfoExit == 0 {
		return 0, errNoStatus
	}
	return unix.WaitStatus(info.exit), nil
}

// stat is what is read from /proc/<pid>/stat.
type stat struct {
	state byte
	start uint64          // field 22, in ticks since boot
	exit  unix.WaitStatus // field 52, of a zombie
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(b))
}

// parseStat: the name in field 2 may hold anything, so count from its last bracket.
func parseStat(s string) (stat, error) {
	i := strings.LastIndexByte(s, ')')
	f := strings.Fields(s[i+1:])
	if i < 0 || len(f) < 50 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("a stat line of %d fields", len(f))
	}
	start, err := strconv.ParseUint(f[22-3], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time: %w", err)
	}
	exit, err := strconv.ParseUint(f[52-3], 10, 32)
	if err != nil {
		return stat{}, fmt.Errorf("exit code: %w", err)
	}
	return stat{state: f[0][0], start: start, exit: unix.WaitStatus(exit)}, nil
}
