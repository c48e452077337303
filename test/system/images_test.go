package system

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// TestBadImages: what cannot be an image, or not one for this host, is refused
// with the cause, and leaves nothing.
func TestBadImages(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		name string
		test func(*rig)
	}{
		{"references", testReferences}, {"no bash", testNoBash}, {"no shell", testNoShell},
		{"another architecture", testArchitecture}, {"hostile archives", testHostileArchives},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(r.on(t)) })
	}
	r.clean()
}

func testReferences(r *rig) {
	for _, ref := range []string{"", " ", "a b", "UPPER/case", "../up", "http://example.org/x", "x:bad tag", "x@sha256:12", ":", "x:", strings.Repeat("x", 5000), "\x00"} {
		s, err := r.c.CreateSandbox(deadline(r.t), sos.SandboxSpec{Image: ref})
		if err == nil {
			_, err = r.c.StartSandbox(deadline(r.t), s.ID)
			(&box{r, s.ID}).remove()
		}
		if code := sos.ErrorCode(err); code != sos.CodeInvalid && code != sos.CodeImageFailed || len(err.Error()) > 2000 {
			r.t.Errorf("image %.40q: %s %.300v", ref, code, err)
		}
		if _, err := r.c.PullImage(deadline(r.t), ref, nil); sos.ErrorCode(err) != sos.CodeInvalid && sos.ErrorCode(err) != sos.CodeImageFailed {
			r.t.Errorf("pull of %.40q: %s %v", ref, sos.ErrorCode(err), err)
		}
	}
	// Nobody listens there; it can be tried again.
	b := r.created(sos.SandboxSpec{Image: "localhost:1/nothing"})
	for range 2 {
		_, err := r.c.StartSandbox(deadline(r.t), b.id)
		if sos.ErrorCode(err) != sos.CodeImageFailed || !strings.Contains(err.Error(), "localhost:1") {
			r.t.Errorf("start of a missing image: %v", err)
		}
		if s := b.seen(); s.Status != sos.StatusCreated && s.Status != sos.StatusFailed {
			r.t.Errorf("afterwards it is %s", s.Status)
		}
		r.clean()
	}
	b.remove()
}

// without imports the image less what drop names.
func (r *rig) without(name string, drop func(string) bool) {
	r.t.Helper()
	pr, pw := io.Pipe()
	go func() { _ = pw.CloseWithError(testutil.CopyTar(pw, testutil.Image(r.t), drop)) }()
	if _, err := r.c.ImportImage(deadline(r.t), pr, name, nil); err != nil {
		r.t.Fatalf("import %s: %v", name, err)
	}
}

func testNoBash(r *rig) {
	r.without("nobash", func(name string) bool { return path.Base(name) == "bash" })
	b := r.started(sos.SandboxSpec{Image: "nobash", SetupCommands: []string{}})
	r.t.Cleanup(b.remove)
	b.alone("echo standalone", "standalone\n", 0)
	_, err := r.c.Exec(deadline(r.t), b.id, sos.ExecRequest{Command: "echo session"})
	if sos.ErrorCode(err) != sos.CodeUnsupported || !strings.Contains(err.Error(), "bash") {
		r.t.Errorf("a session without bash: %v", err)
	}
	b.alone("echo still here", "still here\n", 0)
}

func testNoShell(r *rig) {
	shells := []string{"bash", "sh", "dash", "rbash"}
	r.without("noshell", func(name string) bool {
		dir := path.Base(path.Dir(name))
		for _, s := range shells {
			if path.Base(name) == s && dir == "bin" {
				return true
			}
		}
		return false
	})
	b := r.created(sos.SandboxSpec{Image: "noshell"})
	r.t.Cleanup(b.remove)
	if _, err := r.c.StartSandbox(deadline(r.t), b.id); err != nil {
		if !strings.Contains(err.Error(), "sh") || sos.ErrorCode(err) == sos.CodeInternal {
			r.t.Errorf("start without a shell: %v", err)
		}
		return
	}
	for _, alone := range []bool{true, false} {
		_, err := r.c.Exec(deadline(r.t), b.id, sos.ExecRequest{Command: "true", Standalone: alone})
		if sos.ErrorCode(err) != sos.CodeUnsupported || !strings.Contains(err.Error(), "has n") {
			r.t.Errorf("alone %v without a shell: %v", alone, err)
		}
	}
}

func testArchitecture(r *rig) {
	other := map[bool]string{true: "arm64", false: "amd64"}[hostIsAMD64()]
	_, err := r.c.ImportImage(deadline(r.t), bytes.NewReader(savedFor(r.t, other)), "", nil)
	if code := sos.ErrorCode(err); code != sos.CodeImageFailed && code != sos.CodeInvalid || !strings.Contains(err.Error(), other) {
		r.t.Errorf("an image for %s: %v", other, err)
	}
	// A root filesystem that does not say what it is for: its programs cannot run.
	elf, err := os.ReadFile("/bin/true")
	if err != nil {
		r.t.Fatal(err)
	}
	elf[18], elf[19] = 0xf7, 0 // EM_BPF: no host runs that
	if _, err := r.c.ImportImage(deadline(r.t), bytes.NewReader(tarOf(r.t, entry{name: "bin/bash", mode: 0o755, body: string(elf)}, entry{name: "bin/sh", mode: 0o755, body: string(elf)})), "foreign", nil); err != nil {
		return // it was seen at once
	}
	b := r.created(sos.SandboxSpec{Image: "foreign"})
	r.t.Cleanup(b.remove)
	if _, err := r.c.StartSandbox(deadline(r.t), b.id); err == nil {
		_, err = r.c.Exec(deadline(r.t), b.id, sos.ExecRequest{Command: "true"})
		if err == nil {
			r.t.Error("a session with a foreign bash works")
		} else if sos.ErrorCode(err) == sos.CodeInternal {
			r.t.Errorf("a session with a foreign bash: %v", err)
		}
		res, err := r.c.Exec(deadline(r.t), b.id, sos.ExecRequest{Command: "true", Standalone: true})
		if err == nil && res.Reason != sos.EndSpawnFailed {
			r.t.Errorf("a foreign shell: %+v", res)
		}
	} else if sos.ErrorCode(err) == sos.CodeInternal {
		r.t.Errorf("start of a foreign image: %v", err)
	}
}

func hostIsAMD64() bool {
	text, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && strings.Contains(string(text), "lm ")
}

// entry of a tar.
type entry struct {
	name, link, body string
	kind             byte
	mode             int64
	dev              int64
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.body)), Devmajor: e.dev, Devminor: e.dev}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// savedFor is a docker-save archive of an image for an architecture.
func savedFor(t testing.TB, arch string) []byte {
	layer := tarOf(t, entry{name: "bin/sh", mode: 0o755, body: "x"})
	sum := sha256.Sum256(layer)
	conf, err := json.Marshal(map[string]any{"architecture": arch, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}}})
	if err != nil {
		t.Fatal(err)
	}
	return tarOf(t, entry{name: "config.json", body: string(conf)}, entry{name: "layer.tar", body: string(layer)},
		entry{name: "manifest.json", body: `[{"Config":"config.json","RepoTags":["foreign:saved"],"Layers":["layer.tar"]}]`})
}

func testHostileArchives(r *rig) {
	outside := filepath.Join(r.t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	whole := tarOf(r.t, entry{name: "etc/x", body: strings.Repeat("x", 100000)})
	up := strings.Repeat("../", 30)
	for name, data := range map[string][]byte{
		"name goes up":          tarOf(r.t, entry{name: up + outside[1:], body: "yours"}),
		"absolute name":         tarOf(r.t, entry{name: outside, body: "yours"}),
		"through a link":        tarOf(r.t, entry{name: "d", kind: tar.TypeSymlink, link: filepath.Dir(outside)}, entry{name: "d/outside", body: "yours"}),
		"through a link upward": tarOf(r.t, entry{name: "d", kind: tar.TypeSymlink, link: up + filepath.Dir(outside)[1:]}, entry{name: "d/outside", body: "yours"}),
		"hard link outside":     tarOf(r.t, entry{name: "h", kind: tar.TypeLink, link: up + outside[1:]}, entry{name: "h", body: "yours"}),
		"absolute hard link":    tarOf(r.t, entry{name: "h", kind: tar.TypeLink, link: outside}),
		"devices":               tarOf(r.t, entry{name: "dev/disk", kind: tar.TypeBlock, dev: 8}, entry{name: "kmem", kind: tar.TypeChar, dev: 1}),
		"empty":                 {},
		"zeros":                 make([]byte, 10240),
		"no archive":            []byte("this is not an archive of anything at all, it is text"),
		"cut":                   whole[:len(whole)/2],
		"broken gzip":           append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3}, bytes.Repeat([]byte{0xaa}, 500)...),
		"broken zstd":           append([]byte{0x28, 0xb5, 0x2f, 0xfd}, bytes.Repeat([]byte{0xaa}, 500)...),
		"manifest of nothing":   tarOf(r.t, entry{name: "manifest.json", body: `[{"Config":"../../etc/passwd","Layers":["../../../etc/shadow"]}]`}),
		"manifest no JSON":      tarOf(r.t, entry{name: "manifest.json", body: `[[[`}),
		"index no JSON":         tarOf(r.t, entry{name: "oci-layout", body: `{"imageLayoutVersion":"1.0.0"}`}, entry{name: "index.json", body: `{"manifests":[{"digest":"sha256:../../x","size":-1}]}`}),
	} {
		img, err := r.c.ImportImage(deadline(r.t), bytes.NewReader(data), "hostile", nil)
		if code := sos.ErrorCode(err); err != nil && (code == sos.CodeInternal || code == sos.CodeUnavailable) {
			r.t.Errorf("%s: %s %v", name, code, err)
		}
		if text, e := os.ReadFile(outside); e != nil || string(text) != "mine" {
			r.t.Fatalf("%s reached a file outside: %q, %v", name, text, e)
		}
		if err == nil {
			if err := r.c.RemoveImage(deadline(r.t), img.Digest); err != nil {
				r.t.Errorf("%s: remove: %v", name, err)
			}
		}
	}
	if list, err := r.c.ListImages(deadline(r.t)); err != nil || strings.Contains(fmt.Sprint(list), "hostile") {
		r.t.Errorf("images afterwards: %+v, %v", list, err)
	}
	r.started(sos.SandboxSpec{}).remove() // the server is well
}
