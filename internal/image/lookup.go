package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seaofsimulation/sos"
)

// List gives all images, the newest first.
func (s *Store) List(ctx context.Context) ([]sos.Image, error) {
	if err := ctx.Err(); err != nil {
		return nil, canceled(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]sos.Image, 0, len(s.images))
	for _, rec := range s.images {
		list = append(list, s.show(rec))
	}
	slices.SortFunc(list, func(a, b sos.Image) int {
		if c := b.AddedAt.Compare(a.AddedAt); c != 0 {
			return c
		}
		return strings.Compare(a.Digest, b.Digest)
	})
	return list, nil
}

// Get finds an image by name, digest, or unique prefix of a digest of at least
// six digits. CodeNotFound when there is none, CodeInvalid when ref is no name or
// several images have the prefix.
func (s *Store) Get(ctx context.Context, ref string) (sos.Image, error) {
	if err := ctx.Err(); err != nil {
		return sos.Image{}, canceled(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, _, err := s.find(ref)
	if err != nil {
		return sos.Image{}, err
	}
	return s.show(rec), nil
}

// Resolve gives the local image, or pulls it.
func (s *Store) Resolve(ctx context.Context, ref string, progress func(sos.Progress)) (sos.Image, error) {
	img, err := s.Get(ctx, ref)
	if sos.ErrorCode(err) != sos.CodeNotFound {
		return img, err
	}
	if _, perr := parseReference(ref); perr != nil {
		return sos.Image{}, err // a digest alone names no registry
	}
	return s.Pull(ctx, ref, progress)
}

// find looks an image up, with the name that found it, if one did. s.mu is held.
func (s *Store) find(ref string) (rec record, name string, err error) {
	r, perr := parseReference(ref)
	if perr == nil {
		if digest, ok := s.names[r.String()]; ok {
			return s.images[digest], r.String(), nil
		}
		if r.digest != "" {
			if rec, ok := s.byDigest(r.digest); ok {
				return rec, "", nil
			}
		}
	}
	m := prefixRE.FindStringSubmatch(ref)
	if m == nil {
		if perr != nil {
			return rec, "", perr
		}
		return rec, "", notFound(Familiar(r.String()))
	}
	var found []record
	for _, rec := range s.images {
		if strings.HasPrefix(hexOf(rec.Digest), m[1]) || rec.Index != "" && strings.HasPrefix(hexOf(rec.Index), m[1]) {
			found = append(found, rec)
		}
	}
	switch len(found) {
	case 0:
		return rec, "", notFound(ref)
	case 1:
		return found[0], "", nil
	}
	e := sos.Errorf(sos.CodeInvalid, "%d images have a digest that begins with %q", len(found), ref)
	e.Fix = "give more digits, or a name"
	return rec, "", e
}

// byDigest finds an image by the digest of its manifest, or of the index that it
// was chosen from, which is what people copy from a registry's page.
func (s *Store) byDigest(digest string) (record, bool) {
	if rec, ok := s.images[digest]; ok {
		return rec, true
	}
	for _, rec := range s.images {
		if rec.Index == digest {
			return rec, true
		}
	}
	return record{}, false
}

func notFound(ref string) error {
	return &sos.Error{Code: sos.CodeNotFound, Message: fmt.Sprintf("there is no image %q here", shorten(ref)),
		Fix: fmt.Sprintf("sos image pull %s, or sos image import FILE --name %s", shorten(ref), shorten(ref))}
}
