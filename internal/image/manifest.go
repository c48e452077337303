package image

import (
	"encoding/json"
	"slices"
	"strings"
)

// Media types of manifests that the store reads.
const (
	ociIndex     = "application/vnd.oci.image.index.v1+json"
	ociManifest  = "application/vnd.oci.image.manifest.v1+json"
	ociConfig    = "application/vnd.oci.image.config.v1+json"
	ociLayer     = "application/vnd.oci.image.layer.v1.tar"
	dockerList   = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerSchema = "application/vnd.docker.distribution.manifest.v2+json"
)

// descriptor points at a blob or a manifest.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// manifest is an image manifest, or an index of several.
type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

func (m manifest) isIndex() bool {
	return m.MediaType == ociIndex || m.MediaType == dockerList || m.Config == nil && m.Manifests != nil
}

// parseManifest reads a manifest or an index and checks the digests in it, which
// become file names and request paths.
func parseManifest(b []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return m, failed("", "the image's manifest is not readable: %w", err)
	}
	if m.SchemaVersion == 1 {
		return m, failed("push the image again with a current tool", "the image has a manifest of the old schema 1, which is not read")
	}
	if m.isIndex() {
		return m, checkDigests(m.Manifests)
	}
	if m.Config == nil {
		return m, failed("", "the manifest names no configuration: this is no image")
	}
	for _, l := range m.Layers {
		if strings.Contains(l.MediaType, "foreign") || strings.Contains(l.MediaType, "encrypted") || !strings.Contains(l.MediaType, "tar") {
			return m, failed("", "a layer is of type %s, which is not read", quote(shorten(l.MediaType)))
		}
	}
	return m, checkDigests(append([]descriptor{*m.Config}, m.Layers...))
}

func checkDigests(list []descriptor) error {
	for _, d := range list {
		if !digestRE.MatchString(d.Digest) || d.Size < 0 {
			return failed("", "the manifest has the digest %s, which is none that is read", quote(shorten(d.Digest)))
		}
	}
	return nil
}

// choose picks the image for this host from an index. Entries for other things
// than images (attestations are "unknown/unknown") are passed over. An index with
// one image that states no platform means that one.
func choose(list []descriptor, arch string) (descriptor, error) {
	var have []string
	best, rank := -1, 0
	for i, d := range list {
		if d.MediaType != "" && d.MediaType != ociManifest && d.MediaType != dockerSchema && d.MediaType != ociIndex && d.MediaType != dockerList {
			continue
		}
		if d.Annotations["vnd.docker.reference.type"] != "" {
			continue
		}
		if d.Platform == nil || d.Platform.Architecture == "" {
			if len(list) == 1 {
				return d, nil
			}
			continue
		}
		if d.Platform.OS == "unknown" {
			continue
		}
		have = append(have, shorten(d.Platform.OS+"/"+d.Platform.Architecture+slash(d.Platform.Variant)))
		if d.Platform.OS != "linux" || d.Platform.Architecture != arch {
			continue
		}
		if r := variantRank(arch, d.Platform.Variant); best < 0 || r < rank {
			best, rank = i, r
		}
	}
	if best >= 0 {
		return list[best], nil
	}
	if len(have) == 0 {
		return descriptor{}, failed("", "the index holds no image")
	}
	slices.Sort(have)
	return descriptor{}, failed("choose an image that is published for linux/"+arch,
		"there is no image for linux/%s: it is there for %s", arch, strings.Join(slices.Compact(have), ", "))
}

func slash(s string) string {
	if s == "" {
		return ""
	}
	return "/" + s
}

// variantRank orders the variants of an architecture, the one to take first: what
// every such machine runs on amd64 and arm64, the newest on 32-bit arm.
func variantRank(arch, variant string) int {
	order := []string{"", "v1", "v8", "v8.0"}
	if arch == "arm" {
		order = []string{"v7", "v6", "", "v5"}
	}
	if i := slices.Index(order, variant); i >= 0 {
		return i
	}
	return len(order)
}

// madeManifest is the manifest of an image that came without one. It is a pure
// function of its input, so the same archive is the same image.
func madeManifest(config []byte, layers []descriptor) ([]byte, error) {
	return json.Marshal(manifest{SchemaVersion: 2, MediaType: ociManifest,
		Config: &descriptor{MediaType: ociConfig, Digest: digestOf(config), Size: int64(len(config))}, Layers: layers})
}
