package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "-session-stub" {
		stub(os.Args[2:])
	}
	// Children get 0, 1 and 2 only, whatever this process was started with.
	unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	os.Exit(m.Run())
}

// stub turns the forked process into what was asked for: subreaper, user,
// directory, program. Descriptor 3 closes at exec or says what failed.
func stub(args []string) {
	fail := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.NewFile(3, "errors"), "%s: %v", what, err)
			os.Exit(126)
		}
	}
	signal.Notify(make(chan os.Signal, 1)) // an inherited "ignore" becomes the default at exec
	unix.CloseOnExec(3)
	if args[0] == "1" {
		fail("subreaper", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	}
	if u := args[1]; u != "" {
		id, err := strconv.Atoi(u)
		fail("user "+u, err)
		fail("setgroups", syscall.Setgroups(nil))
		fail("setgid", syscall.Setgid(id))
		fail("setuid", syscall.Setuid(id))
	}
	fail("working directory "+args[2], os.Chdir(args[2]))
	fail(args[3], syscall.Exec(args[3], args[4:], os.Environ()))
}

// host starts processes as a guest does, with one waiter for each.
type host struct {
	mu    sync.Mutex
	forks int
}

func (h *host) Fork(f Fork) (Child, error) {
	self, err := os.Executable()
	if err != nil {
		return Child{}, err
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		return Child{}, err
	}
	defer pr.Close()
	sub, cwd := "0", f.Cwd
	if f.Subreaper {
		sub = "1"
	}
	if cwd == "" {
		cwd = "/"
	}
	argv := append([]string{"stub", "-session-stub", sub, f.User, cwd, f.Path}, f.Argv...)
	pid, err := syscall.ForkExec(self, argv, &syscall.ProcAttr{
		Env:   f.Env,
		Files: []uintptr{uintptr(f.Files[0]), uintptr(f.Files[1]), uintptr(f.Files[2]), pw.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	pw.Close()
	if err != nil {
		return Child{}, err
	}
	h.mu.Lock()
	h.forks++
	h.mu.Unlock()
	done, ws := make(chan struct{}), syscall.WaitStatus(0)
	go func() {
		defer close(done)
		for {
			if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
				return
			}
		}
	}()
	why, _ := io.ReadAll(pr)
	if len(why) > 0 {
		<-done
		return Child{}, errors.New(string(why))
	}
	return Child{Pid: pid, Done: done, Status: func() syscall.WaitStatus { return ws }}, nil
}

// record is an Output with a window, which room opens.
type record struct {
	mu     sync.Mutex
	b      []byte
	n      int64 // bytes seen
	window int   // 0: no limit
	used   int
	each   func(p []byte)
}

func (r *record) Space() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.window == 0 {
		return 1 << 20
	}
	return r.window - r.used
}

func (r *record) Write(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.window > 0 && len(p) > r.window-r.used {
		panic("more than the window")
	}
	r.used += len(p)
	r.n += int64(len(p))
	if r.each != nil {
		r.each(p)
	} else {
		r.b = append(r.b, p...)
	}
}

// room gives the window back and says how much was taken.
func (r *record) room() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.used
	r.used = 0
	return n
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.b)
}

// tmpfs makes a directory on a tmpfs as the guest has it.
func tmpfs(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sos-session-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// config is that of a session; SOS_TEST_BASH names another bash to try.
func config(t testing.TB) Config {
	return Config{Bash: os.Getenv("SOS_TEST_BASH"), Dir: tmpfs(t), Host: &host{}, Spec: guest.SessionSpec{Name: "default", Cwd: "/", Env: []string{
		"HOME=/nonexistent", "TERM=dumb", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}}}
}

// open starts a session that is closed with the test.
func open(t testing.TB, change ...func(*Config)) *Shell {
	t.Helper()
	cfg := config(t)
	for _, f := range change {
		f(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		pid := s.Pid()
		s.Close()
		if left, _ := filepath.Glob(cfg.Dir + "/*"); len(left) > 0 {
			t.Errorf("left in the directory: %v", left)
		}
		if err := unix.Kill(pid, 0); err == nil {
			t.Errorf("bash %d is still there", pid)
		}
	})
	return s
}

// limit bounds every command of a test, so that none can hang.
const limit = 20 * time.Second

// do runs a text and gives its output and end; what survivors write is dropped.
func do(t testing.TB, s *Shell, text string, change ...func(*guest.SessionCommand)) (string, sos.Exit) {
	t.Helper()
	c := guest.SessionCommand{Text: text, Timeout: limit}
	for _, f := range change {
		f(&c)
	}
	var out record
	r := s.Run(c, &out, func() {})
	closeAll(r.Rest)
	if r.Exit.Survivors != (r.Rest >= 0) {
		t.Errorf("survivors %v but rest %d", r.Exit.Survivors, r.Rest)
	}
	return out.String(), r.Exit
}

// want runs a text that has to end by itself with this output and code.
func want(t testing.TB, s *Shell, text, output string, code int, change ...func(*guest.SessionCommand)) {
	t.Helper()
	out, e := do(t, s, text, change...)
	if out != output || e.Reason != sos.EndExit || e.ExitCode == nil || *e.ExitCode != code || e.ShellEnded {
		t.Errorf("%.80q gave %s with %.200q, want code %d with %.200q", text, show(e), out, code, output)
	}
}

func within(d time.Duration) func(*guest.SessionCommand) {
	return func(c *guest.SessionCommand) { c.Timeout = d }
}

func stdin(s string) func(*guest.SessionCommand) {
	return func(c *guest.SessionCommand) { c.Stdin = []byte(s) }
}

func show(e sos.Exit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "reason %q", e.Reason)
	if e.ExitCode != nil {
		fmt.Fprintf(&b, " code %d", *e.ExitCode)
	}
	fmt.Fprintf(&b, " signal %q ended %v survivors %v message %q", e.Signal, e.ShellEnded, e.Survivors, e.Message)
	return b.String()
}

// eventually waits for a condition of the system.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("never came: %s", what)
}

// alone says whether no process has this argument.
func alone(arg string) bool {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range found {
		b, _ := os.ReadFile(f)
		for _, a := range bytes.Split(b, []byte{0}) {
			if string(a) == arg {
				return false
			}
		}
	}
	return true
}
