package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/seaofsimulation/sos"
)

// Import reads an image and gives it name: the tar of a root filesystem, a docker
// save archive or an OCI archive, plain or packed by gzip or zstd. name may be
// empty where the archive names its image. Of an archive with several images the
// one called name is taken; without a name all are imported and the first is
// returned. progress, which may be nil, is called in the caller's goroutine.
func (s *Store) Import(ctx context.Context, r io.Reader, name string, progress func(sos.Progress)) (sos.Image, error) {
	if progress == nil {
		progress = func(sos.Progress) {}
	}
	if name != "" {
		if _, err := parseTag(name); err != nil {
			return sos.Image{}, err
		}
	}
	in, err := decompress(&watched{ctx: ctx, r: r, report: progress}, s.cfg.Limits)
	if err != nil {
		return sos.Image{}, err
	}
	defer in.Close()
	if _, err := in.Peek(1); errors.Is(err, io.EOF) {
		return sos.Image{}, failed("give a root filesystem, a docker save or an OCI archive", "the archive is empty")
	}
	if rootfsFirst(in) {
		return s.importRootfs(ctx, in, name, progress)
	}
	// It may be an archive of an image, whose parts come in any order: keep it.
	b, done, err := s.spool(ctx, in)
	if err != nil {
		return sos.Image{}, err
	}
	defer done()
	if b.isImage() {
		return s.importBundle(ctx, b, name, progress)
	}
	if _, err := b.file.Seek(0, io.SeekStart); err != nil {
		return sos.Image{}, storeError(err, "reading the archive")
	}
	return s.importRootfs(ctx, b.file, name, progress)
}

// ImportPath is Import of a file, or of a directory with an OCI layout or an
// unpacked docker save archive.
func (s *Store) ImportPath(ctx context.Context, p, name string, progress func(sos.Progress)) (sos.Image, error) {
	f, err := os.Open(p)
	if err != nil {
		e := sos.Errorf(sos.CodeInvalid, "cannot read %s", quote(shorten(p)))
		e.Cause = err
		return sos.Image{}, e
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.IsDir() {
		return s.Import(ctx, f, name, progress)
	}
	root, err := os.OpenRoot(p)
	if err != nil {
		return sos.Image{}, storeError(err, "reading the layout")
	}
	defer root.Close()
	if name != "" {
		if _, err := parseTag(name); err != nil {
			return sos.Image{}, err
		}
	}
	if progress == nil {
		progress = func(sos.Progress) {}
	}
	return s.importBundle(ctx, &dirBundle{root}, name, progress)
}

// parseTag is parseReference for a name to give: a digest cannot be given.
func parseTag(name string) (reference, error) {
	r, err := parseReference(name)
	if err == nil && r.digest != "" {
		e := sos.Errorf(sos.CodeInvalid, "%q holds a digest, which an import cannot promise", shorten(name))
		e.Fix = "give a name with a tag"
		return r, e
	}
	return r, err
}

// rootTops are the names at the top of root filesystems.
var rootTops = []string{"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt",
	"opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var", ".dockerenv"}

// rootfsFirst looks at the first name in the tar: a root filesystem is then
// unpacked as it comes, without a copy.
func rootfsFirst(in *plain) bool {
	head, _ := in.Peek(peekSize)
	tr := tar.NewReader(bytes.NewReader(head))
	for {
		hdr, err := tr.Next()
		if err != nil {
			return false
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+hdr.Name), "/"), "/")
		if top != "" && hdr.Typeflag != tar.TypeXGlobalHeader {
			return slices.Contains(rootTops, top)
		}
	}
}

// importRootfs makes an image of one layer. Its configuration says nothing that
// is not in the tar, so the same tar is the same image, whenever it is imported.
func (s *Store) importRootfs(ctx context.Context, r io.Reader, name string, progress func(sos.Progress)) (sos.Image, error) {
	if name == "" {
		e := sos.Errorf(sos.CodeInvalid, "the archive is a root filesystem and has no name")
		e.Fix = "give one: --name debian:bookworm"
		return sos.Image{}, e
	}
	ref, err := parseTag(name)
	if err != nil {
		return sos.Image{}, err
	}
	progress(sos.Progress{Stage: "unpack"})
	release := func() {}
	defer func() { release() }()
	size := &counter{r: r}
	m, err := s.unpackLayer(ctx, size, nil, "", func(m layerMeta) { release = s.lease([]string{m.ChainID}) })
	if err != nil {
		return sos.Image{}, err
	}
	if m.Entries == 0 {
		return sos.Image{}, failed("give a root filesystem, a docker save or an OCI archive", "the archive is empty")
	}
	var c imageConfig
	c.OS, c.RootFS.Type, c.RootFS.DiffIDs = "linux", "layers", []string{m.DiffID}
	img, err := s.describe(c)
	if err != nil {
		return sos.Image{}, err
	}
	c.Architecture = img.Architecture
	config, err := json.Marshal(c)
	if err != nil {
		return sos.Image{}, err
	}
	man, err := madeManifest(config, []descriptor{{MediaType: ociLayer, Digest: m.DiffID, Size: size.n}})
	if err != nil {
		return sos.Image{}, err
	}
	img, err = s.add(candidate{manifest: man, config: config, names: []string{ref.String()}, image: img})
	if err != nil {
		return sos.Image{}, err
	}
	progress(sos.Progress{Stage: "done", Message: Familiar(ref.String())})
	return img, nil
}

// watched reports how much of an import has been read.
type watched struct {
	ctx    context.Context
	r      io.Reader
	report func(sos.Progress)
	n      int64
	told   int64
}

func (w *watched) Read(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.r.Read(b)
	if w.n += int64(n); w.n-w.told >= 4<<20 {
		w.told = w.n
		w.report(sos.Progress{Stage: "layer", Current: w.n})
	}
	return n, err
}
