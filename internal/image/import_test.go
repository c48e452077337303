package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// rootfs is a small root filesystem with bash through a merged /usr.
func rootfs() []file {
	return []file{dir("usr"), dir("usr/bin"), link("bin", "usr/bin"), program("usr/bin/bash"), link("usr/bin/sh", "bash"), dir("etc"), reg("etc/os", "test")}
}

func TestImportRootfs(t *testing.T) {
	plain := makeTar(t, rootfs()...)
	dotted := rootfs()
	for i := range dotted {
		dotted[i].Name = "./" + dotted[i].Name
	}
	odd := makeTar(t, append([]file{reg("first-file", "x")}, rootfs()...)...)
	for kind, b := range map[string][]byte{"plain": plain, "gzip": gz(t, plain), "zstd": zst(t, plain),
		"dotted": makeTar(t, append([]file{dir("./")}, dotted...)...), "odd first name": odd, "odd and packed": gz(t, odd)} {
		t.Run(kind, func(t *testing.T) {
			s := open(t)
			var stages []string
			img, err := s.Import(context.Background(), bytes.NewReader(b), "debian:bookworm", func(p sos.Progress) { stages = append(stages, p.Stage) })
			if err != nil {
				t.Fatal(err)
			}
			if !img.HasBash || !img.HasShell || img.Architecture != hostArch || !slices.Equal(img.Names, []string{"docker.io/library/debian:bookworm"}) {
				t.Errorf("image: %+v", img)
			}
			if len(stages) == 0 || stages[len(stages)-1] != "done" {
				t.Errorf("progress: %v", stages)
			}
			for _, ref := range []string{"debian:bookworm", "docker.io/library/debian:bookworm", img.Digest, hexOf(img.Digest)[:6], "debian@" + img.Digest} {
				if got, err := s.Resolve(context.Background(), ref, nil); err != nil || got.Digest != img.Digest {
					t.Errorf("resolve %s: %v", ref, err)
				}
			}
			if b, err := os.ReadFile(mounted(t, s, img) + "/etc/os"); string(b) != "test" {
				t.Errorf("content: %q, %v", b, err)
			}
			wantEmpty(t, s, "ingest")
		})
	}
	t.Run("same tar, same image", func(t *testing.T) {
		s, other := open(t), open(t)
		a := importTar(t, s, "a", rootfs()...)
		b, err := other.Import(context.Background(), bytes.NewReader(gz(t, plain)), "b", nil)
		if err != nil || a.Digest != b.Digest {
			t.Errorf("%s and %s, %v", a.Digest, b.Digest, err)
		}
		again := importTar(t, s, "b:tag", rootfs()...)
		if again.Digest != a.Digest || len(again.Names) != 2 {
			t.Errorf("second name: %+v", again)
		}
	})
	t.Run("without a shell", func(t *testing.T) {
		img := importTar(t, open(t), "static", dir("app"), program("app/main"))
		if img.HasBash || img.HasShell {
			t.Errorf("found a shell: %+v", img)
		}
	})
}

func TestImportBad(t *testing.T) {
	good := makeTar(t, append(rootfs(), reg("usr/big", strings.Repeat("x", 1<<20)))...)
	foreign := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 11) + "\xb7\x00" + strings.Repeat("\x00", 44)
	if hostArch == "arm64" {
		foreign = strings.Replace(foreign, "\xb7", "\x3e", 1)
	}
	arm := program("bin/sh")
	arm.body, arm.Size = foreign, int64(len(foreign))
	for _, tt := range []struct {
		what, name string
		data       []byte
		code       sos.Code
		says       []string
	}{
		{"nothing", "x", nil, sos.CodeImageFailed, []string{"empty"}},
		{"text", "x", []byte(strings.Repeat("this is no archive ", 100)), sos.CodeImageFailed, []string{"damaged"}},
		{"xz", "x", append([]byte("\xfd7zXZ\x00"), make([]byte, 100)...), sos.CodeImageFailed, []string{"xz", "gzip or zstd"}},
		{"cut tar", "x", good[:len(good)/2], sos.CodeImageFailed, []string{"cut short"}},
		{"tar cut between entries", "x", good[:1024], sos.CodeImageFailed, []string{"cut short"}},
		{"cut gzip", "x", gz(t, good)[:500], sos.CodeImageFailed, []string{"cut short"}},
		{"cut zstd", "x", zst(t, good)[:300], sos.CodeImageFailed, []string{"cut short"}},
		{"flipped gzip", "x", flip(gz(t, good)), sos.CodeImageFailed, []string{"damaged"}},
		{"flipped zstd", "x", flip(zst(t, good)), sos.CodeImageFailed, []string{"damaged"}},
		{"no name", "", good, sos.CodeInvalid, []string{"--name"}},
		{"bad name", "Not A Name", good, sos.CodeInvalid, []string{"Not A Name"}},
		{"digest as name", "x@sha256:" + strings.Repeat("a", 64), good, sos.CodeInvalid, []string{"digest"}},
		{"other machine", "x", makeTar(t, dir("bin"), arm), sos.CodeImageFailed, []string{"linux/" + hostArch}},
		{"image archive without image", "x", makeTar(t, reg("manifest.json", "[]")), sos.CodeImageFailed, []string{"holds no image"}},
		{"broken manifest.json", "x", makeTar(t, reg("manifest.json", "{")), sos.CodeImageFailed, []string{"manifest.json"}},
		{"manifest.json leads out", "x", makeTar(t, reg("manifest.json", `[{"Config":"../../etc/passwd","Layers":[]}]`)), sos.CodeImageFailed, []string{"no file"}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := open(t)
			_, err := s.Import(context.Background(), bytes.NewReader(tt.data), tt.name, nil)
			wantCode(t, err, tt.code, tt.says...)
			wantEmpty(t, s, "ingest", "images")
			if list, _ := s.List(context.Background()); len(list) != 0 {
				t.Errorf("a half-made image: %+v", list)
			}
		})
	}
}

func flip(b []byte) []byte {
	b = bytes.Clone(b)
	for i := len(b) / 3; i < len(b)/3+40; i++ {
		b[i] ^= 0x55
	}
	return b
}

func TestImportCanceled(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	data := makeTar(t, append(rootfs(), reg("usr/big", strings.Repeat("x", 1<<20)))...)
	r := io.MultiReader(bytes.NewReader(data[:len(data)/2]), readerFunc(func([]byte) (int, error) { cancel(); return 0, ctx.Err() }))
	_, err := s.Import(ctx, r, "x", nil)
	wantCode(t, err, sos.CodeCanceled)
	wantEmpty(t, s, "ingest", "layers", "images")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestImportDebian imports a real root filesystem and compares a sample with tar.
func TestImportDebian(t *testing.T) {
	s := open(t)
	f, err := os.Open(testutil.Image(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := s.Import(context.Background(), f, "debian:bookworm", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !img.HasBash || !img.HasShell {
		t.Errorf("no shell found: %+v", img)
	}
	root, err := s.LayerDirs(img)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	tr, n := tar.NewReader(f), 0
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		p := filepath.Join(root[0], hdr.Name)
		info, err := os.Lstat(p)
		if hdr.Typeflag == tar.TypeChar && strings.HasPrefix(hdr.Name, "./dev/") {
			if err == nil {
				t.Errorf("%s came through", hdr.Name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		if want := hdr.FileInfo().Mode(); hdr.Typeflag != tar.TypeLink && info.Mode() != want {
			t.Errorf("%s: mode %v, want %v", hdr.Name, info.Mode(), want)
		}
		if hdr.Typeflag == tar.TypeReg && !sameContent(t, p, tr) {
			t.Errorf("%s: content differs", hdr.Name)
		}
	}
	if n < 1000 {
		t.Errorf("only %d entries", n)
	}
}

func sameContent(t *testing.T, p string, r io.Reader) bool {
	t.Helper()
	f, err := os.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, b := sha256.New(), sha256.New()
	if _, err := io.Copy(a, f); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(b, r); err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(a.Sum(nil), b.Sum(nil))
}

func BenchmarkImportDebian(b *testing.B) {
	path := testutil.Image(b)
	for b.Loop() {
		s := open(b)
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(st.Size())
		if _, err := s.Import(context.Background(), f, "debian", nil); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
