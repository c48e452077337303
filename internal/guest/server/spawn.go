package server

import (
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/sysprog"
)

// launch is a program to start the guest's way.
type launch struct {
	path      string
	argv, env []string
	cwd       string
	who       account
	files     [3]int
	subreaper bool
}

// forkTimeout ends a child that hangs before its exec, as in a frozen cgroup.
const forkTimeout = 10 * time.Second

// start forks a child: its own session, in the cgroup of the user processes, with
// default signals, descriptors 0 to 2 and nothing else.
func (g *Guest) start(l launch) (*child, error) {
	p := sysprog.New()
	p.Call("setsid", unix.SYS_SETSID)
	p.Files(l.files[:])
	for _, fd := range g.cfg.Join {
		p.Write("join the cgroup", fd, "0")
	}
	if l.subreaper {
		p.Call("become subreaper", unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	limitFiles(p)
	p.Call(stepCwd, unix.SYS_CHDIR, p.Str(l.cwd))
	setUser(p, l.who)
	p.CloseOnExecFrom(3)
	p.Exec(l.path, l.argv, l.env)
	return g.reap.fork(p, sysprog.ForkOptions{Timeout: forkTimeout})
}

// Steps that errors are told apart by.
const (
	stepCwd  = "chdir"
	stepUser = "switch user"
)

func setUser(p *sysprog.Program, a account) {
	groups := make([]byte, 0, 4*len(a.groups))
	for _, n := range a.groups {
		groups = append(groups, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	p.Call(stepUser, unix.SYS_SETGROUPS, uintptr(len(a.groups)), p.Ptr(groups))
	gid, uid := uintptr(a.gid), uintptr(a.uid)
	p.Call(stepUser, unix.SYS_SETRESGID, gid, gid, gid)
	p.Call(stepUser, unix.SYS_SETRESUID, uid, uid, uid)
}

// limitFiles puts the soft limit of open files, which Go's runtime raises for
// itself, back to what programs expect: above 1024 select() breaks.
func limitFiles(p *sysprog.Program) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		p.Rlimit("open files", unix.RLIMIT_NOFILE, min(1024, l.Max), l.Max)
	}
}

// startCommand starts a standalone command; its error is a sentence for people.
func (g *Guest) startCommand(cmd guest.Command, pipes []pipe) (*child, error) {
	who, err := lookup(cmd.User)
	if err != nil {
		return nil, errors.New("user \"" + cmd.User + "\": " + err.Error() + " in the sandbox")
	}
	stdin, err := g.stdin(cmd.Stdin)
	if err != nil {
		return nil, errors.New("no place for its standard input: " + err.Error())
	}
	if stdin != g.null {
		defer unix.Close(stdin)
	}
	l := launch{argv: cmd.Argv, env: withDefaults(cmd.Env, who), cwd: cmd.Cwd, who: who, subreaper: true}
	if l.cwd == "" {
		l.cwd = "/"
	}
	if why := checkCwd(l.cwd); why != "" {
		return nil, errors.New(why)
	}
	var why string
	if l.path, why = findProgram(cmd.Argv[0], variable(l.env, "PATH"), l.cwd); why != "" {
		return nil, errors.New(why)
	}
	l.files = [3]int{stdin, pipes[0].write, pipes[len(pipes)-1].write}
	for _, pp := range pipes {
		unix.Fchown(pp.write, int(who.uid), int(who.gid)) // so that it can open /dev/stdout
	}
	c, err := g.start(l)
	if err != nil {
		return nil, errors.New(explain(err, l))
	}
	return c, nil
}

// stdin holds given input in memory: it has an end, never blocks the guest, and
// nobody minds when it is not read.
func (g *Guest) stdin(data []byte) (int, error) {
	if len(data) == 0 {
		return g.null, nil
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for off := 0; off < len(data); {
		n, err := unix.Pwrite(fd, data[off:], int64(off))
		if err != nil && err != unix.EINTR {
			unix.Close(fd)
			return -1, err
		}
		off += max(n, 0)
	}
	return fd, nil
}

// withDefaults adds what every program expects and the environment does not have.
func withDefaults(env []string, who account) []string {
	out := env[:len(env):len(env)]
	add := func(key, value string, unless ...string) {
		for _, k := range append(unless, key) {
			if has(env, k) {
				return
			}
		}
		out = append(out, key+"="+value)
	}
	add("PATH", defaultPath)
	add("HOME", who.home)
	if who.name != "" {
		add("USER", who.name)
	}
	add("LANG", "C.UTF-8", "LC_ALL", "LC_CTYPE")
	return out
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func has(env []string, key string) bool {
	for _, e := range env {
		if rest, ok := strings.CutPrefix(e, key); ok && strings.HasPrefix(rest, "=") {
			return true
		}
	}
	return false
}

// variable is the value of a variable; the first counts, as in getenv.
func variable(env []string, key string) string {
	for _, e := range env {
		if rest, ok := strings.CutPrefix(e, key+"="); ok {
			return rest
		}
	}
	return ""
}

// errno takes the errno out of an error of a fork.
func errno(err error) (step string, no syscall.Errno) {
	var s *sysprog.StepError
	if errors.As(err, &s) {
		return s.Step, s.Errno
	}
	return "", 0
}
