package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/testutil"
)

// TestSessionOnTerminal works in a session as a person does: with a terminal,
// Ctrl-C, history and Ctrl-D.
func TestSessionOnTerminal(t *testing.T) {
	s := serverWithImage(t)
	home := t.TempDir()

	p := startOnPTY(t, s, home, "session", "-i", "debian:bookworm")
	p.expect("✓ Sandbox created with ID: sb-")
	p.expect("✓ Sandbox started successfully")
	p.expect("sandbox:sb-")
	p.typed("shell=kept; echo be''gun\r")
	p.expect("begun")
	p.expect("sandbox:sb-")
	p.typed("sleep 1000\r")
	waitFor(t, "the sleep in the sandbox", func() bool {
		out, err := exec.Command(s.bin, "sandbox", "--server", s.url, "exec", "-q", "-s", p.sandbox(), "pgrep -x sleep").Output()
		return err == nil && len(out) > 0
	})
	p.typed("\x03")
	p.expect("(interrupted)")
	p.expect("sandbox:sb-")
	p.typed("half a line\x03") // dropped
	p.typed("echo \"<$shell>\"\r")
	p.expect("<kept>")
	p.typed("\x1b[A\x1b[A") // history: back to the sleep
	p.expect("sleep 1000")
	p.typed("\x03")
	p.typed("\x04")
	p.expect("✓ Sandbox session ended")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.checkCooked()
	demandNoSandbox(t, s)

	history, err := os.ReadFile(filepath.Join(home, ".local/state/sos/history/image-debian_bookworm"))
	if err != nil || !strings.Contains(string(history), "sleep 1000\n") {
		t.Errorf("history %q, %v", history, err)
	}

	// SIGTERM and SIGHUP at the prompt: removed as well, terminal as before.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		p = startOnPTY(t, s, home, "session", "-i", "debian:bookworm")
		p.expect("sandbox:sb-")
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if code := p.wait(); code != 128+int(sig) {
			t.Errorf("exit code %d after %v", code, sig)
		}
		p.checkCooked()
		demandNoSandbox(t, s)
	}
}

func serverWithImage(t *testing.T) *srv {
	t.Helper()
	s, err := startServer(filepath.Join(binDir(t), "sos"), filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.tearDown(t.Errorf) })
	if out, err := exec.Command(s.bin, "image", "--server", s.url, "import", testutil.Image(t), "--name", "debian:bookworm").CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	return s
}

func demandNoSandbox(t *testing.T, s *srv) {
	t.Helper()
	out, err := exec.Command(s.bin, "sandbox", "--server", s.url, "list", "-q").Output()
	if err != nil || len(out) > 0 {
		t.Errorf("sandboxes left: %s %v", out, err)
	}
}

// pty is a program on a terminal of its own.
type pty struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	slave  *os.File
	cooked *unix.Termios
	read   chan struct{} // closed when the reader has ended

	mu   sync.Mutex
	all  bytes.Buffer
	seen int // how much expect has used up
}

func startOnPTY(t *testing.T, s *srv, home string, args ...string) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var n uint32
	raw, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ioctlErr error
	if err := raw.Control(func(fd uintptr) {
		if ioctlErr = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); ioctlErr == nil {
			n, ioctlErr = unix.IoctlGetUint32(int(fd), unix.TIOCGPTN)
		}
	}); err != nil || ioctlErr != nil {
		t.Fatal(err, ioctlErr)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{t: t, master: master, slave: slave, read: make(chan struct{})}
	if p.cooked, err = unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(s.bin, args...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.cmd.Env = []string{"SOS_SERVER=" + s.url, "HOME=" + home, "TERM=xterm", "PATH=" + os.Getenv("PATH")}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.reader()
	t.Cleanup(func() {
		p.slave.Close()
		p.master.Close()
		<-p.read
	})
	return p
}

func (p *pty) reader() {
	defer close(p.read)
	b := make([]byte, 4096)
	for {
		n, err := p.master.Read(b)
		p.mu.Lock()
		p.all.Write(b[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *pty) typed(s string) {
	p.t.Helper()
	if _, err := p.master.WriteString(s); err != nil {
		p.t.Fatal(err)
	}
}

// expect waits until text appears after what earlier calls waited for.
func (p *pty) expect(text string) {
	p.t.Helper()
	ok := poll(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := bytes.Index(p.all.Bytes()[p.seen:], []byte(text))
		if i >= 0 {
			p.seen += i + len(text)
		}
		return i >= 0
	})
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Fatalf("%q does not appear in %q", text, p.all.Bytes()[p.seen:])
	}
}

// sandbox is the id that the program has shown.
func (p *pty) sandbox() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, rest, _ := strings.Cut(p.all.String(), "created with ID: ")
	return rest[:min(len(rest), len("sb-")+16)]
}

func (p *pty) wait() int {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		return exitCode(err)
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		p.t.Fatal("the program does not end")
		return 0
	}
}

// checkCooked: the terminal is as it was before.
func (p *pty) checkCooked() {
	p.t.Helper()
	got, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	if got.Lflag != p.cooked.Lflag || got.Iflag != p.cooked.Iflag || got.Oflag != p.cooked.Oflag {
		p.t.Errorf("terminal flags %x %x %x, before %x %x %x", got.Iflag, got.Oflag, got.Lflag, p.cooked.Iflag, p.cooked.Oflag, p.cooked.Lflag)
	}
}

// poll asks until the answer is yes or a minute has passed.
func poll(f func() bool) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if f() {
			return true
		}
	}
	return false
}

func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	if !poll(f) {
		t.Fatalf("waited in vain for %s", what)
	}
}
