package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// layerMeta is layer.json.
type layerMeta struct {
	DiffID  string `json:"diff_id"`
	ChainID string `json:"chain_id"`
	Size    int64  `json:"size"` // bytes of its files
	Entries int64  `json:"entries"`
}

// layerSource is a layer that can be had.
type layerSource struct {
	diffID  string
	chainID string
	digest  string // of the blob
	// open gives the blob, whose digest it has verified.
	open func(ctx context.Context, report func(sos.Progress)) (io.ReadCloser, error)
}

// chainIDs names each layer together with all below it.
func chainIDs(diffIDs []string) []string {
	chains := make([]string, len(diffIDs))
	for i, d := range diffIDs {
		if i == 0 {
			chains[i] = d
			continue
		}
		chains[i] = digestOf([]byte(chains[i-1] + " " + d))
	}
	return chains
}

// LayerDirs gives the layers of an image as absolute directories, the lowest
// first, for an overlay mount. CodeImageFailed when one is not there.
func (s *Store) LayerDirs(img sos.Image) ([]string, error) {
	if len(img.Layers) == 0 {
		return nil, failed("pull or import another image", "image %s has no layers", img.Digest)
	}
	dirs := make([]string, 0, len(img.Layers))
	for _, chain := range chainIDs(img.Layers) {
		dir, err := filepath.Abs(s.layerDir(chain))
		if err == nil {
			_, err = os.Stat(dir)
		}
		if err != nil {
			return nil, &sos.Error{Code: sos.CodeImageFailed, Message: "a layer of image " + img.Digest + " is missing",
				Fix: "pull or import the image again", Cause: err}
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

func (s *Store) layerDir(chain string) string { return s.path("layers", hexOf(chain), "fs") }

func (s *Store) readLayer(chain string) (layerMeta, bool) {
	var m layerMeta
	err := readJSON(s.path("layers", hexOf(chain), "layer.json"), &m)
	return m, err == nil
}

// lease keeps layers from being collected while work counts on them.
func (s *Store) lease(chains []string) (release func()) {
	add := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range chains {
			if s.leases[c] += n; s.leases[c] == 0 {
				delete(s.leases, c)
			}
		}
	}
	add(1)
	return func() { add(-1) }
}

// ensureLayer makes layer i of plan be there, once for all who want it. The blob
// is fetched at once; it is unpacked when the layer below is there. The caller
// holds a lease on the chain ids.
func (s *Store) ensureLayer(ctx context.Context, plan []layerSource, i int, report func(sos.Progress)) (layerMeta, error) {
	l := plan[i]
	return s.layers.do(ctx, s.base, l.chainID, report, func(ctx context.Context, report func(sos.Progress)) (layerMeta, error) {
		if m, ok := s.readLayer(l.chainID); ok {
			return m, nil
		}
		blob, err := l.open(ctx, report)
		if err != nil {
			return layerMeta{}, err
		}
		defer blob.Close()
		lowers := make([]string, 0, i)
		if i > 0 {
			if _, err := s.ensureLayer(ctx, plan, i-1, nil); err != nil {
				return layerMeta{}, err
			}
			for _, below := range plan[:i] {
				lowers = append(lowers, below.chainID)
			}
		}
		report(sos.Progress{Stage: "unpack", Layer: l.digest})
		return s.unpackLayer(ctx, blob, lowers, l.diffID, nil)
	})
}

// unpackLayer unpacks the tar in r, packed or not, above lowers (chain ids, the
// lowest first) and puts it in place. want is its diff id. Without one the layer
// is whatever comes, the tar must have its end mark, and ready is called before
// the layer becomes visible.
func (s *Store) unpackLayer(ctx context.Context, r io.Reader, lowers []string, want string, ready func(layerMeta)) (layerMeta, error) {
	dir, done, err := s.work()
	if err != nil {
		return layerMeta{}, storeError(err, "unpacking a layer")
	}
	defer done()
	in, err := decompress(contextReader{ctx, r}, s.cfg.Limits)
	if err != nil {
		return layerMeta{}, err
	}
	defer in.Close()
	left := s.cfg.Limits.Bytes
	for _, c := range lowers {
		m, ok := s.readLayer(c)
		if !ok {
			return layerMeta{}, fmt.Errorf("layer %s is not there", c)
		}
		left -= m.Size
	}
	b := &budget{limits: s.cfg.Limits, left: left}
	hash := sha256.New()
	if err := s.unpackInto(ctx, filepath.Join(dir, "fs"), io.TeeReader(in, hash), lowers, b, want == ""); err != nil {
		return layerMeta{}, err
	}
	// The digest of the blob covers what may follow the packed tar.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return layerMeta{}, corrupt(err)
	}
	m := layerMeta{DiffID: "sha256:" + hex.EncodeToString(hash.Sum(nil)), Size: b.bytes, Entries: b.entries}
	if want != "" && m.DiffID != want {
		return layerMeta{}, failed("get the image again, or tell its publisher", "the content of a layer is %s, its image says %s", m.DiffID, want)
	}
	diffs := []string{m.DiffID}
	if len(lowers) > 0 {
		diffs = []string{lowers[len(lowers)-1], m.DiffID}
	}
	m.ChainID = chainIDs(diffs)[len(diffs)-1]
	if ready != nil {
		ready(m)
	}
	return m, storeError(s.commitLayer(dir, m), "putting a layer in place")
}

func (s *Store) unpackInto(ctx context.Context, fs string, r io.Reader, lowers []string, b *budget, strict bool) error {
	if err := os.Mkdir(fs, 0o755); err != nil {
		return storeError(err, "unpacking a layer")
	}
	root, err := os.Open(fs)
	if err != nil {
		return storeError(err, "unpacking a layer")
	}
	defer root.Close()
	below, closeAll, err := s.openLayers(lowers)
	if err != nil {
		return storeError(err, "unpacking a layer")
	}
	defer closeAll()
	if err := applyLayer(ctx, r, int(root.Fd()), below, b, strict); err != nil {
		return err
	}
	// What follows the end mark belongs to the digest: padding, seldom more.
	const mostPadding = 64 << 20
	n, err := io.Copy(io.Discard, io.LimitReader(r, mostPadding+1))
	if err != nil {
		return corrupt(err)
	}
	if n > mostPadding {
		return failed("", "the archive goes on after its end")
	}
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		return storeError(fmt.Errorf("syncfs: %w", err), "unpacking a layer")
	}
	return nil
}

// openLayers opens layers, the topmost first.
func (s *Store) openLayers(chains []string) (fds []int, closeAll func(), err error) {
	closeAll = func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	for i := len(chains) - 1; i >= 0; i-- {
		fd, err := unix.Open(s.layerDir(chains[i]), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("open layer %s: %w", chains[i], err)
		}
		fds = append(fds, fd)
	}
	return fds, closeAll, nil
}

// commitLayer makes a whole, synced layer visible. Another that got there first
// is as good.
func (s *Store) commitLayer(dir string, m layerMeta) error {
	if err := s.writeJSON(filepath.Join(dir, "layer.json"), m); err != nil {
		return err
	}
	err := os.Rename(dir, s.path("layers", hexOf(m.ChainID)))
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(s.path("layers"))
}

// contextReader ends a read loop when ctx is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}
