package spawner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// built is what all tests share: the programs and the image.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sos-spawner-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", err
	}
	for out, pkg := range map[string]string{"sos-spawner": "../../../../cmd/sos-spawner", "sos-guest": "./testdata/guest"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, out), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, text)
		}
	}
	return dir, os.Chmod(filepath.Join(dir, "sos-guest"), 0o711)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := built(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// image gives the root file system, unpacked once for all tests. None may change
// it; its owner is host root, as an unpacked layer's is.
func image(t *testing.T) string {
	t.Helper()
	tarball := testutil.Image(t)
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "image")
	if _, err := os.Stat(root); err == nil {
		return root
	}
	tmp := root + ".tmp"
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", tmp, "-xpf", tarball, "--exclude=./dev/*").CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v\n%s", err, out)
	}
	if err := os.Rename(tmp, root); err != nil {
		t.Fatal(err)
	}
	return root
}

// rig is a spawner under test with the directories of an instance.
type rig struct {
	t        *testing.T
	dir      string
	instance string
	flags    []string
	cmd      *exec.Cmd
	client   *spawn.Client
	out      *bytes.Buffer
	base     atomic.Uint32
}

var rigs atomic.Int32

func newRig(t *testing.T, flags ...string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), instance: fmt.Sprintf("t%d-%d", os.Getpid(), rigs.Add(1)), flags: flags}
	r.base.Store(1 << 20)
	// The sandbox's root looks up paths below it.
	for dir := r.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	t.Cleanup(r.finish)
	return r
}

func (r *rig) run() string { return filepath.Join(r.dir, "run") }

// start starts a spawner and connects.
func (r *rig) start() {
	r.t.Helper()
	dir, err := built()
	if err != nil {
		r.t.Fatal(err)
	}
	r.out = &bytes.Buffer{}
	args := append([]string{"-run", r.run(), "-instance", r.instance, "-keep", r.dir, "-keep", dir}, r.flags...)
	r.cmd = exec.Command(filepath.Join(dir, "sos-spawner"), args...)
	r.cmd.Stderr = r.out
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	want := r.cmd.Process.Pid
	r.until("the spawner is ready", func() bool {
		c, err := spawn.Dial(r.ctx(), filepath.Join(r.run(), spawn.Socket))
		if err != nil {
			return false
		}
		h, err := c.Hello(r.ctx())
		if err != nil || h.Pid != want {
			c.Close()
			return false
		}
		r.client = c
		return true
	})
}

// kill ends the spawner as a crash would.
func (r *rig) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	r.client.Close()
}

// finish ends everything and holds that nothing is left.
func (r *rig) finish() {
	t := r.t
	guests, err := r.client.List(r.ctx())
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, g := range guests {
		if err := errors.Join(r.client.Kill(r.ctx(), g.ID), r.client.Forget(r.ctx(), g.ID)); err != nil {
			t.Errorf("end of %s: %v", g.ID, err)
		}
	}
	if err := r.client.Quit(r.ctx()); err != nil {
		t.Errorf("quit: %v", err)
	}
	r.client.Close()
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("the spawner ended with %v", err)
	}
	if t.Failed() {
		t.Logf("spawner: %s", r.out)
	}
	r.until("every process has ended", func() bool { return len(r.processes()) == 0 })
	h, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := h.Tree("sos-" + r.instance)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := tree.List(); err != nil || len(ids) != 0 {
		t.Errorf("cgroups are left: %v, %v", ids, err)
	}
	if err := tree.Remove(); err != nil {
		t.Errorf("remove the instance's cgroup: %v", err)
	}
	if b, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(b), r.dir) {
		t.Errorf("a mount on the host is left: %s", b)
	}
}

// processes gives those that run the programs of these tests: spawners, holders of
// namespaces, guests.
func (r *rig) processes() []string {
	dir, err := built()
	if err != nil {
		r.t.Fatal(err)
	}
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		r.t.Fatal(err)
	}
	var found []string
	for _, exe := range exes {
		if target, err := os.Readlink(exe); err == nil && strings.HasPrefix(target, dir+"/sos-") {
			found = append(found, exe)
		}
	}
	return found
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within 30 s: %s\n%s", what, r.out)
		}
	}
}

// request gives a create of the image with a range of ids of its own.
func (r *rig) request(id string) spawn.Create {
	dir, err := built()
	if err != nil {
		r.t.Fatal(err)
	}
	return spawn.Create{
		ID: id, RunDir: filepath.Join(r.run(), id), StateDir: filepath.Join(r.dir, "state-"+id),
		GuestPath: filepath.Join(dir, "sos-guest"), Layers: []string{image(r.t)},
		IDBase: r.base.Add(spawn.IDs), Limits: spawn.Limits{CPU: 1, Memory: 128 << 20, PIDs: 100},
		Hostname: "box-" + id,
	}
}

func (r *rig) create(req spawn.Create) spawn.Created {
	r.t.Helper()
	c, err := r.client.Create(r.ctx(), req)
	if err != nil {
		r.t.Fatalf("create %s: %v\n%s", req.ID, err, r.out)
	}
	unix.Close(c.Pidfd)
	return c
}

// sh runs a text inside and gives what it printed.
func (r *rig) sh(id, text string) string {
	r.t.Helper()
	out, err := r.try(id, text)
	if err != nil {
		r.t.Fatalf("%s: %q: %v", id, text, err)
	}
	return out
}

func (r *rig) try(id, text string) (string, error) {
	// By the descriptor of the directory: a socket's name is short.
	d, err := os.Open(filepath.Join(r.run(), id))
	if err != nil {
		return "", err
	}
	defer d.Close()
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), spawn.GuestSock))
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// fingerprint lists a tree: names, modes, owners, sizes and times.
func fingerprint(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		lines = append(lines, fmt.Sprintf("%s %v %d:%d %d %v", path, info.Mode(), st.Uid, st.Gid, info.Size(), info.ModTime()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
