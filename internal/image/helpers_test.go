package image

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// file is one entry of a tar made in a test.
type file struct {
	tar.Header
	body string
}

func reg(name, body string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}, body}
}

func program(name string) file {
	f := reg(name, "#!/bin/sh\n")
	f.Mode = 0o755
	return f
}

func dir(name string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, ""}
}

func link(name, to string) file {
	return file{tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink, Mode: 0o777}, ""}
}

func hard(name, to string) file {
	return file{tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink, Mode: 0o644}, ""}
}

func (f file) with(change func(*tar.Header)) file {
	change(&f.Header)
	return f
}

func makeTar(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if f.ModTime.IsZero() {
			f.ModTime = time.Unix(1700000000, 0)
		}
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zst(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

func open(t testing.TB, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "images"), Backoff: time.Millisecond, Stall: 5 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func importTar(t testing.TB, s *Store, name string, files ...file) sos.Image {
	t.Helper()
	img, err := s.Import(context.Background(), bytes.NewReader(makeTar(t, files...)), name, nil)
	if err != nil {
		t.Fatalf("import %s: %v", name, err)
	}
	return img
}

// mounted mounts an image as a sandbox has it and gives the path.
func mounted(t *testing.T, s *Store, img sos.Image) string {
	t.Helper()
	dirs, err := s.LayerDirs(img)
	if err != nil {
		t.Fatal(err)
	}
	lower := ""
	for _, d := range dirs {
		lower = d + ":" + lower
	}
	return mountLayers(t, strings.TrimSuffix(lower, ":"))
}

func mountLayers(t *testing.T, lower string) string {
	t.Helper()
	base := t.TempDir()
	for _, d := range []string{"u", "w", "m"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m := filepath.Join(base, "m")
	opts := "lowerdir=" + lower + ",upperdir=" + base + "/u,workdir=" + base + "/w"
	if err := unix.Mount("overlay", m, "overlay", 0, opts); err != nil {
		t.Fatalf("mount %s: %v", opts, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(m, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return m
}

// wantCode checks an error's code, and that its text has what it must say.
func wantCode(t testing.TB, err error, code sos.Code, says ...string) {
	t.Helper()
	if sos.ErrorCode(err) != code {
		t.Fatalf("error %v has code %q, want %q", err, sos.ErrorCode(err), code)
	}
	e, ok := err.(*sos.Error)
	if !ok {
		t.Fatalf("error %v is a %T", err, err)
	}
	for _, s := range says {
		if !strings.Contains(e.Message+"\n"+e.Fix, s) {
			t.Errorf("message %q, fix %q: neither says %q", e.Message, e.Fix, s)
		}
	}
}

// wantEmpty checks that nothing half-made is left. Work that was cancelled may
// take a moment to clean up after itself.
func wantEmpty(t testing.TB, s *Store, dirs ...string) {
	t.Helper()
	for _, d := range dirs {
		var left []string
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			list, err := os.ReadDir(s.path(d))
			if err != nil {
				t.Fatal(err)
			}
			if left = nil; len(list) == 0 {
				break
			}
			for _, e := range list {
				left = append(left, e.Name())
			}
			if time.Now().After(end) {
				t.Errorf("left in %s: %v", d, left)
				break
			}
		}
	}
}

// apply unpacks layers one above the other, without a store, and gives their
// directories, the lowest first.
func apply(t testing.TB, layers ...[]byte) ([]string, error) {
	t.Helper()
	base := t.TempDir()
	var dirs []string
	var lowers []int
	for i, l := range layers {
		d := filepath.Join(base, string(rune('a'+i)))
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		b := &budget{limits: Limits{Bytes: 1 << 30, Entries: 1000}, left: 1 << 30}
		if err := applyLayer(context.Background(), bytes.NewReader(l), fd, lowers, b, true); err != nil {
			return dirs, err
		}
		dirs = append(dirs, d)
		lowers = append([]int{fd}, lowers...)
	}
	return dirs, nil
}
