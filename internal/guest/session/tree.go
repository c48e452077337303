package session

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process is a member of the tree below bash. Bash is a subreaper, so that this
// tree is the session: orphans of commands come back to it.
type process struct {
	pid   int
	start uint64 // clock ticks since boot; with the pid it names one process
	state byte   // 'R', 'S', 'T', 'Z', …
	ticks uint64 // cpu time
	ppid  int
}

// dead: a zombie, which nothing can or need be done about.
func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// look reads /proc/PID/stat.
func look(pid int) (p process, ok bool) {
	var buf [1024]byte
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	i := bytes.LastIndexByte(b, ')') // the name before it may hold anything
	if err != nil || i < 0 {
		return p, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return p, false
	}
	num := func(i int) uint64 { n, _ := strconv.ParseUint(string(f[i]), 10, 64); return n }
	return process{pid: pid, state: f[0][0], ppid: int(num(1)), ticks: num(11) + num(12), start: num(19)}, true
}

// children lists the direct children of a process, those of its other threads
// too. buf is scratch space.
func children(pid int, buf []byte) (out []int) {
	task := "/proc/" + strconv.Itoa(pid) + "/task/"
	for _, tid := range list(task) {
		b, err := readFile(task+tid+"/children", buf)
		if err == unix.ENOENT && !hasChildrenFile() {
			return childrenByWalk(pid)
		}
		out = append(out, pids(b, len(buf))...)
	}
	return out
}

// pids reads numbers; the last one may be cut where the file fills its buffer.
func pids(b []byte, room int) (out []int) {
	if len(b) == room {
		b = b[:bytes.LastIndexByte(b, ' ')+1]
	}
	for f := range bytes.FieldsSeq(b) {
		if n, err := strconv.Atoi(string(f)); err == nil && n > 1 {
			out = append(out, n)
		}
	}
	return out
}

// hasChildrenFile: some kernels are built without /proc/PID/task/TID/children.
func hasChildrenFile() bool {
	return unix.Access("/proc/thread-self/children", unix.F_OK) == nil
}

// childrenByWalk looks at every process for its parent.
func childrenByWalk(pid int) (out []int) {
	for _, name := range list("/proc") {
		n, err := strconv.Atoi(name)
		if err != nil || n <= 1 {
			continue
		}
		if p, ok := look(n); ok && p.ppid == pid {
			out = append(out, n)
		}
	}
	return out
}

// tree lists the living descendants of bash, without the subtrees below those
// of its children that are in old (pid and start time). Parents come before their
// children and the youngest child first: signals sent in this order reach a shell
// before what it waits for, and the end of a pipeline before its beginning, whose
// death would let it end by itself.
func tree(bash int, old map[int]uint64) (out []process) {
	seen, buf := map[int]bool{}, make([]byte, 32<<10)
	var walk func(int)
	walk = func(pid int) {
		for _, c := range slices.Backward(children(pid, buf)) {
			p, ok := look(c)
			if !ok || seen[c] {
				continue
			}
			if start, was := old[c]; was && pid == bash && start == p.start {
				continue
			}
			seen[c] = true
			if !p.dead() {
				out = append(out, p)
			}
			walk(c)
		}
	}
	walk(bash)
	return out
}

// kids gives the direct children of bash with their start times.
func kids(bash int) map[int]uint64 {
	var m map[int]uint64
	for _, c := range firstChildren(bash) {
		if p, ok := look(c); ok {
			if m == nil {
				m = map[int]uint64{}
			}
			m[c] = p.start
		}
	}
	return m
}

// firstChildren is children for a process of one thread, as bash is: one read.
func firstChildren(pid int) []int {
	var buf [4096]byte
	s := strconv.Itoa(pid)
	b, err := readFile("/proc/"+s+"/task/"+s+"/children", buf[:])
	if err != nil || len(b) == len(buf) {
		return children(pid, make([]byte, 32<<10))
	}
	return pids(b, len(buf))
}

func send(sig unix.Signal, ps []process) {
	for _, p := range ps {
		unix.Kill(p.pid, sig)
	}
}

// killAll ends everything that list gives, which is asked again until it gives
// nothing. What forks faster than it is killed is stopped first.
func killAll(list func() []process) {
	for round := range 60 {
		ps := list()
		if len(ps) == 0 {
			return
		}
		if round >= 3 {
			for range 20 {
				send(unix.SIGSTOP, ps)
				more := list()
				fresh := false
				for _, p := range more {
					fresh = fresh || p.state != 'T' && p.state != 't'
				}
				if ps = more; !fresh {
					break
				}
			}
		}
		send(unix.SIGKILL, ps)
		time.Sleep(min(time.Duration(round+1)*time.Millisecond, 10*time.Millisecond))
	}
}

// ignores says whether a process ignores sig.
func ignores(pid int, sig unix.Signal) bool {
	var buf [4096]byte
	b, _ := readFile("/proc/"+strconv.Itoa(pid)+"/status", buf[:])
	_, b, ok := bytes.Cut(b, []byte("\nSigIgn:\t"))
	if !ok {
		return false
	}
	hex, _, _ := bytes.Cut(b, []byte("\n"))
	v, _ := strconv.ParseUint(string(hex), 16, 64)
	return v&(1<<(uint(sig)-1)) != 0
}

// owner reads the real user and group of a process.
func owner(pid int) (uid, gid int, ok bool) {
	var buf [4096]byte
	b, err := readFile("/proc/"+strconv.Itoa(pid)+"/status", buf[:])
	if err != nil {
		return 0, 0, false
	}
	num := func(key string) int {
		_, v, _ := bytes.Cut(b, []byte(key))
		f := bytes.Fields(v[:min(len(v), 64)])
		if len(f) == 0 {
			return -1
		}
		n, err := strconv.Atoi(string(f[0]))
		if err != nil {
			return -1
		}
		return n
	}
	uid, gid = num("\nUid:\t"), num("\nGid:\t")
	return uid, gid, uid >= 0 && gid >= 0
}
