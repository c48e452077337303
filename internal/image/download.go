package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/seaofsimulation/sos"
)

var (
	errDigest = errors.New("the content does not have its digest")
	errShort  = errors.New("the connection ended early")
	errLong   = errors.New("more bytes came than announced")
)

// blobFile is a verified blob in ingest/, deleted by Close.
type blobFile struct {
	*os.File
	done func()
}

func (b *blobFile) Close() error {
	err := b.File.Close()
	b.done()
	return err
}

// fetching is a download with its state between attempts.
type fetching struct {
	rr     *remoteRepo
	want   descriptor
	file   *os.File
	hash   hash.Hash
	at     int64 // bytes in file and hash
	report func(sos.Progress)
}

// download fetches a blob into ingest/. A connection that breaks is continued
// where it was if the registry can, else begun again; attempts that bring nothing
// are counted and end it. A blob with a wrong digest is fetched once more.
func (s *Store) download(ctx context.Context, rr *remoteRepo, d descriptor, report func(sos.Progress)) (*blobFile, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, canceled(ctx.Err())
	}
	dir, done, err := s.work()
	if err != nil {
		return nil, storeError(err, "fetching a layer")
	}
	file, err := os.Create(filepath.Join(dir, "blob"))
	if err != nil {
		done()
		return nil, storeError(err, "fetching a layer")
	}
	b := &blobFile{File: file, done: done}
	f := &fetching{rr: rr, want: d, file: file, hash: sha256.New(), report: report}
	if err := s.fetch(ctx, f); err != nil {
		b.Close()
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		b.Close()
		return nil, storeError(err, "fetching a layer")
	}
	return b, nil
}

func (s *Store) fetch(ctx context.Context, f *fetching) error {
	corrupted := false
	for idle := 0; ; {
		before := f.at
		err := f.attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return canceled(ctx.Err())
		}
		switch {
		case errors.Is(err, errDigest), errors.Is(err, errLong):
			if corrupted {
				return err
			}
			corrupted = true
			if err := f.restart(); err != nil {
				return err
			}
		case !errors.Is(err, errShort) && !errors.Is(err, errStalled):
			return err // the transport has tried again already, or it is the disk
		}
		if idle++; f.at > before {
			idle = 1
		}
		if idle >= s.cfg.Retries {
			return err
		}
		s.log.Debug("layer fetch continues", "op", "pull", "layer", f.want.Digest, "at", f.at, "err", err)
		if err := sleep(ctx, backoff(s.cfg.Backoff, idle)); err != nil {
			return canceled(err)
		}
	}
}

// attempt makes one request and takes what comes.
func (f *fetching) attempt(ctx context.Context) error {
	u := url.URL{Scheme: f.rr.scheme, Host: f.rr.repo.RegistryStr(),
		Path: "/v2/" + f.rr.repo.RepositoryStr() + "/blobs/" + f.want.Digest}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	if f.at > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", f.at))
	}
	resp, err := f.rr.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := f.resume(resp); err != nil {
		return err
	}
	if err := f.copy(ctx, resp.Body); err != nil {
		return err
	}
	if f.at < f.want.Size {
		return errShort
	}
	if got := "sha256:" + hex.EncodeToString(f.hash.Sum(nil)); got != f.want.Digest {
		return errDigest
	}
	return nil
}

// resume looks whether the registry continues or begins anew.
func (f *fetching) resume(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusPartialContent:
		var from int64
		if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-", &from); err != nil || from != f.at {
			return errors.Join(errShort, f.restart())
		}
		return nil
	case http.StatusRequestedRangeNotSatisfiable:
		return errors.Join(errShort, f.restart())
	case http.StatusOK:
		if f.at > 0 {
			return f.restart()
		}
		return nil
	}
	return transport.CheckError(resp, http.StatusOK)
}

func (f *fetching) restart() error {
	f.at = 0
	f.hash.Reset()
	if err := f.file.Truncate(0); err != nil {
		return storeError(err, "fetching a layer")
	}
	return nil
}

func (f *fetching) copy(ctx context.Context, r io.Reader) error {
	buf := make([]byte, 128<<10)
	for {
		n, err := r.Read(buf)
		if f.at+int64(n) > f.want.Size {
			return errLong
		}
		if _, werr := f.file.WriteAt(buf[:n], f.at); werr != nil {
			return storeError(werr, "fetching a layer")
		}
		f.hash.Write(buf[:n])
		if f.at += int64(n); n > 0 {
			f.report(sos.Progress{Stage: "layer", Layer: f.want.Digest, Current: f.at, Total: f.want.Size})
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errStalled), ctx.Err() != nil:
			return err
		case err != nil:
			return errors.Join(errShort, err)
		}
	}
}
