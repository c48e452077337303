package server

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Files of the sandbox are hostile: bounded in size, lines, and number of groups,
// and opened so that neither a FIFO nor a terminal can hold the guest.
const (
	maxAccountFile = 1 << 20
	maxGroups      = 1024
)

// account is who a command runs as.
type account struct {
	uid, gid uint32
	groups   []uint32
	name     string // empty when the uid has no entry
	home     string
}

var errNoUser = errors.New("no such user")

// lookup finds "", "name", "uid", "name:group", "uid:gid" in the sandbox's own
// /etc/passwd and /etc/group. Numbers need no entry.
func lookup(spec string) (account, error) {
	return find(spec, accountFile("/etc/passwd"), accountFile("/etc/group"))
}

func find(spec string, passwd, group []byte) (account, error) {
	user, grp, hasGroup := strings.Cut(spec, ":")
	if user == "" {
		user = "0"
	}
	a, err := findUser(user, passwd)
	if err != nil {
		return a, err
	}
	if hasGroup {
		a.gid, err = findGroup(grp, group)
		return a, err // an explicit group replaces the supplementary ones
	}
	a.groups = memberships(a, group)
	return a, nil
}

func findUser(user string, passwd []byte) (account, error) {
	number, isNumber := id(user)
	a := account{uid: number, home: "/"}
	for line := range bytes.Lines(passwd) {
		f := strings.Split(strings.TrimRight(string(line[:min(len(line), 4096)]), "\n"), ":")
		if len(f) < 7 {
			continue
		}
		uid, ok1 := id(f[2])
		gid, ok2 := id(f[3])
		if !ok1 || !ok2 || f[0] != user && (!isNumber || uid != number) {
			continue
		}
		a = account{uid: uid, gid: gid, name: f[0], home: f[5]}
		if !strings.HasPrefix(a.home, "/") {
			a.home = "/"
		}
		return a, nil
	}
	if !isNumber {
		return a, errNoUser
	}
	if number == 0 {
		a.name, a.home = "root", "/root"
	}
	return a, nil
}

func findGroup(name string, group []byte) (uint32, error) {
	number, isNumber := id(name)
	for line := range bytes.Lines(group) {
		f := strings.SplitN(string(line[:min(len(line), 4096)]), ":", 4)
		if len(f) < 4 || f[0] != name {
			continue
		}
		if gid, ok := id(f[2]); ok {
			return gid, nil
		}
	}
	if !isNumber {
		return 0, errors.New("no such group")
	}
	return number, nil
}

// memberships are the groups that name the user as a member, and his own.
func memberships(a account, group []byte) []uint32 {
	list := []uint32{a.gid}
	if a.name == "" {
		return list
	}
	for line := range bytes.Lines(group) {
		f := strings.SplitN(strings.TrimRight(string(line), "\n"), ":", 4)
		if len(f) < 4 || len(list) == maxGroups {
			continue
		}
		gid, ok := id(f[2])
		if !ok || gid == a.gid {
			continue
		}
		for m := range strings.SplitSeq(f[3], ",") {
			if m == a.name {
				list = append(list, gid)
				break
			}
		}
	}
	return list
}

// id reads a user or group id. All ones means "no change" to the kernel.
func id(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n != 1<<32-1
}

func accountFile(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	b, err := readAll(fd, maxAccountFile)
	if err != nil {
		return nil
	}
	return b
}

// readAll reads at most limit bytes.
func readAll(fd, limit int) ([]byte, error) {
	b := make([]byte, 0, 4096)
	for len(b) < limit {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):min(cap(b), limit)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return b, err
		}
		if n == 0 {
			return b, nil
		}
		b = b[:len(b)+n]
	}
	return b, nil
}
