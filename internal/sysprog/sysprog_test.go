package sysprog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/testutil"
)

// wait collects a child and gives its status.
func wait(t testing.TB, pid int) unix.WaitStatus {
	t.Helper()
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatalf("wait for %d: %v", pid, err)
		}
		return ws
	}
}

// output runs a shell text through a program whose descriptor 1 is a pipe.
func output(t testing.TB, opt ForkOptions, text string, prepare func(p *Program)) (string, unix.WaitStatus) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p := New()
	if prepare != nil {
		prepare(p)
	}
	p.Files([]int{int(null.Fd()), int(w.Fd()), int(w.Fd())})
	p.Exec("/bin/sh", []string{"sh", "-c", text}, []string{"PATH=/usr/bin:/bin"})
	pid, pidfd, err := p.Fork(0, opt)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if pidfd >= 0 {
		unix.Close(pidfd)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), wait(t, pid)
}

func TestForkExec(t *testing.T) {
	out, ws := output(t, ForkOptions{}, "echo hello; exit 7", nil)
	if out != "hello\n" || ws.ExitStatus() != 7 {
		t.Fatalf("output %q, status %d", out, ws.ExitStatus())
	}
}

func TestOnlyGivenDescriptors(t *testing.T) {
	out, _ := output(t, ForkOptions{}, "ls /proc/self/fd | tr '\\n' ' '", func(p *Program) {
		p.CloseOnExecFrom(3) // the test may have inherited some
	})
	if out != "0 1 2 3 " { // 3 is the directory that ls reads
		t.Fatalf("descriptors of the child: %q", out)
	}
}

func TestFilesMayOverlap(t *testing.T) {
	// Targets are sources of others: the numbers that pipes get here are low.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := New()
	fds := make([]int, 16)
	for i := range fds {
		fds[i] = int(r.Fd())
	}
	fds[1], fds[2], fds[15] = int(w.Fd()), int(w.Fd()), int(w.Fd())
	p.Files(fds)
	p.Exec("/bin/bash", []string{"bash", "-c", "echo last >&15"}, nil)
	pid, _, err := p.Fork(0, ForkOptions{})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r)
	wait(t, pid)
	if string(b) != "last\n" {
		t.Fatalf("got %q", b)
	}
}

func TestStepErrorNamesTheStep(t *testing.T) {
	for _, opt := range []ForkOptions{{}, {Pidfd: true}} {
		p := New()
		p.Call("enter the hall", unix.SYS_CHDIR, p.Str("/nonexistent"))
		p.Exec("/bin/true", []string{"true"}, nil)
		_, _, err := p.Fork(0, opt)
		var step *StepError
		if !errors.As(err, &step) || step.Step != "enter the hall" || !errors.Is(err, unix.ENOENT) {
			t.Fatalf("%+v: error %v", opt, err)
		}
		if err.Error() != "enter the hall: no such file or directory" {
			t.Fatalf("text %q", err)
		}
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Fatalf("a child is left: %v", err)
	}
}

func TestFailedExec(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("#!/nonexistent\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		dir + "/none": unix.ENOENT, dir: unix.EACCES, dir + "/x": unix.ENOENT, "/etc/passwd": unix.EACCES,
	} {
		p := New()
		p.Exec(path, []string{path}, nil)
		if _, _, err := p.Fork(0, ForkOptions{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

func TestExecFD(t *testing.T) {
	fd, err := unix.Open("/bin/true", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	p := New()
	p.ExecFD(fd, []string{"true"}, nil)
	pid, _, err := p.Fork(0, ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ws := wait(t, pid); ws.ExitStatus() != 0 {
		t.Fatalf("status %d", ws.ExitStatus())
	}
}

func TestSlotsAndConditions(t *testing.T) {
	dir := t.TempDir()
	p := New()
	path := p.Str(dir + "/made")
	p.Call("make", unix.SYS_MKDIRAT, ^uintptr(99), path, 0o755).Ignore(unix.EEXIST) // AT_FDCWD is -100
	p.Call("mark", unix.SYS_MKDIRAT, ^uintptr(99), p.Str(dir+"/first"), 0o755).Then()
	p.Call("wrong", unix.SYS_MKDIRAT, ^uintptr(99), p.Str(dir+"/wrong"), 0o755).Else()
	p.Call("make again", unix.SYS_MKDIRAT, ^uintptr(99), path, 0o755).Ignore(unix.EEXIST)
	p.Call("wrong", unix.SYS_MKDIRAT, ^uintptr(99), p.Str(dir+"/wrong"), 0o755).Then()
	p.Call("open", unix.SYS_OPENAT, ^uintptr(99), path, unix.O_DIRECTORY|unix.O_CLOEXEC).Else().Save(0)
	p.Call("make below", unix.SYS_MKDIRAT, 0, p.Str("below"), 0o755).Use(0, 0)
	p.Exec("/bin/true", []string{"true"}, nil)
	pid, _, err := p.Fork(0, ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, pid)
	for name, want := range map[string]bool{"first": true, "wrong": false, "made/below": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSignalsAreDefault(t *testing.T) {
	signal.Ignore(syscall.SIGPIPE, syscall.SIGUSR1)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	defer signal.Reset(syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	out, _ := output(t, ForkOptions{}, "cat /proc/self/status", nil)
	seen := 0
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if !strings.HasPrefix(line, "SigBlk") && !strings.HasPrefix(line, "SigIgn") && !strings.HasPrefix(line, "SigCgt") {
			continue
		}
		seen++
		if !strings.HasSuffix(line, "\t0000000000000000") {
			t.Errorf("in the child: %s", line)
		}
	}
	if seen != 3 {
		t.Fatalf("status of the child: %s", out)
	}
}

func TestMistakesInPrograms(t *testing.T) {
	for name, build := range map[string]func(p *Program){
		"NUL":        func(p *Program) { p.Exec("/bin/true", []string{"a\x00b"}, nil) },
		"after exec": func(p *Program) { p.Exec("/bin/true", nil, nil); p.Call("x", unix.SYS_GETPID) },
		"slot":       func(p *Program) { p.Call("x", unix.SYS_GETPID).Save(Slots) },
		"arguments":  func(p *Program) { p.Call("x", unix.SYS_GETPID, 1, 2, 3, 4, 5, 6, 7) },
	} {
		p := New()
		build(p)
		if _, _, err := p.Fork(0, ForkOptions{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWatchdog(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, opt := range []ForkOptions{{Timeout: 500 * time.Millisecond}, {Timeout: 500 * time.Millisecond, Pidfd: true}} {
		p := New()
		buf := make([]byte, 1)
		p.Call("wait for ever", unix.SYS_READ, r.Fd(), p.Ptr(buf), 1)
		p.Exec("/bin/true", []string{"true"}, nil)
		_, _, err := p.Fork(0, opt)
		var step *StepError
		if !errors.As(err, &step) || step.Step != "wait for ever" || step.Signal != syscall.SIGKILL {
			t.Fatalf("%+v: %v", opt, err)
		}
	}
}

// A child that stays shares our memory: what it saved can be read while it lives, and
// garbage is collected meanwhile.
func TestStay(t *testing.T) {
	for _, end := range []struct {
		dir  string
		want string
	}{{"/", ""}, {"/nonexistent", "enter"}} {
		park, said := make([]int, 2), make([]int, 2)
		if err := errors.Join(unix.Pipe2(park, unix.O_CLOEXEC), unix.Pipe2(said, unix.O_CLOEXEC)); err != nil {
			t.Fatal(err)
		}
		p := New()
		p.Call("get the pid", unix.SYS_GETPID).Save(3)
		p.Write("say", said[1], "x")
		p.Call("park", unix.SYS_READ, uintptr(park[0]), p.Ptr(make([]byte, 1)), 1)
		p.Call("enter", unix.SYS_CHDIR, p.Str(end.dir))
		type result struct {
			pid int
			err error
		}
		ended := make(chan result, 1)
		go func() {
			pid, _, err := p.Fork(0, ForkOptions{Stay: true, Timeout: time.Minute})
			ended <- result{pid, err}
		}()
		if n, err := unix.Read(said[0], make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		pid := int(p.Result(3))
		runtime.GC()
		unix.Write(park[1], []byte("x"))
		r := <-ended
		p.Release()
		for _, fd := range append(park, said...) {
			unix.Close(fd)
		}
		if r.pid != pid || pid == os.Getpid() {
			t.Errorf("pid %d, the child says %d", r.pid, pid)
		}
		var step *StepError
		if errors.As(r.err, &step) != (end.want != "") || step != nil && step.Step != end.want {
			t.Errorf("in %s: %v", end.dir, r.err)
		}
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.ECHILD {
			t.Errorf("the child was not collected: %v", err)
		}
	}
}

func TestWithoutExec(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := New()
	p.Write("say", int(w.Fd()), "x")
	p.Call("fail", unix.SYS_CHDIR, p.Str("/nonexistent"))
	pid, pidfd, err := p.Fork(0, ForkOptions{Pidfd: true})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	defer p.Release()
	if b, _ := io.ReadAll(r); string(b) != "x" {
		t.Fatalf("read %q", b)
	}
	wait(t, pid)
	if err := p.Err(); err == nil || err.Error() != "fail: no such file or directory" {
		t.Fatalf("error %v", err)
	}
}

// TestManyForks holds that parallel forks neither disturb the runtime nor each
// other while the garbage collector runs all the time.
func TestManyForks(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	stop := make(chan struct{})
	var bg sync.WaitGroup
	bg.Go(func() {
		var garbage [][]byte
		for {
			select {
			case <-stop:
				return
			default:
				garbage = append(garbage[:len(garbage)%64], make([]byte, 32<<10))
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range testutil.Scale(60) {
				want := fmt.Sprintf("%d-%d\n", i, j)
				opt := ForkOptions{Pidfd: j%2 == 0, Timeout: time.Duration(j%3) * time.Minute}
				out, ws := output(t, opt, "echo $VAR "+strings.TrimSpace(want), nil)
				if out != want || ws.ExitStatus() != 0 {
					t.Errorf("output %q, want %q, status %d", out, want, ws.ExitStatus())
					return
				}
				p := New()
				p.Exec("/nonexistent", []string{"x"}, nil)
				if _, _, err := p.Fork(0, opt); !errors.Is(err, unix.ENOENT) {
					t.Errorf("exec of nothing: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	bg.Wait()
}
