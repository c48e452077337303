package native

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func usageOf(t *testing.T, dir string) int64 {
	t.Helper()
	n, err := diskUsage(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDiskUsage(t *testing.T) {
	dir := t.TempDir()
	empty := usageOf(t, dir)
	const mib = 1 << 20
	within := func(what string, want int64) {
		t.Helper()
		if n := usageOf(t, dir) - empty; n < want || n > want+64<<10 {
			t.Errorf("%s: %d bytes; want about %d", what, n, want)
		}
	}
	write(t, filepath.Join(dir, "a"), mib)
	within("one file", mib)
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	within("a second name of it", mib)
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "d", "c"), mib)
	within("a file in a directory", 2*mib)
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	f.Close()
	within("a file of holes", 2*mib)
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	within("a link to elsewhere", 2*mib)
}

func TestDiskUsageOfDeepTree(t *testing.T) {
	dir := t.TempDir()
	before := usageOf(t, dir)
	const depth = 3000
	nest(t, dir, depth)
	if n := usageOf(t, dir) - before; n < 8192 {
		t.Errorf("%d bytes; the file at the bottom alone has 8192", n)
	}
	if err := emptyTrash(t.Context(), dir); err != nil {
		t.Error(err)
	}
}

func TestDiskUsageLeavesMountsOut(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	write(t, filepath.Join(other, "big"), 4<<20)
	mount := filepath.Join(dir, "m")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other, mount, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(mount, unix.MNT_DETACH)
	if n := usageOf(t, dir); n > 1<<20 {
		t.Errorf("%d bytes are counted below a mount", n)
	}
}
