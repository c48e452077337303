package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/seaofsimulation/sos"
)

// ociImage is an image of two layers for the given architecture.
func ociImage(t testing.TB, arch string, extra ...file) v1.Image {
	t.Helper()
	img := empty.Image
	for _, files := range [][]file{rootfs(), append([]file{dir("etc"), reg("etc/.wh.os", ""), reg("etc/new", arch)}, extra...)} {
		raw := gz(t, makeTar(t, files...))
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", arch
	cf.Config = v1.Config{Env: []string{"A=b"}, WorkingDir: "/srv", User: "7:8", Entrypoint: []string{"/e"}, Cmd: []string{"c"}, Labels: map[string]string{"k": "v"}}
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	return img
}

func checkOCI(t *testing.T, s *Store, img sos.Image, from v1.Image) {
	t.Helper()
	if from != nil {
		want, err := from.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if img.Digest != want.String() {
			t.Errorf("digest %s, want %s", img.Digest, want)
		}
	}
	if !img.HasBash || !img.HasShell || img.Workdir != "/srv" || img.User != "7:8" || !slices.Equal(img.Env, []string{"A=b"}) ||
		!slices.Equal(img.Entrypoint, []string{"/e"}) || !slices.Equal(img.Cmd, []string{"c"}) || img.Labels["k"] != "v" || img.Architecture != hostArch || img.Size == 0 {
		t.Errorf("facts of the image: %+v", img)
	}
	m := mounted(t, s, img)
	if b, err := os.ReadFile(m + "/etc/new"); string(b) != hostArch {
		t.Errorf("file of the upper layer: %q, %v", b, err)
	}
	if _, err := os.Stat(m + "/etc/os"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that was whited out: %v", err)
	}
	wantEmpty(t, s, "ingest")
}

func TestImportDockerSave(t *testing.T) {
	img := ociImage(t, hostArch)
	var b bytes.Buffer
	tag, err := name.NewTag("example.com/team/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.Write(tag, img, &b); err != nil {
		t.Fatal(err)
	}
	old := dockerSaveOld(t, img)
	for kind, data := range map[string][]byte{"ko": b.Bytes(), "packed": gz(t, b.Bytes()), "old layout": old, "old layout in zstd": zst(t, old)} {
		t.Run(kind, func(t *testing.T) {
			s := open(t)
			got, err := s.Import(context.Background(), bytes.NewReader(data), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Names, []string{"example.com/team/app:v1"}) {
				t.Errorf("names: %v", got.Names)
			}
			checkOCI(t, s, got, nil)
			if got, err = s.Import(context.Background(), bytes.NewReader(data), "mine", nil); err != nil || len(got.Names) != 2 {
				t.Errorf("again by another name: %v, %v", got.Names, err)
			}
		})
	}
}

func TestImportSeveral(t *testing.T) {
	images := map[name.Tag]v1.Image{}
	for _, n := range []string{"one:v1", "two:v2"} {
		tag, err := name.NewTag(n)
		if err != nil {
			t.Fatal(err)
		}
		images[tag] = ociImage(t, hostArch, reg("usr/"+n[:3], "x"))
	}
	var b bytes.Buffer
	if err := tarball.MultiWrite(images, &b); err != nil {
		t.Fatal(err)
	}
	s := open(t)
	_, err := s.Import(context.Background(), bytes.NewReader(b.Bytes()), "three", nil)
	wantCode(t, err, sos.CodeInvalid, "2 images", "one:v1", "two:v2")
	img, err := s.Import(context.Background(), bytes.NewReader(b.Bytes()), "two:v2", nil)
	if err != nil || !slices.Equal(img.Names, []string{"docker.io/library/two:v2"}) {
		t.Errorf("one of them: %v, %v", img.Names, err)
	}
	if _, err := os.Stat(mounted(t, s, img) + "/usr/two"); err != nil {
		t.Error(err)
	}
	if _, err = s.Import(context.Background(), bytes.NewReader(b.Bytes()), "", nil); err != nil {
		t.Error(err)
	}
	if list, err := s.List(context.Background()); err != nil || len(list) != 2 {
		t.Errorf("all of them: %d images, %v", len(list), err)
	}
}

// dockerSaveOld is what docker save wrote before it had OCI layouts: layers as
// plain tars in directories, a symlink for a repeated one, manifest.json last.
func dockerSaveOld(t *testing.T, img v1.Image) []byte {
	t.Helper()
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var files []file
	var names []string
	for i, l := range layers {
		rc, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(rc)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("%064d", i)
		files = append(files, dir(id), reg(id+"/VERSION", "1.0"), reg(id+"/real.tar", string(raw)), link(id+"/layer.tar", "../"+id+"/real.tar"))
		names = append(names, id+"/layer.tar")
	}
	configName := hexOf(digestOf(config)) + ".json"
	man, err := json.Marshal([]dockerManifest{{Config: configName, RepoTags: []string{"example.com/team/app:v1"}, Layers: names}})
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, reg(configName, string(config)), reg("manifest.json", string(man)), reg("repositories", "{}"))
	return makeTar(t, files...)
}

func TestImportOCI(t *testing.T) {
	host, other := ociImage(t, hostArch), ociImage(t, "s390x")
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: host, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: hostArch}}})
	write := func(fill func(layout.Path) error) string {
		t.Helper()
		d := t.TempDir()
		p, err := layout.Write(d, empty.Index)
		if err == nil {
			err = fill(p)
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	named := map[string]string{"org.opencontainers.image.ref.name": "debian:test"}
	single := write(func(p layout.Path) error { return p.AppendImage(host, layout.WithAnnotations(named)) })
	multi := write(func(p layout.Path) error { return p.AppendIndex(index, layout.WithAnnotations(named)) })
	flat := write(func(p layout.Path) error {
		return errors.Join(p.AppendImage(other, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "s390x"})),
			p.AppendImage(host, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: hostArch})))
	})
	twice := write(func(p layout.Path) error {
		return errors.Join(p.AppendImage(host, layout.WithAnnotations(named)),
			p.AppendImage(host, layout.WithAnnotations(map[string]string{"io.containerd.image.name": "docker.io/library/debian:other"})))
	})
	wrong := write(func(p layout.Path) error { return p.AppendImage(other) })
	for kind, d := range map[string]string{"single": single, "multi": multi, "flat": flat} {
		t.Run(kind, func(t *testing.T) {
			s := open(t)
			img, err := s.ImportPath(context.Background(), d, "debian:test", nil)
			if err != nil {
				t.Fatal(err)
			}
			checkOCI(t, s, img, host)
			s = open(t)
			img, err = s.Import(context.Background(), bytes.NewReader(tarDir(t, d)), "debian:test", nil)
			if err != nil {
				t.Fatal(err)
			}
			checkOCI(t, s, img, host)
			if kind == "flat" {
				return
			}
			if img, err = s.Import(context.Background(), bytes.NewReader(tarDir(t, d)), "", nil); err != nil || img.Names[0] != "docker.io/library/debian:test" {
				t.Errorf("without a name: %v, %v", img.Names, err)
			}
		})
	}
	t.Run("two tags", func(t *testing.T) {
		img, err := open(t).ImportPath(context.Background(), twice, "", nil)
		if err != nil || len(img.Names) != 2 {
			t.Errorf("names: %v, %v", img.Names, err)
		}
		if img, err = open(t).ImportPath(context.Background(), twice, "mine", nil); err != nil || len(img.Names) != 1 {
			t.Errorf("by a name of ours: %v, %v", img.Names, err)
		}
	})
	t.Run("wrong machine", func(t *testing.T) {
		_, err := open(t).ImportPath(context.Background(), wrong, "x", nil)
		wantCode(t, err, sos.CodeImageFailed, "s390x", hostArch)
	})
	t.Run("index without ours", func(t *testing.T) {
		s := open(t, func(c *Config) { c.Arch = "riscv64" })
		_, err := s.ImportPath(context.Background(), multi, "x", nil)
		wantCode(t, err, sos.CodeImageFailed, "linux/riscv64", "linux/s390x", "linux/"+hostArch)
	})
	t.Run("damaged layer", func(t *testing.T) {
		s := open(t)
		layers, err := host.Layers()
		if err != nil {
			t.Fatal(err)
		}
		h, err := layers[1].Digest()
		if err != nil {
			t.Fatal(err)
		}
		d := t.TempDir()
		if err := os.CopyFS(d, os.DirFS(single)); err != nil {
			t.Fatal(err)
		}
		evil := gz(t, makeTar(t, reg("evil", "x")))
		p := filepath.Join(d, blobPath(h.String()))
		if err := errors.Join(os.Chmod(p, 0o600), os.WriteFile(p, evil, 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err = s.ImportPath(context.Background(), d, "x", nil)
		wantCode(t, err, sos.CodeImageFailed, "damaged")
		wantEmpty(t, s, "ingest", "images")
	})
	t.Run("missing layer", func(t *testing.T) {
		d := t.TempDir()
		if err := os.CopyFS(d, os.DirFS(single)); err != nil {
			t.Fatal(err)
		}
		m, err := host.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(d, blobPath(m.Layers[0].Digest.String()))); err != nil {
			t.Fatal(err)
		}
		_, err = open(t).ImportPath(context.Background(), d, "x", nil)
		wantCode(t, err, sos.CodeImageFailed, "lacks the layer")
	})
	t.Run("symlink out of the layout", func(t *testing.T) {
		d := t.TempDir()
		if err := os.CopyFS(d, os.DirFS(single)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Remove(d+"/index.json"), os.Symlink("/etc/passwd", d+"/index.json")); err != nil {
			t.Fatal(err)
		}
		_, err := open(t).ImportPath(context.Background(), d, "x", nil)
		wantCode(t, err, sos.CodeImageFailed, "holds no image")
	})
}

func tarDir(t *testing.T, d string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(d)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
