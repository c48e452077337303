package image

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzApply unpacks arbitrary tars above a layer that is full of traps and looks
// whether anything outside has changed.
func FuzzApply(f *testing.F) {
	traps := []file{link("abs", "/"), link("up", "../../../.."), link("canary", "../../canary"), link("loop", "loop"), dir("d"), reg("d/f", "x"), link("d/out", "../../canary/secret")}
	f.Add(makeTar(f, traps...))
	f.Add(makeTar(f, rootfs()...))
	f.Add(makeTar(f, reg("canary/secret", "x"), reg("up/canary/secret", "x"), reg("abs/tmp/x", "x")))
	f.Add(makeTar(f, hard("h", "canary/secret"), reg("h", "y"), hard("d/g", "d/f"), reg("d/g", "z")))
	f.Add(makeTar(f, reg(".wh.d", ""), reg("d/x", ""), reg("d/.wh..wh..opq", ""), reg(".wh..wh..opq", "")))
	f.Add(makeTar(f, reg("d", "file"), dir("d"), reg("d/y", ""), dir("canary"), reg("canary/secret", "x")))
	f.Add(sparseHeader(1 << 12))
	base := f.TempDir()
	lower := filepath.Join(base, "x", "lower")
	mustDir(f, lower)
	mustDir(f, filepath.Join(base, "canary"))
	secret := filepath.Join(base, "canary", "secret")
	if err := os.WriteFile(secret, []byte("untouched"), 0o600); err != nil {
		f.Fatal(err)
	}
	low := mustOpen(f, lower)
	defer unix.Close(low)
	b := &budget{limits: Limits{Bytes: 1 << 20, Entries: 100}, left: 1 << 20}
	if err := applyLayer(context.Background(), bytes.NewReader(makeTar(f, traps...)), low, nil, b, true); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root := filepath.Join(base, "x", "root")
		mustDir(t, root)
		fd := mustOpen(t, root)
		b := &budget{limits: Limits{Bytes: 1 << 20, Entries: 200}, left: 1 << 20}
		_ = applyLayer(context.Background(), bytes.NewReader(data), fd, []int{low}, b, false)
		unix.Close(fd)
		parent := mustOpen(t, filepath.Join(base, "x"))
		err := removeTree(parent, "root")
		unix.Close(parent)
		if err != nil {
			t.Fatalf("what was unpacked cannot be removed: %v", err)
		}
		if got, err := os.ReadFile(secret); err != nil || string(got) != "untouched" {
			t.Fatalf("canary: %q, %v", got, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(secret, &st); err != nil || st.Mode&0o7777 != 0o600 || st.Uid != 0 || st.Nlink != 1 {
			t.Fatalf("canary: mode %o owner %d links %d, %v", st.Mode, st.Uid, st.Nlink, err)
		}
		for dir, want := range map[string]int{base: 2, filepath.Join(base, "canary"): 1, filepath.Join(base, "x"): 1} {
			if list, err := os.ReadDir(dir); err != nil || len(list) != want {
				t.Fatalf("%s has %d entries, want %d (%v)", dir, len(list), want, err)
			}
		}
	})
}

// FuzzReference checks that whatever is taken as a name is stable and harmless.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"ubuntu", "a/b:c", "localhost:5000/x@sha256:00", "../x", "[::1]:5000/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		n, err := Normalize(in)
		if err != nil {
			return
		}
		if again, err := Normalize(n); err != nil || again != n {
			t.Errorf("Normalize(%q) = %q, then %q, %v", in, n, again, err)
		}
		if back, err := Normalize(Familiar(n)); err != nil || back != n {
			t.Errorf("Familiar(%q) = %q, which is %q, %v", n, Familiar(n), back, err)
		}
		for _, part := range []string{"..", "//", "\x00", " "} {
			if bytes.Contains([]byte(n), []byte(part)) {
				t.Errorf("Normalize(%q) = %q holds %q", in, n, part)
			}
		}
	})
}

func mustDir(t testing.TB, p string) {
	t.Helper()
	if err := os.MkdirAll(p, 0o755); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, p string) int {
	t.Helper()
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}
