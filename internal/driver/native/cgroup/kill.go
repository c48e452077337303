package cgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// freezePatience is how long one round waits for a group to freeze. It need not: a
// frozen group only cannot outrun the killer by forking.
const freezePatience = 50 * time.Millisecond

// killByFreezing kills all processes of the groups in dirs: freeze, SIGKILL to
// each, thaw, until none is left.
func killByFreezing(ctx context.Context, dirs []string, freeze func(state string) error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, err := members(dirs)
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := ignoreMissing(freeze("FROZEN")); err != nil {
			return err
		}
		killed, err := settleAndKill(ctx, dirs)
		// Thaw in any case: a frozen process does not die.
		if err := errors.Join(err, ignoreMissing(freeze("THAWED"))); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end: %w", killed, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// settleAndKill sends SIGKILL until no new process appears or the patience ends.
func settleAndKill(ctx context.Context, dirs []string) (int, error) {
	end := time.Now().Add(freezePatience)
	seen := map[int]bool{}
	for {
		pids, err := members(dirs)
		if err != nil {
			return 0, err
		}
		fresh := false
		for _, pid := range pids {
			fresh = fresh || !seen[pid]
			seen[pid] = true
		}
		if !fresh || ctx.Err() != nil {
			return len(pids), nil
		}
		for chunk := range slices.Chunk(pids, 256) {
			if err := killMembers(dirs, chunk); err != nil {
				return 0, err
			}
		}
		if time.Now().After(end) {
			return len(pids), nil
		}
	}
}

// killMembers kills those of pids that are still members after a descriptor of
// them was opened: never a stranger who got a pid that was freed.
func killMembers(dirs []string, pids []int) error {
	fds := map[int]int{}
	defer func() {
		for fd := range maps.Values(fds) {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			fds[pid] = fd
		} else if !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("open process %d: %w", pid, err)
		}
	}
	still, err := members(dirs)
	if err != nil {
		return err
	}
	for _, pid := range still {
		if fd, ok := fds[pid]; ok {
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
	}
	return nil
}

// members gives the pids in the groups, each once, sorted.
func members(dirs []string) ([]int, error) {
	var pids []int
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // there is no such group (any more)
		}
		if err != nil {
			return nil, err
		}
		for _, f := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", dir, err)
			}
			if pid > 0 { // 0: of another pid namespace
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
