package native

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// baseDirs and baseFiles are what every sandbox has at its root whatever its image.
var (
	baseDirs = []struct {
		path string
		mode fs.FileMode
	}{
		{"", 0o755}, {"dev", 0o755}, {"etc", 0o755}, {"proc", 0o755}, {"sys", 0o755},
		{"tmp", fs.ModeSticky | 0o777}, {"workspace", 0o755},
	}
	baseFiles = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"}
)

// makeBase makes the layer that lies below those of every image, so that what an image
// lacks is there and need not be made in each sandbox anew: a file in the upper layer
// costs an inode, and its directory a copy. What an image has covers it.
func makeBase(dir string) error {
	for _, d := range baseDirs {
		path := filepath.Join(dir, d.path)
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := os.Chmod(path, d.mode); err != nil {
			return err
		}
	}
	for _, name := range baseFiles {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chmod(path, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// layers puts the base below those of an image, where the kernel takes one more:
// without it the spawner makes what is missing.
func (d *Driver) layers(image []string) []string {
	if len(image) >= spawn.MaxLayers {
		return image
	}
	return slices.Concat([]string{d.dirs.base()}, image)
}
