package native

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// goodHost is a host on which everything works.
func goodHost(t *testing.T) host {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/self/uid_map":                      "         0          0 4294967295\n",
		"proc/sys/user/max_user_namespaces":      "15000\n",
		"proc/sys/fs/inotify/max_user_instances": "8192\n",
		"proc/1/environ":                         "HOME=/\x00",
	} {
		put(t, root, name, text)
	}
	fine := func() error { return nil }
	fineDir := func(string) error { return nil }
	return host{
		root: root, release: "6.1.0-18-amd64", dataDir: t.TempDir(),
		userns: fine, overlay: fineDir, idmap: fineDir, seccomp: fine,
		capEff: func() (uint64, error) { return 1<<41 - 1, nil },
	}
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestChecksNameCauseAndFix(t *testing.T) {
	is := func(err error) func() error { return func() error { return err } }
	isDir := func(err error) func(string) error { return func(string) error { return err } }
	for _, c := range []struct {
		name    string
		change  func(h *host)
		check   string // that fails; "" for none
		says    string // part of its message
		fixSays string
	}{
		{"a good host", func(h *host) {}, "", "", ""},
		{"not root", func(h *host) { h.euid = 1000 }, "root", "user 1000", "sudo"},
		{"root of a namespace", func(h *host) { put(t, h.root, "proc/self/uid_map", "0 1000 1\n") }, "root", "only root of a user namespace", "rootless"},
		{"container without rights", func(h *host) {
			h.capEff = func() (uint64, error) { return 0xa80425fb, nil }
			put(t, h.root, ".dockerenv", "")
		}, "root", "inside a container", "--privileged"},
		{"old kernel", func(h *host) { h.release = "5.15.0-91-generic" }, "linux", "5.15.0-91-generic is too old", "newer"},
		{"first kernel", func(h *host) { h.release = "5.19.0" }, "", "", ""},
		{"strange kernel", func(h *host) { h.release = "next" }, "", "", ""},
		{"userns off", func(h *host) { put(t, h.root, "proc/sys/user/max_user_namespaces", "0\n") }, "user namespaces", "max_user_namespaces is 0", "sysctl -w"},
		{"userns used up", func(h *host) { h.userns = is(unix.ENOSPC) }, "user namespaces", "limit", "raise"},
		{"userns not built", func(h *host) { h.userns = is(unix.EINVAL) }, "user namespaces", "kernel has no", "CONFIG_USER_NS"},
		{"userns forbidden", func(h *host) {
			h.userns = is(unix.EPERM)
			put(t, h.root, "proc/1/environ", "A=b\x00container=podman\x00")
		}, "user namespaces", "inside a container", "--privileged"},
		{"no seccomp", func(h *host) { h.seccomp = is(unix.EINVAL) }, "seccomp", "not available", "CONFIG_SECCOMP_FILTER"},
		{"no overlay", func(h *host) { h.overlay = isDir(errors.New("invalid argument")) }, "overlay", "invalid argument", "--data-dir"},
		{"no idmap", func(h *host) { h.idmap = isDir(errors.New("invalid argument")) }, "idmapped mounts", "cannot hold images", "--data-dir"},
		{"few watches", func(h *host) { put(t, h.root, "proc/sys/fs/inotify/max_user_instances", "128\n") }, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := goodHost(t)
			c.change(&h)
			var r report
			h.check(&r)
			var bad []sos.Check
			for _, k := range r.checks {
				if !k.OK {
					bad = append(bad, k)
				}
			}
			if c.check == "" {
				if len(bad) > 0 {
					t.Fatalf("a check fails: %+v", bad[0])
				}
				return
			}
			if len(bad) != 1 || bad[0].Name != c.check {
				t.Fatalf("failed checks %+v; want only %q", bad, c.check)
			}
			if !strings.Contains(bad[0].Message, c.says) || !strings.Contains(bad[0].Fix, c.fixSays) {
				t.Errorf("it says %q, fix %q; want %q and %q in them", bad[0].Message, bad[0].Fix, c.says, c.fixSays)
			}
			err := failed(r.checks)
			if sos.ErrorCode(err) != sos.CodeUnavailable || sos.ErrorMessage(err) != bad[0].Message {
				t.Errorf("a start says %v", err)
			}
		})
	}
}

func TestFewWatchesAreAdvice(t *testing.T) {
	h := goodHost(t)
	put(t, h.root, "proc/sys/fs/inotify/max_user_instances", "128\n")
	var r report
	h.check(&r)
	for _, c := range r.checks {
		if c.Name == "inotify" && c.OK && strings.Contains(c.Fix, "sysctl") {
			return
		}
	}
	t.Errorf("no advice in %+v", r.checks)
}

// The probes are real: on a filesystem that cannot hold an overlay's upper
// directory they fail, with a word of what it is.
func TestProbesFindBadFilesystems(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"l", "u", "w", "m"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mnt := filepath.Join(dir, "m")
	opts := "lowerdir=" + dir + "/l,upperdir=" + dir + "/u,workdir=" + dir + "/w"
	if err := unix.Mount("overlay", mnt, "overlay", 0, opts); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(mnt, unix.MNT_DETACH)
	if err := probeOverlay(mnt); err == nil {
		t.Error("an overlay on an overlay passes")
	}
	if n := filesystemName(mnt); n != "overlay" {
		t.Errorf("the filesystem's name is %q", n)
	}
	if err := probeOverlay("/proc"); err == nil {
		t.Error("a directory that cannot be written passes")
	}
	if l, _ := filepath.Glob(filepath.Join(mnt, "probe-*")); len(l) > 0 {
		t.Errorf("the probe left %v", l)
	}
}
