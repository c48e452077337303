package native

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inDir runs f with a directory that lies depth levels below dir.
func nest(t *testing.T, dir string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(fd, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	f, err := unix.Openat(fd, "bottom", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(f, make([]byte, 8192)); err != nil {
		t.Fatal(err)
	}
	unix.Close(f)
	unix.Close(fd)
}

func emptied(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left", e.Name())
	}
}

func TestTrashDeletesDeepAndWideTrees(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "trash")
	tree := filepath.Join(base, "sb-x")
	if err := os.MkdirAll(tree, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	nest(t, tree, 3000) // far longer than a path may be
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(tree, fmt.Sprint("file", i)), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := moveToTrash(dir, tree); err != nil {
		t.Fatal(err)
	}
	if err := emptyTrash(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	emptied(t, dir)
}

func TestTrashFollowsNoLink(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "trash"), filepath.Join(base, "outside")
	for _, d := range []string{filepath.Join(dir, "tree"), outside} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": outside, "up": "../../outside", "file": precious} {
		if err := os.Symlink(target, filepath.Join(dir, "tree", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := emptyTrash(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	emptied(t, dir)
	if !exists(precious) {
		t.Fatal("a file outside was deleted")
	}
}

// A mount in a removed tree belongs to somebody else: what is below it stays, and
// the deletion says so.
func TestTrashEntersNoMount(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "trash"), filepath.Join(base, "outside")
	mount := filepath.Join(dir, "tree", "mount")
	for _, d := range []string{mount, outside} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tree", "zz-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// A bind mount of the same filesystem: the device number does not tell.
	if err := unix.Mount(outside, mount, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(mount, unix.MNT_DETACH)
	if err := emptyTrash(t.Context(), dir); err == nil {
		t.Error("nothing is said of a tree that could not be deleted")
	}
	if !exists(precious) {
		t.Fatal("files below a mount were deleted")
	}
	if exists(filepath.Join(dir, "tree", "zz-file")) {
		t.Error("the mount kept its neighbours from being deleted")
	}
	if err := unix.Unmount(mount, 0); err != nil {
		t.Fatal(err)
	}
	if err := emptyTrash(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	emptied(t, dir)
}

func TestTrashIsResumedAtOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trash")
	if err := os.MkdirAll(filepath.Join(dir, "left", "by", "a", "crash"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tr, err := openTrash(ctx, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the trash is empty", func() bool { return !exists(filepath.Join(dir, "left")) })
	cancel()
	tr.wait()
}

// eventually waits for a condition that has to come.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come about that %s", what)
		}
	}
}
