package server

import (
	"bytes"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ident is a process that cannot be taken for a later one with its pid.
type ident struct {
	pid   int
	start uint64
}

// stat is what /proc/PID/stat tells.
type stat struct {
	ident
	state   byte
	ppid    int
	session int
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

// readStat is false for a process that is gone.
func readStat(pid int) (stat, bool) {
	var buf [1024]byte
	b, ok := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if !ok {
		return stat{}, false
	}
	return parseStat(pid, b)
}

// parseStat skips the name, which may hold anything, by its last parenthesis.
func parseStat(pid int, b []byte) (stat, bool) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, false
	}
	s := stat{ident: ident{pid: pid}, state: f[0][0]}
	var err1, err2, err3 error
	s.ppid, err1 = strconv.Atoi(string(f[1]))
	s.session, err2 = strconv.Atoi(string(f[3]))
	s.start, err3 = strconv.ParseUint(string(f[19]), 10, 64)
	return s, err1 == nil && err2 == nil && err3 == nil
}

// children lists the direct children of all threads of a process.
func children(pid int) (list []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	for _, tid := range numbers(dir) {
		b, ok := readWhole(dir + "/" + strconv.Itoa(tid) + "/children")
		if !ok {
			continue
		}
		for f := range bytes.FieldsSeq(b) {
			if n, err := strconv.Atoi(string(f)); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// numbers lists the names in a directory of /proc that are numbers.
func numbers(dir string) (list []int) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return list
		}
		var names []string
		_, _, names = unix.ParseDirent(buf[:n], -1, nil)
		for _, s := range names {
			if v, err := strconv.Atoi(s); err == nil {
				list = append(list, v)
			}
		}
	}
}

func readSmall(path string, buf []byte) ([]byte, bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil || n <= 0 {
		return nil, false
	}
	return buf[:n], true
}

func readWhole(path string) ([]byte, bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	b, err := readAll(fd, 1<<20)
	return b, err == nil
}

// tree is all that a command started, as far as it was ever seen. Below a command
// that lives it is complete: the command is a subreaper, so orphans stay below
// it. Once the command is dead, orphans come to the guest, and are known by having
// been seen before, by a parent that was, or by the session of one that was.
type tree struct {
	root      int
	rootLives func() bool
	ours      func(pid int) bool // a child of the guest that it started itself
	seen      map[ident]bool     // true: told to end already
	sessions  map[int]bool
}

func newTree(root int, rootLives func() bool, ours func(int) bool) *tree {
	return &tree{root: root, rootLives: rootLives, ours: ours,
		seen: map[ident]bool{}, sessions: map[int]bool{root: true}}
}

// alive walks and returns those that live now, the root first when it does.
func (t *tree) alive() (list []stat) {
	visited := map[int]bool{}
	var visit func(pid int)
	visit = func(pid int) {
		if visited[pid] {
			return
		}
		visited[pid] = true
		s, ok := readStat(pid)
		if !ok {
			return
		}
		if !s.dead() {
			list = append(list, s)
			if _, known := t.seen[s.ident]; !known {
				t.seen[s.ident] = false
			}
			if s.session == s.pid {
				t.sessions[s.pid] = true
			}
		}
		for _, c := range children(pid) {
			visit(c)
		}
	}
	if t.rootLives() {
		visit(t.root)
	}
	for known := range t.seen {
		if s, ok := readStat(known.pid); ok && s.ident == known {
			visit(known.pid)
		}
	}
	for _, pid := range children(syscall.Getpid()) {
		if t.ours(pid) || visited[pid] {
			continue
		}
		if s, ok := readStat(pid); ok && t.sessions[s.session] {
			visit(pid)
		}
	}
	return list
}

// send signals those of list that are still who they were.
func send(list []stat, sig syscall.Signal) {
	for _, s := range list {
		if now, ok := readStat(s.pid); ok && now.ident == s.ident {
			syscall.Kill(s.pid, sig)
		}
	}
}
