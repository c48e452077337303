package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seaofsimulation/sos"
)

// record is what the store keeps of an image. Its Names are kept in names.json.
type record struct {
	sos.Image
	Config string `json:"config"`          // digest of its configuration
	Index  string `json:"index,omitempty"` // digest of the multi-platform index it was chosen from
}

// candidate is an image whose layers are all there, ready to be recorded.
type candidate struct {
	manifest, config []byte
	index            string
	names            []string // normalised
	image            sos.Image
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// load reads names and images. An image that has lost a layer is not shown: it
// could not be started.
func (s *Store) load() error {
	files, err := filepath.Glob(s.path("images", "*.json"))
	if err != nil {
		return err
	}
	for _, f := range files {
		var rec record
		if err := readJSON(f, &rec); err != nil {
			return err
		}
		if _, err := s.LayerDirs(rec.Image); err != nil {
			s.log.Warn("image dropped: a layer is missing", "image", rec.Digest, "err", err)
			if err := os.Remove(f); err != nil {
				return err
			}
			continue
		}
		s.images[rec.Digest] = rec
	}
	err = readJSON(s.path("names.json"), &s.names)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for name, digest := range s.names {
		if _, ok := s.images[digest]; !ok {
			delete(s.names, name)
		}
	}
	return err
}

// add records an image, durably. The names move to it from where they were.
func (s *Store) add(c candidate) (sos.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	img := c.image
	img.Digest, img.Names, img.AddedAt = digestOf(c.manifest), nil, s.cfg.Now().UTC()
	rec := record{Image: img, Config: digestOf(c.config), Index: c.index}
	if old, ok := s.images[img.Digest]; ok {
		rec.AddedAt = old.AddedAt
		if rec.Index == "" {
			rec.Index = old.Index
		}
	}
	for _, b := range [][]byte{c.manifest, c.config} {
		if err := s.writeFile(s.path("blobs", hexOf(digestOf(b))), b); err != nil {
			return sos.Image{}, storeError(err, "recording the image")
		}
	}
	if err := s.writeJSON(s.path("images", hexOf(img.Digest)+".json"), rec); err != nil {
		return sos.Image{}, storeError(err, "recording the image")
	}
	s.images[img.Digest] = rec
	names := cloneNames(s.names)
	for _, n := range c.names {
		names[n] = img.Digest
	}
	if err := s.setNames(names); err != nil {
		return sos.Image{}, err
	}
	return s.show(rec), nil
}

// setNames replaces the table, durably. s.mu is held.
func (s *Store) setNames(names map[string]string) error {
	if err := s.writeJSON(s.path("names.json"), names); err != nil {
		return storeError(err, "writing the table of names")
	}
	s.names = names
	return nil
}

func cloneNames(m map[string]string) map[string]string {
	c := make(map[string]string, len(m)+1)
	for k, v := range m {
		c[k] = v
	}
	return c
}

// show is a record as callers see it. s.mu is held.
func (s *Store) show(rec record) sos.Image {
	img := rec.Image
	img.Names = []string{}
	for name, digest := range s.names {
		if digest == rec.Digest {
			img.Names = append(img.Names, name)
		}
	}
	slices.Sort(img.Names)
	img.Env, img.Layers = slices.Clone(img.Env), slices.Clone(img.Layers)
	return img
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return nil
}

func (s *Store) writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return s.writeFile(path, append(b, '\n'))
}

// writeFile puts a whole file in place of what is there, durably.
func (s *Store) writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(s.path("ingest"), "file-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails when renamed
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
