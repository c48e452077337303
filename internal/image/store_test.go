package image

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

func TestNames(t *testing.T) {
	hex := strings.Repeat("ab", 32)
	for in, want := range map[string]string{
		"ubuntu":                             "docker.io/library/ubuntu:latest",
		"ubuntu:24.04":                       "docker.io/library/ubuntu:24.04",
		"nodus/agent-tools":                  "docker.io/nodus/agent-tools:latest",
		"docker.io/ubuntu":                   "docker.io/library/ubuntu:latest",
		"index.docker.io/library/ubuntu:a":   "docker.io/library/ubuntu:a",
		"localhost/x":                        "localhost/x:latest",
		"localhost:5000/x":                   "localhost:5000/x:latest",
		"localhost:5000/a/b:c":               "localhost:5000/a/b:c",
		"ghcr.io/Owner/x":                    "",
		"ghcr.io/owner/x__y.z-w:V1":          "ghcr.io/owner/x__y.z-w:V1",
		"[::1]:5000/x":                       "[::1]:5000/x:latest",
		"x@sha256:" + hex:                    "docker.io/library/x@sha256:" + hex,
		"x:tag@sha256:" + hex:                "docker.io/library/x@sha256:" + hex,
		"HOST/x":                             "HOST/x:latest",
		"":                                   "",
		hex:                                  "",
		"sha256:" + hex:                      "", // a digest; found by Get all the same
		"Ubuntu":                             "",
		"ubuntu:":                            "",
		"a//b":                               "",
		"../etc":                             "",
		"a/../b":                             "",
		"a b":                                "",
		"a:b:c":                              "",
		"x@sha256:abc":                       "",
		"x@md5:" + hex:                       "",
		"-x":                                 "",
		"x:" + strings.Repeat("t", 129):      "",
		strings.Repeat("long/", 60) + "name": "",
		"exa mple.com/x":                     "",
		"example.com:99999999/x":             "",
		"x\x00y":                             "",
	} {
		got, err := Normalize(in)
		if want == "" {
			wantCode(t, err, sos.CodeInvalid)
		} else if got != want || err != nil {
			t.Errorf("Normalize(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"docker.io/library/ubuntu:latest":      "ubuntu:latest",
		"docker.io/nodus/agent-tools:latest":   "nodus/agent-tools:latest",
		"ghcr.io/a/b:c":                        "ghcr.io/a/b:c",
		"localhost:5000/library/ubuntu:latest": "localhost:5000/library/ubuntu:latest",
	} {
		if got := Familiar(in); got != want {
			t.Errorf("Familiar(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLookup(t *testing.T) {
	s := open(t)
	a := importTar(t, s, "a:1", reg("usr/a", "a"))
	b := importTar(t, s, "b:1", reg("usr/b", "b"))
	for _, ref := range []string{"a:1", a.Digest, a.Digest[:15], hexOf(a.Digest)[:8], "any/repo@" + a.Digest} {
		if got, err := s.Get(background, ref); err != nil || got.Digest != a.Digest {
			t.Errorf("get %q: %v", ref, err)
		}
	}
	_, err := s.Get(background, "a")
	wantCode(t, err, sos.CodeNotFound, `"a:latest"`, "sos image pull a:latest")
	_, err = s.Get(background, hexOf(a.Digest)[:5])
	wantCode(t, err, sos.CodeNotFound)
	_, err = s.Get(background, "No Name")
	wantCode(t, err, sos.CodeInvalid, "No Name")
	_, err = s.Resolve(background, "sha256:"+strings.Repeat("0", 64), nil)
	wantCode(t, err, sos.CodeNotFound)
	list, err := s.List(background)
	if err != nil || len(list) != 2 || list[0].Digest != b.Digest {
		t.Errorf("list, the newest first: %v, %v", list, err)
	}
	// A name moves to what is imported by it last; the older image stays.
	again := importTar(t, s, "a:1", reg("usr/c", "c"))
	if got, err := s.Get(background, "a:1"); err != nil || got.Digest != again.Digest {
		t.Errorf("moved name: %v", err)
	}
	if got, err := s.Get(background, a.Digest); err != nil || len(got.Names) != 0 {
		t.Errorf("image that lost its name: %v, %v", got.Names, err)
	}
}

func TestAmbiguousPrefix(t *testing.T) {
	s := open(t)
	for _, d := range []string{"sha256:abcdef1" + strings.Repeat("0", 57), "sha256:abcdef2" + strings.Repeat("0", 57)} {
		s.images[d] = record{Image: sos.Image{Digest: d}}
	}
	_, err := s.Get(background, "abcdef")
	wantCode(t, err, sos.CodeInvalid, "2 images", "more digits")
	if got, err := s.Get(background, "abcdef2"); err != nil || !strings.HasPrefix(got.Digest, "sha256:abcdef2") {
		t.Errorf("unique prefix: %v", err)
	}
}

func TestSurvivesReopen(t *testing.T) {
	d := filepath.Join(t.TempDir(), "images")
	in := func(c *Config) { c.Dir = d }
	s := open(t, in)
	img := importTar(t, s, "debian:bookworm", rootfs()...)
	importTar(t, s, "other", rootfs()...)
	s.Close()
	s = open(t, in)
	got, err := s.Get(background, "debian:bookworm")
	if err != nil || got.Digest != img.Digest || len(got.Names) != 2 || !got.HasBash {
		t.Errorf("after reopening: %+v, %v", got, err)
	}
	if st, err := os.Stat(d); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v: set-uid programs are within reach", st.Mode(), err)
	}
}

// TestCrash leaves what a killed process leaves at each point and opens again.
func TestCrash(t *testing.T) {
	d := filepath.Join(t.TempDir(), "images")
	in := func(c *Config) { c.Dir = d }
	s := open(t, in)
	img := importTar(t, s, "kept", rootfs()...)
	gone := importTar(t, s, "gone", reg("usr/gone", "x"))
	s.Close()
	orphan := strings.Repeat("1", 64)
	for _, p := range []string{"ingest/work-1/fs/etc/deep", "ingest/gone-2", "layers/" + orphan + "/fs"} {
		if err := os.MkdirAll(filepath.Join(d, p), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"ingest/file-3", "ingest/work-1/fs/etc/f", "ingest/work-1/blob", "blobs/" + orphan, "layers/" + orphan + "/layer.json"} {
		if err := os.WriteFile(filepath.Join(d, p), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// An image that lost a layer, and a name that lost its image.
	if err := os.RemoveAll(filepath.Join(d, "layers", hexOf(gone.Layers[0]))); err != nil {
		t.Fatal(err)
	}
	s = open(t, in)
	wantEmpty(t, s, "ingest")
	list, err := s.List(background)
	if err != nil || len(list) != 1 || list[0].Digest != img.Digest {
		t.Errorf("images: %v, %v", list, err)
	}
	_, err = s.Get(background, "gone")
	wantCode(t, err, sos.CodeNotFound)
	for dir, want := range map[string]int{"layers": 1, "blobs": 2, "images": 1} {
		if entries, err := os.ReadDir(filepath.Join(d, dir)); err != nil || len(entries) != want {
			t.Errorf("%s: %d entries, want %d (%v)", dir, len(entries), want, err)
		}
	}
	if _, err := s.LayerDirs(img); err != nil {
		t.Error(err)
	}
	_, err = s.LayerDirs(gone)
	wantCode(t, err, sos.CodeImageFailed, "missing", "again")
	importTar(t, s, "gone", reg("usr/gone", "x"))
}

func TestRemove(t *testing.T) {
	users := []string{}
	s := open(t, func(c *Config) { c.Users = func(string) []string { return users } })
	r := newRegistry(t)
	common := []file{reg("usr/same", "x")}
	a, err := s.Pull(background, r.push(t, "a:v1", ociImage(t, hostArch, common...)), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Pull(background, r.push(t, "b:v1", ociImage(t, hostArch, reg("usr/other", "x"))), nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Pull(background, r.push(t, "a:v2", ociImage(t, hostArch, common...)), nil); err != nil || again.Digest != a.Digest {
		t.Fatalf("second name: %v", err)
	}
	layers := func(want int) {
		t.Helper()
		if list, err := os.ReadDir(s.path("layers")); err != nil || len(list) != want {
			t.Errorf("%d layers, want %d (%v)", len(list), want, err)
		}
		wantEmpty(t, s, "ingest")
	}
	layers(3)
	users = []string{"sb-one", "web"}
	if err := s.Remove(background, r.host+"/a:v2"); err != nil {
		t.Errorf("a name of several: %v", err)
	}
	if got, err := s.Get(background, a.Digest); err != nil || !slices.Equal(got.Names, []string{r.host + "/a:v1"}) {
		t.Errorf("after the untagging: %v, %v", got.Names, err)
	}
	err = s.Remove(background, r.host+"/a:v1")
	wantCode(t, err, sos.CodeConflict, "sb-one, web", "remove the sandboxes")
	users = nil
	if err := s.Remove(background, r.host+"/a:v1"); err != nil {
		t.Fatal(err)
	}
	layers(2) // the lower one is b's too
	_, err = s.Get(background, a.Digest)
	wantCode(t, err, sos.CodeNotFound)
	wantCode(t, s.Remove(background, r.host+"/a:v1"), sos.CodeNotFound)
	if err := s.Remove(background, hexOf(b.Digest)[:12]); err != nil {
		t.Fatal(err)
	}
	layers(0)
	wantEmpty(t, s, "blobs", "images")
	plain := open(t, func(c *Config) { c.InUse = func(string) bool { return true } })
	importTar(t, plain, "x", rootfs()...)
	wantCode(t, plain.Remove(background, "x"), sos.CodeConflict, "used by a sandbox")
}

// TestRemoveDuringPull removes everything while a pull counts on a shared layer.
func TestRemoveDuringPull(t *testing.T) {
	r := newRegistry(t)
	s := open(t)
	a := r.push(t, "a:v1", ociImage(t, hostArch, reg("usr/a", "x")))
	b := r.push(t, "b:v1", ociImage(t, hostArch, big()))
	if _, err := s.Pull(background, a, nil); err != nil {
		t.Fatal(err)
	}
	hold, held := make(chan struct{}), make(chan struct{}, 100)
	r.hurtBlobs(1, func(w http.ResponseWriter, req *http.Request) {
		held <- struct{}{}
		<-hold
		w.Write(r.blobBody(w, req, true))
	})
	done := make(chan error, 1)
	go func() { _, err := s.Pull(background, b, nil); done <- err }()
	select {
	case <-held:
	case <-time.After(20 * time.Second):
		t.Fatal("the large layer was not asked for")
	}
	err := s.Remove(background, a)
	close(hold)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	img, err := s.Get(background, b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.LayerDirs(img); err != nil {
		t.Error(err)
	}
}

// small gives a mounted filesystem of a few megabytes.
func small(t *testing.T, kind, size string) string {
	t.Helper()
	d := t.TempDir()
	if kind == "tmpfs" {
		if err := unix.Mount("tmpfs", d, "tmpfs", 0, "size="+size); err != nil {
			t.Fatal(err)
		}
	} else {
		disk := filepath.Join(t.TempDir(), "disk")
		script := "truncate -s " + size + " " + disk + " && mkfs.ext4 -q " + disk + " && mount -o loop " + disk + " " + d
		if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("ext4 on a loop device: %v\n%s", err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return d
}

// fill writes until nothing more fits, also no empty file.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	for i := range 10000 { // more than such an ext4 has inodes
		if err := os.Mkdir(fmt.Sprintf("%s.%d", path, i), 0o700); err != nil {
			break
		}
	}
}

func TestDiskFull(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			s := open(t, func(c *Config) { c.Dir = small(t, kind, "16M") })
			kept := importTar(t, s, "kept", reg("usr/f", "x"))
			noise := big()
			var files []file
			for _, n := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
				f := noise
				f.Name = "usr/" + n
				files = append(files, f)
			}
			data := makeTar(t, files...)
			for _, in := range [][]byte{data, gz(t, data), makeTar(t, append([]file{reg("oci-layout", "{}")}, files...)...)} {
				_, err := s.Import(background, bytes.NewReader(in), "large", nil)
				wantCode(t, err, sos.CodeImageFailed, "no space left", "sos image rm")
				wantEmpty(t, s, "ingest")
			}
			r := newRegistry(t)
			_, err := s.Pull(background, r.push(t, "large:v1", ociImage(t, hostArch, files...)), nil)
			wantCode(t, err, sos.CodeImageFailed, "no space left", "sos image rm")
			wantEmpty(t, s, "ingest")
			if list, err := s.List(background); err != nil || len(list) != 1 || list[0].Digest != kept.Digest {
				t.Errorf("images afterwards: %v, %v", list, err)
			}
			importTar(t, s, "fits", reg("usr/g", "x")) // there is room again
			// Images can be removed when not a byte is left, also by a new server.
			fill(t, filepath.Join(filepath.Dir(s.path("ingest")), "filler"))
			s.Close()
			if s, err = Open(Config{Dir: s.cfg.Dir}); err != nil {
				t.Fatalf("open on a full disk: %v", err)
			}
			defer s.Close()
			for _, ref := range []string{"kept", "fits"} {
				if err := s.Remove(background, ref); err != nil {
					t.Errorf("remove on a full disk: %v", err)
				}
			}
			wantEmpty(t, s, "layers", "images", "blobs", "ingest")
		})
	}
}

func TestOpenOnWrongFilesystem(t *testing.T) {
	d := t.TempDir()
	if err := unix.Mount("proc", d, "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(d, 0)
	if _, err := Open(Config{Dir: filepath.Join(d, "images")}); err == nil {
		t.Error("opened on procfs")
	}
}

func TestRemoveTreeStaysOnItsMount(t *testing.T) {
	s := open(t)
	victim := t.TempDir()
	if err := os.WriteFile(victim+"/f", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	inside := s.path("ingest", "work-x", "m")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(victim, inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	err := s.remove(s.path("ingest", "work-x"))
	if uerr := unix.Unmount(inside, 0); uerr != nil {
		t.Fatal(uerr)
	}
	if err == nil {
		t.Error("a tree with a mount in it was removed")
	}
	if _, err := os.Stat(victim + "/f"); err != nil {
		t.Errorf("the removal went through a mount: %v", err)
	}
}
