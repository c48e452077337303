package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/client"
)

// The tests run the real guest as process 1 of its own pid, mount and ipc
// namespaces, on the host's root filesystem.

var guestBinary string

func TestMain(m *testing.M) {
	if os.Getenv("SOS_TEST_INIT") != "" {
		beInit()
	}
	dir, err := os.MkdirTemp("", "guest")
	if err != nil {
		panic(err)
	}
	guestBinary = filepath.Join(dir, "sos-guest")
	cmd := exec.Command("go", "build", "-trimpath", "-o", guestBinary, "github.com/seaofsimulation/sos/cmd/sos-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the guest: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// beInit is what the spawner does for a real sandbox: it makes the mounts and
// becomes the guest.
func beInit() {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "test init:", err)
			os.Exit(99)
		}
	}
	must(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	must(syscall.Mount("proc", "/proc", "proc", 0, ""))
	must(syscall.Mount("tmpfs", os.Getenv("SOS_TEST_DIR"), "tmpfs", syscall.MS_RELATIME, "mode=711"))
	must(syscall.Exec(os.Getenv("SOS_TEST_GUEST"), []string{"sos-guest"},
		[]string{"SOS_GUEST=" + os.Getenv("SOS_TEST_INIT"), "GOMAXPROCS=1"}))
}

// rig is a guest with a client.
type rig struct {
	*client.Client
	t      testing.TB
	sink   *sink
	cmd    *exec.Cmd
	socket string
	log    *bytes.Buffer
	dial   func(ctx context.Context) (net.Conn, error)
	stop   context.CancelFunc
	done   chan error
}

type rigOptions struct {
	extra []*os.File // descriptors from 4 on
	conf  string     // more of SOS_GUEST
	conn  func(net.Conn) net.Conn
	leak  *os.File // a descriptor that nobody named
}

func newRig(t testing.TB, opts ...rigOptions) *rig {
	t.Helper()
	var o rigOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	dir := t.TempDir()
	r := &rig{t: t, sink: newSink(t), socket: filepath.Join(dir, "g"), log: &bytes.Buffer{}}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o711); err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command("/proc/self/exe")
	r.cmd.Env = []string{"SOS_TEST_INIT=listen=3;dir=" + own + o.conf, "SOS_TEST_GUEST=" + guestBinary, "SOS_TEST_DIR=" + own}
	r.cmd.ExtraFiles = append([]*os.File{f}, o.extra...)
	if o.leak != nil {
		r.cmd.ExtraFiles = append(r.cmd.ExtraFiles, o.leak)
	}
	r.cmd.Stderr = r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC, Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l.Close()
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		if t.Failed() {
			t.Logf("guest's log:\n%s", r.log)
		}
	})
	r.dial = func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", r.socket)
		if err == nil && o.conn != nil {
			c = o.conn(c)
		}
		return c, err
	}
	r.connect(r.sink)
	return r
}

// connect makes a client; an earlier one is stopped.
func (r *rig) connect(s *sink) {
	r.t.Helper()
	r.disconnect()
	r.sink = s
	r.connectSink(s)
}

func (r *rig) connectSink(s guest.Sink) {
	r.t.Helper()
	r.Client = client.New(client.Config{Dial: r.dial, Sink: s})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	r.stop, r.done = cancel, done
	c := r.Client
	go func() { done <- c.Run(ctx) }()
	r.t.Cleanup(r.disconnect)
	if err := r.Ready(r.ctx(20)); err != nil {
		r.t.Fatalf("ready: %v\n%s", err, r.log)
	}
}

func (r *rig) disconnect() {
	if r.stop != nil {
		r.stop()
		<-r.done
		r.stop = nil
	}
}

func (r *rig) ctx(seconds int) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	r.t.Cleanup(cancel)
	return ctx
}

var lastID atomic.Int64

// start begins sh -c text.
func (r *rig) start(text string, change ...func(*guest.Command)) *record {
	r.t.Helper()
	cmd := guest.Command{ID: "p-" + strconv.FormatInt(lastID.Add(1), 10), Argv: []string{"/bin/bash", "-c", text}}
	for _, f := range change {
		f(&cmd)
	}
	rec := r.sink.get(cmd.ID)
	if err := r.Start(r.ctx(60), cmd); err != nil {
		r.t.Fatalf("start %q: %v", text, err)
	}
	return rec
}

// run is start and wait for the end.
func (r *rig) run(text string, change ...func(*guest.Command)) *record {
	r.t.Helper()
	rec := r.start(text, change...)
	rec.wait(r.t)
	return rec
}

func timeout(d, grace time.Duration) func(*guest.Command) {
	return func(c *guest.Command) { c.Timeout, c.Grace = d, grace }
}

func argv(args ...string) func(*guest.Command) {
	return func(c *guest.Command) { c.Argv = args }
}

// record is what came of one process.
type record struct {
	id      string
	started time.Time
	exit    sos.Exit
	at      time.Time
	out     map[sos.Stream][]byte
	atExit  int // bytes of output when Exited came
	hash    hash.Hash
	bytes   int64
	ended   chan struct{}
	drained chan struct{}
	resumed int
}

func (r *record) text() string { return string(r.out[sos.StreamOut]) }

func (r *record) wait(t testing.TB) {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(90 * time.Second):
		t.Fatalf("%s did not end", r.id)
	}
}

func (r *record) waitDrained(t testing.TB) {
	t.Helper()
	select {
	case <-r.drained:
	case <-time.After(90 * time.Second):
		t.Fatalf("%s is not drained", r.id)
	}
}

func (r *record) code() int {
	if r.exit.ExitCode == nil {
		return -1
	}
	return *r.exit.ExitCode
}

// sink keeps everything, and fails the test when the rules of guest.Sink are broken.
type sink struct {
	t     testing.TB
	mu    sync.Mutex
	procs map[string]*record
	ends  chan sos.Exit // of sessions
	slow  func(n int)   // called at each output
	drop  bool          // keep only hash and count
}

func newSink(t testing.TB) *sink {
	return &sink{t: t, procs: map[string]*record{}, ends: make(chan sos.Exit, 100)}
}

func (s *sink) get(id string) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.procs[id]
	if r == nil {
		r = &record{id: id, out: map[sos.Stream][]byte{}, hash: sha256.New(),
			ended: make(chan struct{}), drained: make(chan struct{})}
		s.procs[id] = r
	}
	return r
}

func (s *sink) Resume(p guest.ProcessInfo) (map[sos.Stream]int64, bool) {
	r := s.get(p.ID)
	r.resumed++
	offsets := map[sos.Stream]int64{}
	for k, b := range r.out {
		offsets[k] = int64(len(b))
	}
	if s.drop {
		offsets[sos.StreamOut] = r.bytes
	}
	return offsets, true
}

func (s *sink) Started(id string, at time.Time) { s.get(id).started = at }

func (s *sink) Output(id string, k sos.Stream, offset int64, data []byte) {
	r := s.get(id)
	if s.slow != nil {
		s.slow(len(data))
	}
	if s.drop {
		if offset != r.bytes {
			s.t.Errorf("%s: output at %d, have %d", id, offset, r.bytes)
		}
		r.bytes += int64(len(data))
		r.hash.Write(data)
		return
	}
	if offset != int64(len(r.out[k])) {
		s.t.Errorf("%s %s: output at %d, have %d", id, k, offset, len(r.out[k]))
	}
	if ended(r.drained) {
		s.t.Errorf("%s: output after drained", id)
	}
	r.out[k] = append(r.out[k], data...)
}

func ended(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (s *sink) Exited(id string, e sos.Exit, at time.Time) {
	r := s.get(id)
	if ended(r.ended) {
		s.t.Errorf("%s ended twice", id)
		return
	}
	for _, b := range r.out {
		r.atExit += len(b)
	}
	r.exit, r.at = e, at
	close(r.ended)
}

func (s *sink) Drained(id string) {
	r := s.get(id)
	if !ended(r.ended) {
		s.t.Errorf("%s drained before its end", id)
	}
	if ended(r.drained) {
		s.t.Errorf("%s drained twice", id)
		return
	}
	close(r.drained)
}

func (s *sink) SessionEnded(_ string, e sos.Exit) { s.ends <- e }

// ps lists what runs in the sandbox but the guest and ps itself.
func (r *rig) ps() string {
	r.t.Helper()
	rec := r.run(`for d in /proc/[0-9]*; do p=${d#/proc/}; [ $p = 1 ] || [ $p = $$ ] || { tr '\0' ' ' <$d/cmdline; echo; } 2>/dev/null; done`)
	return strings.TrimSpace(rec.text())
}

// waitGone waits until nothing runs whose command line holds text.
func (r *rig) waitGone(text string) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for strings.Contains(r.ps(), text) {
		if time.Now().After(deadline) {
			r.t.Fatalf("still there:\n%s", r.ps())
		}
		time.Sleep(20 * time.Millisecond)
	}
}
