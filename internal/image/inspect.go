package image

import (
	"debug/elf"
	"encoding/json"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

const hostArch = runtime.GOARCH

var (
	bashPaths  = []string{"bin/bash"}
	shellPaths = []string{"bin/sh", "bin/bash"}
	// Programs of which any image has one, to see what machine it is for.
	probePaths = []string{"bin/sh", "bin/bash", "usr/bin/env", "bin/busybox", "sbin/init"}
)

// imageConfig is what the store reads of an image's configuration, in the words
// of the OCI specification.
type imageConfig struct {
	Created      *time.Time `json:"created,omitempty"`
	Architecture string     `json:"architecture"`
	OS           string     `json:"os"`
	Config       struct {
		Env        []string          `json:"Env,omitempty"`
		Entrypoint []string          `json:"Entrypoint,omitempty"`
		Cmd        []string          `json:"Cmd,omitempty"`
		WorkingDir string            `json:"WorkingDir,omitempty"`
		User       string            `json:"User,omitempty"`
		Labels     map[string]string `json:"Labels,omitempty"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// parseConfig reads a configuration and refuses what cannot run here.
func (s *Store) parseConfig(b []byte) (imageConfig, error) {
	var c imageConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return c, failed("", "the image's configuration is not readable: %w", err)
	}
	switch {
	case len(c.RootFS.DiffIDs) == 0:
		return c, failed("", "the image has no layers")
	case len(c.RootFS.DiffIDs) > s.cfg.Limits.Layers:
		return c, failed("flatten the image", "the image has %d layers, %d are the most", len(c.RootFS.DiffIDs), s.cfg.Limits.Layers)
	case c.OS != "" && c.OS != "linux":
		return c, failed("use a Linux image", "the image is for %q, this host runs linux", shorten(c.OS))
	case c.Architecture != "" && c.Architecture != s.cfg.Arch:
		return c, wrongArch("the image", c.Architecture, s.cfg.Arch)
	}
	for _, d := range c.RootFS.DiffIDs {
		if !digestRE.MatchString(d) {
			return c, failed("", "the image's configuration has the diff id %s, which is none", quote(shorten(d)))
		}
	}
	return c, nil
}

func wrongArch(what, has, host string) error {
	return failed("get the image for linux/"+host, "%s is for linux/%s, this host is linux/%s", what, shorten(has), host)
}

// describe gives the image of a configuration whose layers are all there.
func (s *Store) describe(c imageConfig) (sos.Image, error) {
	img := sos.Image{Architecture: c.Architecture, OS: "linux",
		Env: c.Config.Env, Workdir: c.Config.WorkingDir, User: c.Config.User,
		Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, Labels: c.Config.Labels, Layers: c.RootFS.DiffIDs}
	if c.Created != nil {
		img.CreatedAt = c.Created.UTC()
	}
	chains := chainIDs(img.Layers)
	for _, chain := range chains {
		m, ok := s.readLayer(chain)
		if !ok {
			return img, storeError(os.ErrNotExist, "reading a layer")
		}
		img.Size += m.Size
	}
	fds, closeAll, err := s.openLayers(chains)
	if err != nil {
		return img, storeError(err, "reading a layer")
	}
	defer closeAll()
	v := &view{layers: fds}
	img.HasBash = v.program(bashPaths)
	img.HasShell = v.program(shellPaths)
	machine := v.machine()
	if img.Architecture == "" {
		img.Architecture = s.cfg.Arch
	}
	if machine != "" && machine != img.Architecture {
		return img, wrongArch("the image", machine, s.cfg.Arch)
	}
	return img, nil
}

// program says whether one of the paths is a program in the image, through
// whatever symlinks its layers have.
func (v *view) program(paths []string) bool {
	for _, p := range paths {
		if _, h, err := v.resolve(p, true, nil); err == nil && h.is(unix.S_IFREG) && h.stat.Mode&0o111 != 0 {
			return true
		}
	}
	return false
}

// machine is the architecture, in Go's words, of the first program found that
// tells; "" when none does.
func (v *view) machine() string {
	for _, p := range probePaths {
		at, h, err := v.resolve(p, true, nil)
		if err != nil || !h.is(unix.S_IFREG) {
			continue
		}
		fd, err := openBeneath(v.layers[h.layer], at, unix.O_RDONLY|unix.O_NONBLOCK)
		if err != nil {
			continue
		}
		f := os.NewFile(uintptr(fd), p)
		arch := elfArch(f)
		f.Close()
		if arch != "" {
			return arch
		}
	}
	return ""
}

// elfArch reads the first bytes only: the rest of a hostile file is no concern.
func elfArch(f *os.File) string {
	var h [20]byte
	if _, err := f.ReadAt(h[:], 0); err != nil || string(h[:4]) != elf.ELFMAG {
		return ""
	}
	big := elf.Data(h[elf.EI_DATA]) == elf.ELFDATA2MSB
	m := elf.Machine(uint16(h[18]) | uint16(h[19])<<8)
	if big {
		m = elf.Machine(uint16(h[19]) | uint16(h[18])<<8)
	}
	switch m {
	case elf.EM_X86_64:
		return "amd64"
	case elf.EM_386:
		return "386"
	case elf.EM_AARCH64:
		return "arm64"
	case elf.EM_ARM:
		return "arm"
	case elf.EM_RISCV:
		return "riscv64"
	case elf.EM_S390:
		return "s390x"
	case elf.EM_PPC64:
		if big {
			return "ppc64"
		}
		return "ppc64le"
	}
	return ""
}
