package image

import (
	"archive/tar"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

func viewOf(t *testing.T, layers ...[]file) *view {
	t.Helper()
	var tars [][]byte
	for _, l := range layers {
		tars = append(tars, makeTar(t, l...))
	}
	dirs, err := apply(t, tars...)
	if err != nil {
		t.Fatal(err)
	}
	v := &view{}
	for _, d := range slices.Backward(dirs) {
		fd := mustOpen(t, d)
		t.Cleanup(func() { unix.Close(fd) })
		v.layers = append(v.layers, fd)
	}
	return v
}

func TestFindBash(t *testing.T) {
	plain := program("usr/bin/bash")
	for name, tt := range map[string]struct {
		layers [][]file
		want   bool
	}{
		"plain":                      {[][]file{{program("bin/bash")}}, true},
		"merged usr":                 {[][]file{{plain, link("bin", "usr/bin")}}, true},
		"absolute symlink":           {[][]file{{plain, link("bin", "/usr/bin")}}, true},
		"symlink in a layer above":   {[][]file{{plain}, {link("bin", "usr/bin")}}, true},
		"symlink in a layer below":   {[][]file{{link("bin", "usr/bin")}, {plain}}, true},
		"symlinks over three layers": {[][]file{{plain}, {link("a", "../../usr"), link("b", "/a/bin")}, {link("bin", "b")}}, true},
		"whited out":                 {[][]file{{program("bin/bash")}, {reg("bin/.wh.bash", "")}}, false},
		"directory whited out":       {[][]file{{program("bin/bash")}, {reg(".wh.bin", "")}}, false},
		"hidden by an opaque one":    {[][]file{{program("bin/bash")}, {dir("bin"), reg("bin/.wh..wh..opq", "")}}, false},
		"back again":                 {[][]file{{program("bin/bash")}, {reg(".wh.bin", "")}, {program("bin/bash")}}, true},
		"not executable":             {[][]file{{reg("bin/bash", "x")}}, false},
		"a directory":                {[][]file{{dir("bin/bash")}}, false},
		"dangling":                   {[][]file{{link("bin/bash", "/nowhere")}}, false},
		"loop":                       {[][]file{{link("bin", "bin")}}, false},
		"to the host's":              {[][]file{{dir("bin"), link("bin/bash", strings.Repeat("../", 30)+"bin/bash")}}, false},
		"replaced by a file":         {[][]file{{program("bin/bash")}, {reg("bin", "x")}}, false},
		"pipe":                       {[][]file{{reg("bin/bash", "x").with(func(h *tar.Header) { h.Typeflag, h.Size, h.Mode = '6', 0, 0o755 })}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, l := range tt.layers {
				for i := range l {
					if l[i].Typeflag != '0' {
						l[i].body = ""
					}
				}
			}
			if got := viewOf(t, tt.layers...).program(bashPaths); got != tt.want {
				t.Errorf("found bash: %v, want %v", got, tt.want)
			}
		})
	}
}

// TestDeepLinks bounds the work that a name can make.
func TestDeepLinks(t *testing.T) {
	files := []file{program("l0")}
	for i := 1; i <= 60; i++ {
		files = append(files, link(fmt.Sprintf("l%d", i), fmt.Sprintf("l%d", i-1)))
	}
	// Each part of a doubles the next: 2^30 parts when all are followed.
	files = append(files, dir("d0"))
	for i := 1; i <= 30; i++ {
		files = append(files, link(fmt.Sprintf("d%d", i), fmt.Sprintf("d%d/../d%d", i-1, i-1)))
	}
	v := viewOf(t, files)
	if !v.program([]string{"l40"}) || v.program([]string{"l41"}) {
		t.Error("the limit on symlinks is not 40")
	}
	if _, _, err := v.resolve("d30", true, nil); err == nil {
		t.Error("a doubling chain of symlinks was followed to its end")
	}
}

func TestChoose(t *testing.T) {
	d := func(os, arch, variant string) descriptor {
		return descriptor{MediaType: ociManifest, Digest: os + arch + variant, Platform: &platform{arch, os, variant}}
	}
	for _, tt := range []struct {
		arch string
		list []descriptor
		want string // digest, or part of the error
	}{
		{"amd64", []descriptor{d("linux", "arm64", "v8"), d("linux", "amd64", "v3"), d("linux", "amd64", "")}, "linuxamd64"},
		{"amd64", []descriptor{d("windows", "amd64", ""), d("linux", "amd64", "")}, "linuxamd64"},
		{"arm64", []descriptor{d("linux", "arm64", "v9"), d("linux", "arm64", "v8")}, "linuxarm64v8"},
		{"arm", []descriptor{d("linux", "arm", "v5"), d("linux", "arm", "v7"), d("linux", "arm", "v6")}, "linuxarmv7"},
		{"amd64", []descriptor{{MediaType: ociManifest, Digest: "only"}}, "only"},
		{"amd64", []descriptor{d("linux", "arm64", "v8"), d("unknown", "unknown", ""), d("windows", "amd64", "")}, "it is there for linux/arm64/v8, windows/amd64"},
		{"amd64", nil, "holds no image"},
	} {
		got, err := choose(tt.list, tt.arch)
		if err != nil {
			wantCode(t, err, sos.CodeImageFailed, tt.want)
		} else if got.Digest != tt.want {
			t.Errorf("%s: chose %q, want %q", tt.arch, got.Digest, tt.want)
		}
	}
}

func TestBadManifests(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for raw, says := range map[string]string{
		`{`:                   "not readable",
		`{"schemaVersion":1}`: "schema 1",
		`{"schemaVersion":2}`: "no image",
		`{"schemaVersion":2,"config":{"digest":"../../etc/passwd"}}`:                                                                     "digest",
		`{"schemaVersion":2,"config":{"digest":"` + digest + `"},"layers":[{"mediaType":"x.tar","digest":"sha256:../x"}]}`:               "digest",
		`{"schemaVersion":2,"config":{"digest":"` + digest + `"},"layers":[{"mediaType":"x.tar","digest":"` + digest + `","size":-1}]}`:  "digest",
		`{"schemaVersion":2,"config":{"digest":"` + digest + `"},"layers":[{"mediaType":"application/wasm","digest":"` + digest + `"}]}`: "application/wasm",
		`{"schemaVersion":2,"config":{"digest":"` + digest + `"},"layers":[{"mediaType":"x.foreign.tar","digest":"` + digest + `"}]}`:    "foreign",
		`{"schemaVersion":2,"mediaType":"` + ociIndex + `","manifests":[{"digest":"x"}]}`:                                                "digest",
	} {
		_, err := parseManifest([]byte(raw))
		wantCode(t, err, sos.CodeImageFailed, says)
	}
	s := open(t)
	for raw, says := range map[string]string{
		`[]`:                         "not readable",
		`{"rootfs":{"diff_ids":[]}}`: "no layers",
		`{"os":"windows","rootfs":{"diff_ids":["` + digest + `"]}}`:                      "windows",
		`{"architecture":"mips","rootfs":{"diff_ids":["` + digest + `"]}}`:               "linux/mips",
		`{"rootfs":{"diff_ids":["sha256:../../x"]}}`:                                     "diff id",
		`{"rootfs":{"diff_ids":["` + strings.Repeat(digest+`","`, 200) + digest + `"]}}`: "201 layers",
	} {
		_, err := s.parseConfig([]byte(raw))
		wantCode(t, err, sos.CodeImageFailed, says)
	}
}
