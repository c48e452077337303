package image

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/seaofsimulation/sos"
)

// Remove takes a name from an image that has others, and otherwise removes the
// image with the layers that no other image has. CodeConflict when it is in use,
// CodeNotFound when there is none.
func (s *Store) Remove(ctx context.Context, ref string) error {
	if err := ctx.Err(); err != nil {
		return canceled(err)
	}
	s.mu.Lock()
	removed, gone, err := s.forget(ref)
	s.mu.Unlock()
	s.discard(gone)
	if err != nil || !removed {
		return err
	}
	// Only now, because on a full disk nothing can be written before something is
	// deleted. A name whose image is gone counts for nothing, so a table that is
	// late does no harm.
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setNames(s.names); err != nil {
		s.log.Warn("table of image names not written", "op", "remove", "err", err)
	}
	return nil
}

// forget does the visible half of a removal, and says whether the image went or
// only a name. It needs no space on the disk when the image goes. s.mu is held.
func (s *Store) forget(ref string) (removed bool, gone []string, err error) {
	rec, name, err := s.find(ref)
	if err != nil {
		return false, nil, err
	}
	names := cloneNames(s.names)
	if name != "" && len(s.show(rec).Names) > 1 {
		delete(names, name)
		return false, nil, s.setNames(names)
	}
	if err := s.inUse(rec.Digest, ref); err != nil {
		return false, nil, err
	}
	if err := os.Remove(s.path("images", hexOf(rec.Digest)+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, nil, storeError(err, "removing the image")
	}
	if err := syncDir(s.path("images")); err != nil {
		return false, nil, storeError(err, "removing the image")
	}
	delete(s.images, rec.Digest)
	for n, digest := range names {
		if digest == rec.Digest {
			delete(names, n)
		}
	}
	s.names = names
	gone, err = s.collect()
	return true, gone, err
}

func (s *Store) inUse(digest, ref string) error {
	var users []string
	switch {
	case s.cfg.Users != nil:
		if users = s.cfg.Users(digest); len(users) == 0 {
			return nil
		}
	case s.cfg.InUse == nil || !s.cfg.InUse(digest):
		return nil
	}
	by := "a sandbox"
	if len(users) > 0 {
		by = strings.Join(users[:min(len(users), 10)], ", ")
		if len(users) > 10 {
			by += fmt.Sprintf(" and %d more", len(users)-10)
		}
	}
	e := sos.Errorf(sos.CodeConflict, "image %q is used by %s", shorten(ref), by)
	e.Fix = "remove the sandboxes that use it first"
	return e
}

// collect takes what no image and no work in progress needs out of sight, and
// gives the paths to delete. It counts references by looking at all images, so
// there is no count that could go wrong. s.mu is held, or nobody else is there.
func (s *Store) collect() (gone []string, err error) {
	keep := map[string]bool{}
	for chain := range s.leases {
		keep[hexOf(chain)] = true
	}
	blobs := map[string]bool{}
	for _, rec := range s.images {
		for _, chain := range chainIDs(rec.Layers) {
			keep[hexOf(chain)] = true
		}
		blobs[hexOf(rec.Digest)], blobs[hexOf(rec.Config)] = true, true
	}
	for dir, keep := range map[string]map[string]bool{"layers": keep, "blobs": blobs} {
		entries, err := os.ReadDir(s.path(dir))
		if err != nil {
			return gone, storeError(err, "looking for unused layers")
		}
		for _, e := range entries {
			if keep[e.Name()] {
				continue
			}
			to := s.path("ingest", "gone-"+e.Name()[:min(len(e.Name()), 100)]+"-"+rand.Text())
			if err := os.Rename(s.path(dir, e.Name()), to); err != nil {
				return gone, storeError(err, "removing unused layers")
			}
			gone = append(gone, to)
		}
	}
	return gone, nil
}

// discard deletes what collect took away. What cannot be deleted now is rubbish
// in ingest/ and goes at the next Open.
func (s *Store) discard(gone []string) {
	for _, path := range gone {
		if err := s.remove(path); err != nil {
			s.log.Warn("image store clean-up failed", "op", "remove", "err", err)
		}
	}
}
