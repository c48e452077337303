package native

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// binMode lets everybody execute and nobody but root read. For the guest this is
// what keeps its descriptors and memory from root inside the sandbox: the kernel
// ties the memory of a program that its user cannot read to the host's user
// namespace.
const binMode = 0o711

// extract puts a program into dir under the hash of its content and gives its
// path. What is there already is used when it is whole.
func extract(dir, name string, content []byte) (string, error) {
	sum := sha256.Sum256(content)
	path := filepath.Join(dir, name+"-"+hex.EncodeToString(sum[:8]))
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("extract %s: %w", name, err)
	}
	if err == nil && bytes.Equal(old, content) {
		return path, secure(path)
	}
	if err := writeFile(path, content, binMode); err != nil {
		return "", fmt.Errorf("extract %s: %w", name, err)
	}
	return path, secure(path)
}

func secure(path string) error {
	return errors.Join(os.Chown(path, 0, 0), os.Chmod(path, binMode))
}

// removeOldPrograms deletes what earlier builds extracted. Programs that run
// keep their inode.
func removeOldPrograms(dir string, keep ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		ours := strings.HasPrefix(e.Name(), "sos-") || strings.HasPrefix(e.Name(), ".sos-")
		if !ours || slices.Contains(keep, path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
