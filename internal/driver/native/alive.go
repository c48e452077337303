package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// bootID changes with every boot of the host.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// guestOf opens the guest that a record names: a pidfd of a process that is
// certainly that guest, or -1 when it is gone. The descriptor is opened before
// the start time is compared, so the pid cannot change hands in between.
func guestOf(runDir, boot string) (pidfd int, rec spawn.Record, err error) {
	b, err := os.ReadFile(filepath.Join(runDir, spawn.RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return -1, rec, nil
	}
	if err != nil {
		return -1, rec, err
	}
	if rec, err = spawn.ParseRecord(string(b)); err != nil {
		return -1, rec, fmt.Errorf("%s: %w", runDir, err)
	}
	if rec.BootID != boot {
		return -1, rec, nil
	}
	pidfd, err = unix.PidfdOpen(rec.Pid, 0)
	if err != nil {
		return -1, rec, nil // ESRCH: it is gone
	}
	start, state, err := procStat(rec.Pid)
	if err != nil || start != rec.StartTime || state == 'Z' || state == 'X' {
		unix.Close(pidfd)
		return -1, rec, nil
	}
	return pidfd, rec, nil
}

// procStat reads the start time and the state of a process.
func procStat(pid int) (start uint64, state byte, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name, in parentheses, may hold anything.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	const startField = 22 - 3 // the first field here is the third
	if len(f) <= startField || f[0] == "" {
		return 0, 0, fmt.Errorf("stat of process %d has %d fields", pid, len(f))
	}
	start, err = strconv.ParseUint(f[startField], 10, 64)
	return start, f[0][0], err
}

// runs says whether the guest of id lives, by its record.
func (d *Driver) runs(id string) bool { return d.guestPid(id) != 0 }

// guestPid is the guest of id while it lives, else 0.
func (d *Driver) guestPid(id string) int {
	fd, rec, err := guestOf(d.dirs.runOf(id), d.boot)
	if err != nil {
		d.log.Warn("run directory with an unreadable record", "sandbox", id, "err", err)
	}
	if fd < 0 {
		return 0
	}
	unix.Close(fd)
	return rec.Pid
}
