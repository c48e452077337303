package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Image gives the path of a tar of a small Debian root filesystem with bash,
// coreutils, procps and perl. It is built once with mmdebstrap and kept in
// $SOS_TEST_CACHE (default /var/cache/sos-test).
func Image(t testing.TB) string {
	t.Helper()
	path, err := image()
	if err != nil {
		t.Fatalf("test image: %v", err)
	}
	return path
}

func image() (string, error) {
	dir := os.Getenv("SOS_TEST_CACHE")
	if dir == "" {
		dir = "/var/cache/sos-test"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	// Test binaries of several packages run at once: one builds, the others wait.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "debian-bookworm-1.tar")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	tmp := path + ".part"
	cmd := exec.Command("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar",
		"--include=procps", "bookworm", tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mmdebstrap: %w\n%s", err, out)
	}
	return path, os.Rename(tmp, path)
}
