package system

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/client"
	"github.com/seaofsimulation/sos/internal/testutil"
)

const ubuntu = "ubuntu:latest"

// long is a deadline against hangs, on a busy machine too.
const long = 3 * time.Minute

// rig is a data directory with a server on it, which may be killed and replaced.
type rig struct {
	t    testing.TB
	bin  string
	data string
	args []string
	srv  *testutil.Server
	c    *client.Client
}

// newRig starts a server with the image in it. At the end of the test everything
// of it is ended, and nothing may be left.
func newRig(t testing.TB, args ...string) *rig {
	t.Helper()
	r := &rig{t: t, bin: testutil.Binary(t), data: filepath.Join(t.TempDir(), "data"), args: args}
	r.boot()
	t.Cleanup(r.tearDown)
	r.load(testutil.Image(t), ubuntu)
	return r
}

func (r *rig) tearDown() {
	if r.t.Failed() {
		r.t.Logf("the server's log:\n%s", r.srv.Log())
	}
	r.srv.TearDown(r.t.Errorf)
}

// boot starts the (next) server on the data directory.
func (r *rig) boot() {
	r.t.Helper()
	srv, err := testutil.StartServer(testutil.ServerConfig{Bin: r.bin, Data: r.data, Args: r.args})
	if err != nil {
		if srv != nil {
			_ = srv.Stop(syscall.SIGKILL)
		}
		r.t.Fatal(err)
	}
	if !srv.Healthy {
		srv.TearDown(r.t.Logf)
		r.t.Fatalf("the server is not healthy:\n%s", srv.Log())
	}
	r.srv, r.c = srv, client.New(client.Config{URL: srv.URL})
}

func (r *rig) load(path, name string) {
	r.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	if _, err := r.c.ImportImage(deadline(r.t), f, name, nil); err != nil {
		r.t.Fatalf("import %s: %v", name, err)
	}
}

// deadline is a context that ends with the test or when something hangs.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	t.Cleanup(cancel)
	return ctx
}

// kill ends the server by SIGKILL.
func (r *rig) kill() {
	r.t.Helper()
	_ = r.srv.Stop(syscall.SIGKILL) // says that it was killed
}

// spawner is the pid of the instance's spawner.
func (r *rig) spawner() (int, error) {
	b, err := os.ReadFile(filepath.Join("/run/sos", r.srv.Instance, "spawner.pid"))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return 0, fmt.Errorf("spawner.pid is empty")
	}
	return strconv.Atoi(f[0])
}

func (r *rig) killSpawner() {
	r.t.Helper()
	pid, err := r.spawner()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		r.t.Fatalf("kill the spawner %d: %v", pid, err)
	}
}

// box is one sandbox of a rig.
type box struct {
	*rig
	id string
}

// started makes a sandbox and starts it.
func (r *rig) started(spec sos.SandboxSpec) *box {
	r.t.Helper()
	b := r.created(spec)
	if _, err := r.c.StartSandbox(deadline(r.t), b.id); err != nil {
		r.t.Fatalf("start: %v", err)
	}
	return b
}

func (r *rig) created(spec sos.SandboxSpec) *box {
	r.t.Helper()
	if spec.Image == "" {
		spec.Image = ubuntu
	}
	s, err := r.c.CreateSandbox(deadline(r.t), spec)
	if err != nil {
		r.t.Fatalf("create: %v", err)
	}
	return &box{r, s.ID}
}

// on is the same sandbox for a subtest.
func (r *rig) on(t testing.TB) *rig {
	c := *r
	c.t = t
	return &c
}

func (b *box) remove() {
	b.t.Helper()
	if err := b.c.RemoveSandbox(context.Background(), b.id); err != nil {
		b.t.Errorf("remove %s: %v", b.id, err)
	}
}

// run executes a request that must be answered.
func (b *box) run(q sos.ExecRequest) sos.ExecResult {
	b.t.Helper()
	res, err := b.c.Exec(deadline(b.t), b.id, q)
	if err != nil {
		b.t.Errorf("exec %.80q: %v", q.Command, err)
	}
	return res
}

// sh runs a command in the session and holds the answer to output and code.
func (b *box) sh(command, output string, code int) {
	b.t.Helper()
	b.is(b.run(sos.ExecRequest{Command: command}), command, output, code)
}

// alone does the same in a shell of its own.
func (b *box) alone(command, output string, code int) {
	b.t.Helper()
	b.is(b.run(sos.ExecRequest{Command: command, Standalone: true}), command, output, code)
}

func (b *box) is(got sos.ExecResult, command, output string, code int) {
	b.t.Helper()
	if got.Output != output || got.ExitCode != code || got.Exited {
		got.Output = short(got.Output)
		b.t.Errorf("%s: %.80q gave %+v, want %.200q with %d", b.id, command, got, output, code)
	}
}

func short(s string) string {
	if len(s) > 300 {
		return s[:150] + "…" + s[len(s)-150:]
	}
	return s
}

// background sends a command whose answer comes on the channel.
func (b *box) background(q sos.ExecRequest) <-chan answer {
	done := make(chan answer, 1)
	c, ctx := b.c, deadline(b.t)
	go func() {
		res, err := c.Exec(ctx, b.id, q)
		done <- answer{res, err}
	}()
	return done
}

type answer struct {
	sos.ExecResult
	err error
}

// get waits for an answer.
func (b *box) get(done <-chan answer) answer {
	b.t.Helper()
	select {
	case a := <-done:
		return a
	case <-time.After(long):
		b.t.Fatalf("no answer; the log says\n%s", b.srv.Log())
		return answer{}
	}
}

// proc is the record of the one process with this command.
func (b *box) proc(command string) *sos.Process {
	b.t.Helper()
	all, err := b.c.ListProcesses(deadline(b.t), b.id, sos.ProcessFilter{})
	if err != nil {
		b.t.Fatalf("processes of %s: %v", b.id, err)
	}
	for _, p := range all {
		if p.Command == command {
			return &p
		}
	}
	return nil
}

// ended waits until the process with this command has ended.
func (b *box) ended(command string) sos.Process {
	b.t.Helper()
	var p *sos.Process
	eventually(b.t, fmt.Sprintf("%.60q in %s ends", command, b.id), func() bool {
		p = b.proc(command)
		return p != nil && p.Status != sos.ProcessRunning && p.Status != sos.ProcessQueued
	})
	return *p
}

// runs waits until the process with this command runs and has printed.
func (b *box) runs(command string) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("%.60q in %s prints", command, b.id), func() bool {
		p := b.proc(command)
		return p != nil && p.Status == sos.ProcessRunning && b.recorded(p.ID) > 0
	})
}

func (b *box) recorded(process string) (n int64) {
	for _, o := range b.outputOf(process) {
		n += o.Bytes
	}
	return n
}

func (b *box) outputOf(process string) []sos.Output {
	p, err := b.c.GetProcess(deadline(b.t), b.id, process)
	if err != nil {
		b.t.Fatalf("process %s: %v", process, err)
	}
	return p.Output
}

// digest is the SHA-256 and the length of all recorded output of a process.
func (b *box) digest(process string) (string, int64) {
	b.t.Helper()
	h := sha256.New()
	n, err := b.c.ReadOutput(deadline(b.t), b.id, process, sos.StreamOut, 0, true, h)
	if err != nil {
		b.t.Errorf("read the output of %s: %v", process, err)
	}
	return hex.EncodeToString(h.Sum(nil)), n
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func (b *box) seen() sos.Sandbox {
	b.t.Helper()
	s, err := b.c.GetSandbox(deadline(b.t), b.id)
	if err != nil {
		b.t.Fatalf("get %s: %v", b.id, err)
	}
	return s
}

// eventually asks until the answer is yes.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(long); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// clean demands that no sandbox of the instance has left anything, though the
// server runs on.
func (r *rig) clean() {
	r.t.Helper()
	inst := r.srv.Instance
	var left []string
	for end := time.Now().Add(long); ; time.Sleep(50 * time.Millisecond) {
		left = nil
		for _, pattern := range []string{
			filepath.Join(r.data, "sandboxes", "*"), filepath.Join(r.data, "trash", "*"), filepath.Join(r.data, "journal", "*"),
			filepath.Join("/run/sos", inst, sos.SandboxIDPrefix+"*"), "/sys/fs/cgroup/*/sos-" + inst + "/sb-*", "/sys/fs/cgroup/sos-" + inst + "/sb-*",
		} {
			found, err := filepath.Glob(pattern)
			if err != nil {
				r.t.Fatal(err)
			}
			left = append(left, found...)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			r.t.Errorf("left over: %v", left)
			return
		}
	}
}
