package image

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// bundle is the files of an image archive, however they are kept.
type bundle interface {
	// open gives a file by its name in the archive; os.ErrNotExist when it has none.
	open(name string) (io.ReadCloser, int64, error)
}

func has(b bundle, name string) bool {
	f, _, err := b.open(name)
	if err == nil {
		f.Close()
	}
	return err == nil
}

// tarBundle is a plain tar kept in ingest/, read in place.
type tarBundle struct {
	file  *os.File
	parts map[string]part
	links map[string]string // podman's archives name layers by symlinks
}

type part struct{ at, size int64 }

func (t *tarBundle) open(name string) (io.ReadCloser, int64, error) {
	name = path.Clean(name)
	for range 3 {
		p, ok := t.parts[name]
		if ok {
			return io.NopCloser(io.NewSectionReader(t.file, p.at, p.size)), p.size, nil
		}
		to, ok := t.links[name]
		if !ok {
			break
		}
		name = to
	}
	return nil, 0, os.ErrNotExist
}

func (t *tarBundle) isImage() bool {
	return has(t, "manifest.json") || has(t, "index.json") && has(t, "oci-layout")
}

// maxParts bounds the table of an archive: 128 layers have a few files each.
const maxParts = 1 << 20

// spool copies a tar to ingest/ and finds its files.
func (s *Store) spool(ctx context.Context, r io.Reader) (*tarBundle, func(), error) {
	dir, done, err := s.work()
	if err != nil {
		return nil, nil, storeError(err, "keeping the archive")
	}
	f, err := os.Create(filepath.Join(dir, "archive"))
	if err != nil {
		done()
		return nil, nil, storeError(err, "keeping the archive")
	}
	closeAll := func() { f.Close(); done() }
	if err := copyBounded(f, contextReader{ctx, r}, s.cfg.Limits.Bytes); err != nil {
		closeAll()
		return nil, nil, err
	}
	b := &tarBundle{file: f, parts: map[string]part{}, links: map[string]string{}}
	if err := b.scan(); err != nil {
		closeAll()
		return nil, nil, err
	}
	return b, closeAll, nil
}

// copyBounded tells errors of the source, which is the archive's, from those of
// the disk.
func copyBounded(w io.Writer, r io.Reader, most int64) error {
	src := &faulty{r: r}
	n, err := io.Copy(w, io.LimitReader(src, most+1))
	switch {
	case src.err != nil:
		return corrupt(src.err)
	case err != nil:
		return storeError(err, "keeping the archive")
	case n > most:
		return failed(limitFix, "the archive is larger than what an image may be")
	}
	return nil
}

// faulty remembers the error of its source.
type faulty struct {
	r   io.Reader
	err error
}

func (f *faulty) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// scan finds the files. The tar reader reads headers only and seeks over the
// rest, so after a header the file's position is where its content begins.
func (t *tarBundle) scan() error {
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return storeError(err, "reading the archive")
	}
	tr := tar.NewReader(t.file)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return corrupt(err)
		}
		name := path.Clean("/" + hdr.Name)[1:]
		if strings.Count(name, "/") > 2 {
			continue // no part of an image lies deeper than blobs/sha256/…
		}
		switch hdr.Typeflag {
		case tar.TypeReg:
			at, err := t.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return storeError(err, "reading the archive")
			}
			t.parts[name] = part{at, hdr.Size}
		case tar.TypeSymlink:
			t.links[name] = path.Join("/", path.Dir(name), hdr.Linkname)[1:]
		case tar.TypeLink:
			t.links[name] = path.Clean("/" + hdr.Linkname)[1:]
		}
		if len(t.parts)+len(t.links) > maxParts {
			return failed("", "the archive has more than %d files", maxParts)
		}
	}
}

// dirBundle is a directory; os.Root keeps names and symlinks inside.
type dirBundle struct{ root *os.Root }

func (d *dirBundle) open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.OpenFile(path.Clean(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, 0, os.ErrNotExist
	}
	return f, st.Size(), nil
}
