package session

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

const defaultStartLimit = 10 * time.Second

// The first command: the start files, and then what a session needs whatever
// they did. PS1 stays assignable and not empty: virtual environments assign it,
// and start files give up where it is empty. Control lines begin with a blank,
// so that ignorespace keeps them out of a history that the user turns on.
const (
	startFiles = `[ -r /etc/bash.bashrc ] && . /etc/bash.bashrc; [ -r ~/.bashrc ] && . ~/.bashrc
`
	homeText = `[ "${HOME+x}" ] || export HOME=~
PS1='$ '
`
	setUp = `HISTCONTROL=ignorespace; set +H; set +o history; history -c; set -o pipefail
PS1='$ ' PS2='> '; unset -v PROMPT_COMMAND PS0 MAILCHECK TMOUT; echo "
v$((BASH_VERSINFO*100+BASH_VERSINFO[1]))"
`
)

// Open starts bash and returns when it has answered. Errors are *sos.Error:
// CodeUnsupported when there is no bash, CodeSpawnFailed when it cannot be
// started (cwd, user) or does not answer.
func Open(cfg Config) (*Shell, error) {
	if cfg.StartLimit <= 0 {
		cfg.StartLimit = defaultStartLimit
	}
	bash := cfg.Bash
	if bash == "" {
		if bash = findBash(cfg.Spec.Env); bash == "" {
			return nil, &sos.Error{Code: sos.CodeUnsupported,
				Message: "the image has no bash, which a session is",
				Fix:     "run standalone commands, which use /bin/sh, or use an image with bash"}
		}
	}
	if cwd := cfg.Spec.Cwd; cwd != "" {
		var st unix.Stat_t
		if err := unix.Stat(cwd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if err == nil {
				err = unix.ENOTDIR
			}
			return nil, &sos.Error{Code: sos.CodeSpawnFailed, Message: "working directory " + cwd + ": " + err.Error(),
				Fix: "make the directory first, or name another"}
		}
	}
	s, why, err := start(cfg, bash, true)
	if err != nil || why == "" {
		return s, err
	}
	s, again, err := start(cfg, bash, false)
	if err != nil {
		return nil, err
	}
	if again != "" {
		return nil, &sos.Error{Code: sos.CodeSpawnFailed, Message: "bash " + again}
	}
	s.note = "started without /etc/bash.bashrc and ~/.bashrc: with them the shell " + why
	return s, nil
}

// findBash looks where images have it, then on the session's own PATH.
func findBash(env []string) string {
	places := []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"}
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			for dir := range strings.SplitSeq(path, ":") {
				if strings.HasPrefix(dir, "/") {
					places = append(places, dir+"/bash")
				}
			}
		}
	}
	for _, p := range places {
		var st unix.Stat_t
		if unix.Stat(p, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0 {
			return p
		}
	}
	return ""
}

// environment adds what is missing: a UTF-8 locale, and a pager that does not
// wait for a key.
func environment(env []string) []string {
	out := append([]string(nil), env...)
	has := func(name string) bool {
		for _, e := range env {
			if strings.HasPrefix(e, name+"=") {
				return true
			}
		}
		return false
	}
	if !has("LC_ALL") && !has("LANG") {
		out = append(out, "LC_ALL=C.UTF-8", "LANG=C.UTF-8")
	}
	if !has("PAGER") {
		out = append(out, "PAGER=cat")
	}
	return out
}

// start makes one attempt. why says what the shell did in place of answering.
func start(cfg Config, bash string, files bool) (s *Shell, why string, err error) {
	s = &Shell{cfg: cfg, bash: bash, pidfd: -1, ctl: -1, stat: -1, tail: -1, null: -1, wake: -1,
		atime: true, buf: make([]byte, 32<<10)}
	if err := s.spawn(); err != nil {
		s.release()
		var e *sos.Error
		if !errors.As(err, &e) {
			e = &sos.Error{Code: sos.CodeSpawnFailed, Message: "starting bash: " + err.Error()}
		}
		return nil, "", e
	}
	text := homeText
	if files {
		text += startFiles
	}
	var c capture
	r := s.Run(guest.SessionCommand{Text: text + setUp, Timeout: cfg.StartLimit}, &c, func() {})
	closeAll(r.Rest)
	why = s.ready(r, &c)
	if why == "" { // the start files may have changed how commands are read
		r = s.Run(guest.SessionCommand{Text: ":", Timeout: cfg.StartLimit}, &c, func() {})
		closeAll(r.Rest)
		why = s.ready(r, &c)
	}
	if why != "" {
		s.Close()
		return nil, why, nil
	}
	s.last = 0
	return s, "", nil
}

// ready reads the answer to the first command; it says what is wrong with it.
func (s *Shell) ready(r Result, c *capture) string {
	i := strings.LastIndex(string(c.b), "\nv")
	switch {
	case r.Exit.Reason == sos.EndTimeout:
		return "did not answer within " + s.cfg.StartLimit.String()
	case r.Exit.ShellEnded && r.Exit.ExitCode != nil:
		return "ended with status " + strconv.Itoa(*r.Exit.ExitCode)
	case r.Exit.Reason != sos.EndExit || i < 0:
		if r.Exit.Message != "" {
			return "did not answer: " + r.Exit.Message
		}
		return "did not answer"
	}
	s.version, _ = strconv.Atoi(strings.TrimSpace(string(c.b[i+2:])))
	return ""
}

// spawn makes directory, channels and process.
func (s *Shell) spawn() (err error) {
	if s.dir, err = newDir(s.cfg.Dir); err != nil {
		return err
	}
	if s.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	files := [3]int{-1, -1, -1}
	defer func() { closeAll(files[:]...) }()
	for i, ours := range []*int{&s.ctl, &s.tail, &s.stat} {
		if *ours, files[i], err = pair(); err != nil {
			return err
		}
	}
	s.child, err = s.cfg.Host.Fork(Fork{
		Path: s.bash, Argv: []string{"bash", "--norc", "--noediting", "+o", "history", "-i"},
		Env: environment(s.cfg.Spec.Env), Cwd: s.cfg.Spec.Cwd, User: s.cfg.Spec.User,
		Files: files, Subreaper: true,
	})
	if err != nil {
		return err
	}
	// The pidfd is of our child if the reaper had not taken it when it was opened.
	s.pidfd, err = unix.PidfdOpen(s.child.Pid, 0)
	if s.gone() {
		return &sos.Error{Code: sos.CodeSpawnFailed, Message: "bash ended at once"}
	}
	if err != nil {
		unix.Kill(s.child.Pid, unix.SIGKILL)
		<-s.child.Done
		return err
	}
	uid, gid, ok := owner(s.child.Pid)
	if !ok {
		uid, gid = 0, 0
	}
	s.dir.uid, s.dir.gid = uid, gid
	var b [128]byte
	_, err = readFile("/proc/"+strconv.Itoa(s.child.Pid)+"/syscall", b[:])
	s.noPeek = err == unix.EACCES || err == unix.EPERM || err == unix.ENOENT
	return nil
}

// capture keeps the output of the first command: a bounded end of it.
type capture struct{ b []byte }

func (c *capture) Space() int { return 1 << 20 }

func (c *capture) Write(p []byte) {
	if c.b = append(c.b, p...); len(c.b) > 64<<10 {
		c.b = append(c.b[:0], c.b[len(c.b)-4<<10:]...)
	}
}
