package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// onDisk starts a server whose data directory is an ext4 of its own.
func onDisk(t *testing.T, size int64) *rig {
	t.Helper()
	dir := t.TempDir()
	disk, mnt := filepath.Join(dir, "disk"), filepath.Join(dir, "mnt")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(disk, size); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{{"mkfs.ext4", "-q", "-m", "0", disk}, {"mount", "-o", "loop", disk, mnt}} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", line, err, out)
		}
	}
	t.Cleanup(func() {
		eventually(t, "the unmount of "+mnt, func() bool { return unix.Unmount(mnt, 0) == nil })
	})
	r := &rig{t: t, bin: testutil.Binary(t), data: filepath.Join(mnt, "data")}
	r.boot()
	t.Cleanup(r.tearDown)
	return r
}

// fill takes all of the disk but keep bytes, and gives how to give it back.
func (r *rig) fill(keep int64) (free func()) {
	r.t.Helper()
	path := filepath.Join(filepath.Dir(r.data), "filler")
	f, err := os.Create(path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	var at int64
	for step := int64(256 << 20); step >= 4096; {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			r.t.Fatal(err)
		}
		if int64(st.Bavail)*st.Bsize < keep+step || unix.Fallocate(int(f.Fd()), 0, at, step) != nil {
			step /= 2
			continue
		}
		at += step
	}
	return func() {
		r.t.Helper()
		if err := os.Remove(path); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestFullDiskImport: an image that does not fit leaves nothing of itself.
func TestFullDiskImport(t *testing.T) {
	r := onDisk(t, 1<<30)
	r.fill(60 << 20)
	f, err := os.Open(testutil.Image(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before := usage(filepath.Join(r.data, "images"))
	_, err = r.c.ImportImage(deadline(t), f, ubuntu, nil)
	if code := sos.ErrorCode(err); code != sos.CodeUnavailable && code != sos.CodeImageFailed || !strings.Contains(err.Error(), "space") && !strings.Contains(err.Error(), "full") {
		t.Errorf("an import on a full disk: %s %v", code, err)
	}
	if after := usage(filepath.Join(r.data, "images")); after > before+1<<20 {
		t.Errorf("%d KiB are left of it", (after-before)>>10)
	}
	if list, err := r.c.ListImages(deadline(t)); err != nil || len(list) > 0 {
		t.Errorf("images: %+v, %v", list, err)
	}
}

// TestFullDisk: what cannot be done on a full disk is refused, nothing is half
// made, and with room all goes on.
func TestFullDisk(t *testing.T) {
	r := onDisk(t, 3<<30)
	r.load(testutil.Image(t), ubuntu)
	b := r.started(sos.SandboxSpec{})
	b.sh("V=kept; echo data > /root/file", "", 0)
	waits := r.created(sos.SandboxSpec{})
	victim := r.started(sos.SandboxSpec{})
	victim.sh("head -c 20000000 /dev/urandom > /root/big", "", 0)
	free := r.fill(0)

	_, err := r.c.StartSandbox(deadline(t), waits.id)
	if sos.ErrorCode(err) != sos.CodeUnavailable || !strings.Contains(err.Error(), "disk") {
		t.Errorf("a start on a full disk: %v", err)
	}
	if s := waits.seen(); s.Status != sos.StatusCreated && s.Status != sos.StatusFailed {
		t.Errorf("afterwards it is %s: %s", s.Status, s.Message)
	}
	if _, err := os.Stat(filepath.Join(r.data, "sandboxes", waits.id)); err == nil {
		t.Error("it left files")
	}
	res, err := r.c.Exec(deadline(t), b.id, sos.ExecRequest{Command: "echo fine; head -c 3000000 /dev/zero"})
	t.Logf("a command on a full disk: %d bytes, %+v, %v", len(res.Output), res.Reason, err)
	if err == nil && res.Reason == "" && (res.ExitCode != 0 || !res.Truncated && len(res.Output) < 3000000) {
		t.Errorf("output is missing and nothing says so: %d of %d bytes", len(res.Output), res.OutputBytes)
	}
	if err != nil && sos.ErrorCode(err) == sos.CodeInternal {
		t.Errorf("the cause is not named: %v", err)
	}
	if _, err := r.c.ListSandboxes(deadline(t), sos.SandboxFilter{}); err != nil {
		t.Errorf("list: %v", err)
	}
	s, err := r.c.CreateSandbox(deadline(t), sos.SandboxSpec{Image: ubuntu})
	t.Logf("a create on a full disk: %v", err)
	if err != nil && sos.ErrorCode(err) == sos.CodeInternal {
		t.Errorf("the cause is not named: %v", err)
	}

	// Removing makes room, so it has to work here.
	big := filepath.Join(r.data, "sandboxes", victim.id)
	if err := r.c.RemoveSandbox(deadline(t), victim.id); err != nil {
		t.Errorf("remove on a full disk: %v", err)
	}
	eventually(t, "its files are gone", func() bool { _, err := os.Stat(big); return err != nil })
	if s.ID != "" {
		(&box{r, s.ID}).remove()
	}
	free()
	eventually(t, "the session goes on", func() bool {
		res, err := r.c.Exec(deadline(t), b.id, sos.ExecRequest{Command: "echo $V; cat /root/file"})
		return err == nil && res.Output == "kept\ndata"
	})
	if _, err := r.c.StartSandbox(deadline(t), waits.id); err != nil {
		t.Errorf("start with room again: %v", err)
	}
	waits.sh("echo well", "well", 0)
	waits.remove()
	b.remove()
	r.clean()
}
