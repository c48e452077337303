package spawn

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of the files in a sandbox's run directory.
const (
	RecordFile = "pid"
	ExitFile   = "exit"
	LogFile    = "log"
	GuestSock  = "g.sock"
)

// Record is what <run>/<id>/pid says: enough to find a guest again and to know
// that it is the same one.
type Record struct {
	Pid       int
	StartTime uint64 // field 22 of /proc/<pid>/stat
	BootID    string
	Cgroup    string // name below the instance's cgroup
	IDBase    uint32
}

func (r Record) String() string {
	return fmt.Sprintf("%d %d %s %s %d\n", r.Pid, r.StartTime, r.BootID, r.Cgroup, r.IDBase)
}

// ParseRecord reads the content of a record file.
func ParseRecord(s string) (Record, error) {
	f := strings.Fields(s)
	if len(f) != 5 {
		return Record{}, fmt.Errorf("a record of %d words, not 5", len(f))
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil || pid <= 1 {
		return Record{}, fmt.Errorf("a record of pid %q", f[0])
	}
	start, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return Record{}, fmt.Errorf("a record of start time %q", f[1])
	}
	base, err := strconv.ParseUint(f[4], 10, 32)
	if err != nil {
		return Record{}, fmt.Errorf("a record of id base %q", f[4])
	}
	if !idPattern.MatchString(f[3]) {
		return Record{}, fmt.Errorf("a record of cgroup %q", f[3])
	}
	return Record{Pid: pid, StartTime: start, BootID: f[2], Cgroup: f[3], IDBase: uint32(base)}, nil
}
