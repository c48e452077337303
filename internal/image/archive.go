package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/seaofsimulation/sos"
)

// packedImage is one image of an archive.
type packedImage struct {
	manifest []byte // nil: the archive has none, one is made
	config   []byte
	layers   []string // file names, lowest first
	digests  []string // of those files; "" unknown
	index    string
	names    []string // normalised
}

// dockerManifest is an entry of manifest.json.
type dockerManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// importBundle imports what an image archive holds.
func (s *Store) importBundle(ctx context.Context, b bundle, name string, progress func(sos.Progress)) (sos.Image, error) {
	progress(sos.Progress{Stage: "resolve"})
	images, err := s.readBundle(b)
	if err != nil {
		return sos.Image{}, err
	}
	if images, err = pick(images, name); err != nil {
		return sos.Image{}, err
	}
	var first sos.Image
	for i, p := range images {
		img, err := s.importPacked(ctx, b, p, progress)
		if err != nil {
			return sos.Image{}, err
		}
		if i == 0 {
			first = img
		}
	}
	progress(sos.Progress{Stage: "done"})
	return first, nil
}

// readBundle lists the images. A modern docker save archive is an OCI layout too;
// its manifests are then the ones that the registry has, and manifest.json has
// the names.
func (s *Store) readBundle(b bundle) ([]packedImage, error) {
	var docker []dockerManifest
	raw, err := readPart(b, "manifest.json", maxManifest)
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &docker); err != nil {
			return nil, failed("", "the archive's manifest.json is not readable: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	if has(b, "index.json") && has(b, "oci-layout") {
		images, err := s.readLayout(b, docker)
		if err == nil || len(docker) == 0 {
			return images, err
		}
		if sos.ErrorCode(err) == sos.CodeImageFailed && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	if len(docker) == 0 {
		return nil, failed("give a root filesystem, a docker save or an OCI archive", "the archive holds no image")
	}
	var images []packedImage
	for _, d := range docker {
		p := packedImage{layers: d.Layers, digests: make([]string, len(d.Layers)), names: normalNames(d.RepoTags)}
		if p.config, err = readPart(b, d.Config, maxConfig); err != nil {
			return nil, err
		}
		images = append(images, p)
	}
	return images, nil
}

// readLayout lists the images of an OCI layout: those that index.json names, each
// for this host's platform.
func (s *Store) readLayout(b bundle, docker []dockerManifest) ([]packedImage, error) {
	raw, err := readPart(b, "index.json", maxManifest)
	if err != nil {
		return nil, err
	}
	index, err := parseManifest(raw)
	if err != nil {
		return nil, err
	}
	tops := index.Manifests
	if len(tops) > 1 && !named(tops) { // one image for several platforms
		d, err := choose(tops, s.cfg.Arch)
		if err != nil {
			return nil, err
		}
		tops = []descriptor{d}
	}
	var images []packedImage
	for _, top := range tops {
		if top.Annotations["vnd.docker.reference.type"] != "" {
			continue
		}
		p, err := s.readManifest(b, top)
		if err != nil {
			return nil, err
		}
		p.names = layoutNames(top)
		for _, d := range docker {
			if strings.HasSuffix(strings.TrimSuffix(d.Config, ".json"), hexOf(digestOf(p.config))) {
				p.names = append(p.names, normalNames(d.RepoTags)...)
			}
		}
		// An image with two tags is there twice.
		if i := slices.IndexFunc(images, func(q packedImage) bool { return bytes.Equal(p.manifest, q.manifest) }); i >= 0 {
			images[i].names = append(images[i].names, p.names...)
			continue
		}
		images = append(images, p)
	}
	for i := range images {
		slices.Sort(images[i].names)
		images[i].names = slices.Compact(images[i].names)
	}
	if len(images) == 0 {
		return nil, failed("", "the archive holds no image")
	}
	return images, nil
}

func named(list []descriptor) bool {
	return slices.ContainsFunc(list, func(d descriptor) bool { return len(layoutNames(d)) > 0 })
}

// layoutNames are the names that tools leave in index.json. A bare tag is no name.
func layoutNames(d descriptor) []string {
	var list []string
	for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		if n := d.Annotations[key]; strings.ContainsAny(n, ":/") {
			list = append(list, n)
		}
	}
	return normalNames(list)
}

func normalNames(list []string) []string {
	var out []string
	for _, n := range list {
		if r, err := parseTag(n); err == nil {
			out = append(out, r.String())
		}
	}
	return out
}

// readManifest follows a descriptor, through an index if need be, to an image.
func (s *Store) readManifest(b bundle, d descriptor) (packedImage, error) {
	var p packedImage
	for range 3 {
		raw, err := readBlob(b, d, maxManifest)
		if err != nil {
			return p, err
		}
		m, err := parseManifest(raw)
		if err != nil {
			return p, err
		}
		if !m.isIndex() {
			p.manifest = raw
			for _, l := range m.Layers {
				p.layers, p.digests = append(p.layers, blobPath(l.Digest)), append(p.digests, l.Digest)
			}
			p.config, err = readBlob(b, *m.Config, maxConfig)
			return p, err
		}
		if p.index == "" {
			p.index = d.Digest
		}
		if d, err = choose(m.Manifests, s.cfg.Arch); err != nil {
			return p, err
		}
	}
	return p, failed("", "the archive's indexes are nested too deeply")
}

// pick chooses the images that a call means.
func pick(images []packedImage, name string) ([]packedImage, error) {
	if name == "" {
		for _, p := range images {
			if len(p.names) == 0 {
				e := sos.Errorf(sos.CodeInvalid, "the archive does not name its image")
				e.Fix = "give a name: --name debian:bookworm"
				return nil, e
			}
		}
		return images, nil
	}
	r, err := parseTag(name)
	if err != nil {
		return nil, err
	}
	if len(images) == 1 {
		images[0].names = []string{r.String()}
		return images, nil
	}
	var have []string
	for _, p := range images {
		if slices.Contains(p.names, r.String()) {
			p.names = []string{r.String()}
			return []packedImage{p}, nil
		}
		for _, n := range p.names {
			have = append(have, Familiar(n))
		}
	}
	e := sos.Errorf(sos.CodeInvalid, "the archive holds %d images and none is called %q: %s", len(images), shorten(name), strings.Join(have[:min(len(have), 20)], ", "))
	e.Fix = "name one of them, or none to import all"
	return nil, e
}

// importPacked unpacks the layers of one image and records it.
func (s *Store) importPacked(ctx context.Context, b bundle, p packedImage, progress func(sos.Progress)) (sos.Image, error) {
	c, err := s.parseConfig(p.config)
	if err != nil {
		return sos.Image{}, err
	}
	diffs := c.RootFS.DiffIDs
	if len(p.layers) != len(diffs) {
		return sos.Image{}, failed("", "the image's configuration has %d layers, its manifest %d", len(diffs), len(p.layers))
	}
	chains := chainIDs(diffs)
	defer s.lease(chains)()
	made := make([]descriptor, len(diffs))
	for i := range diffs {
		progress(sos.Progress{Stage: "unpack", Layer: diffs[i]})
		size, err := s.importLayer(ctx, b, p, diffs[i], chains[:i+1], i)
		if err != nil {
			return sos.Image{}, err
		}
		made[i] = descriptor{MediaType: ociLayer, Digest: diffs[i], Size: size}
	}
	if p.manifest == nil {
		if p.manifest, err = madeManifest(p.config, made); err != nil {
			return sos.Image{}, err
		}
	}
	img, err := s.describe(c)
	if err != nil {
		return sos.Image{}, err
	}
	return s.add(candidate{manifest: p.manifest, config: p.config, index: p.index, names: p.names, image: img})
}

// importLayer unpacks one layer unless it is there. It shares no work with others,
// because the archive goes away with its caller; who comes second puts nothing in
// place.
func (s *Store) importLayer(ctx context.Context, b bundle, p packedImage, diff string, chains []string, i int) (size int64, err error) {
	blob, size, err := openVerified(b, p.layers[i], p.digests[i])
	if err != nil {
		return 0, err
	}
	defer blob.Close()
	if _, ok := s.readLayer(chains[i]); ok {
		return size, nil
	}
	_, err = s.unpackLayer(ctx, blob, chains[:i], diff, nil)
	return size, err
}

func blobPath(digest string) string { return "blobs/sha256/" + hexOf(digest) }

func readPart(b bundle, name string, most int64) ([]byte, error) {
	f, _, err := b.open(name)
	if err != nil {
		return nil, &sos.Error{Code: sos.CodeImageFailed, Message: "the archive has no file " + quote(shorten(name)), Cause: fmt.Errorf("open: %w", err)}
	}
	defer f.Close()
	raw, err := readLimited(f, most, quote(shorten(name)))
	if err != nil {
		return nil, corrupt(err)
	}
	return raw, nil
}

func readBlob(b bundle, d descriptor, most int64) ([]byte, error) {
	raw, err := readPart(b, blobPath(d.Digest), most)
	if err != nil {
		return nil, err
	}
	if digestOf(raw) != d.Digest {
		return nil, failed("get the archive again", "a part of the archive is damaged: its digest is not %s", d.Digest)
	}
	return raw, nil
}

// openVerified opens a layer file. One with a known digest is checked as it is
// read; the diff id is checked in any case before the layer is put in place.
func openVerified(b bundle, name, digest string) (io.ReadCloser, int64, error) {
	f, size, err := b.open(name)
	if err != nil {
		return nil, 0, &sos.Error{Code: sos.CodeImageFailed, Message: "the archive lacks the layer " + quote(shorten(name)),
			Fix: "save the image for this platform again", Cause: err}
	}
	if digest == "" {
		return f, size, nil
	}
	return &verifying{ReadCloser: f, hash: sha256.New(), want: digest}, size, nil
}

// verifying fails at the end of its source when the digest is not the wanted one.
type verifying struct {
	io.ReadCloser
	hash hash.Hash
	want string
}

func (v *verifying) Read(b []byte) (int, error) {
	n, err := v.ReadCloser.Read(b)
	v.hash.Write(b[:n])
	if errors.Is(err, io.EOF) && "sha256:"+hex.EncodeToString(v.hash.Sum(nil)) != v.want {
		return n, failed("get the archive again", "a layer of the archive is damaged: its digest is not %s", v.want)
	}
	return n, err
}
