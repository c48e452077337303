package conformance

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/seaofsimulation/sos/client"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// D33: the image's ENTRYPOINT ran in place of the shell, and an image without
// bash failed at random.
func TestD33Images(t *testing.T) {
	a := server(t)
	c := client.New(client.Config{URL: a.base})
	t.Run("entrypoint", func(t *testing.T) {
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(savedImage(w, testutil.Image(t), "noentry:latest")) }()
		if _, err := c.ImportImage(context.Background(), r, "", nil); err != nil {
			t.Fatal(err)
		}
		a := a.on(t)
		id := a.createFrom("noentry:latest")
		a.start(id, 200, "")
		a.is(a.exec(id, "echo $SET_BY_IMAGE; pwd"), "yes\n/opt", 0, false)
		a.is(a.alone(id, "pwd"), "/opt\n", 0, false)
	})
	t.Run("no bash", func(t *testing.T) {
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(withoutBash(w, testutil.Image(t))) }()
		if _, err := c.ImportImage(context.Background(), r, "nobash:latest", nil); err != nil {
			t.Fatal(err)
		}
		a := a.on(t)
		id := a.createFrom("nobash:latest")
		a.start(id, 200, "")
		a.is(a.alone(id, "echo hi"), "hi\n", 0, false)
		r2 := a.send(id, "echo hi")
		if r2.status != 501 || !strings.Contains(r2.body, "bash") {
			t.Errorf("session: %d %q", r2.status, r2.body)
		}
	})
}

// savedImage writes a docker-save archive of one layer whose ENTRYPOINT ends at
// once.
func savedImage(w io.Writer, layer, name string) error {
	f, err := os.Open(layer)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	conf, err := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/bin/false"}, "Env": []string{"SET_BY_IMAGE=yes"}, "WorkingDir": "/opt"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum.Sum(nil))}}})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, e := range []struct {
		name string
		size int64
		r    io.Reader
	}{{"config.json", int64(len(conf)), bytes.NewReader(conf)}, {"layer.tar", size, f}, {"manifest.json", int64(len(manifest)), bytes.NewReader(manifest)}} {
		if err := tw.WriteHeader(&tar.Header{Name: e.name, Size: e.size, Mode: 0o644}); err != nil {
			return err
		}
		if _, err := io.Copy(tw, e.r); err != nil {
			return err
		}
	}
	return tw.Close()
}

// withoutBash copies a root filesystem without bash.
func withoutBash(w io.Writer, path string) error {
	return testutil.CopyTar(w, path, func(name string) bool { return strings.HasSuffix(name, "/bin/bash") })
}
