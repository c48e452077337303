package image

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

const (
	maxID = 65535 // a sandbox maps the ids 0–65535
	// maxDepth bounds the descriptors that walking a tree takes.
	maxDepth = 500
)

// applier writes the entries of one layer's tar into an empty directory, as the
// layer looks between the ones below it and an overlay mount: whiteouts become
// devices 0:0, opaque directories get the overlay attribute.
//
// The tar is hostile. Names are resolved by view within the layers; everything is
// then done relative to a parent directory that was opened without following any
// symlink, so a mistake in the resolving gives an error and never an escape.
type applier struct {
	ctx    context.Context
	root   int // the layer being made; view.layers[0]
	view   *view
	budget *budget
	buf    []byte
	times  map[string]unix.Timespec // of directories, set when all is written

	parent   int    // open directory, or -1
	asked    string // parent as the archive names it
	resolved string // parent without symlinks
}

// entry is one header with its name split and resolved.
type entry struct {
	*tar.Header
	full string // as shown to people
	dir  int    // parent, open
	base string
	path string // resolved, relative to the root
}

// applyLayer unpacks the tar in r to root, an empty directory. lowers are the
// layers below, the topmost first. It reads exactly the archive; strict wants its
// end mark, for streams that no digest vouches for.
func applyLayer(ctx context.Context, r io.Reader, root int, lowers []int, b *budget, strict bool) error {
	a := &applier{ctx: ctx, root: root, view: &view{layers: append([]int{root}, lowers...)}, budget: b,
		buf: make([]byte, 128<<10), times: map[string]unix.Timespec{}, parent: -1}
	defer a.forget()
	if err := a.copyRoot(); err != nil {
		return err
	}
	pos := &counter{r: r}
	tr, end := tar.NewReader(pos), int64(0)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return corrupt(err)
		}
		if err := ctx.Err(); err != nil {
			return canceled(err)
		}
		if err := a.apply(hdr, tr); err != nil {
			return a.explain(hdr, err)
		}
		// Content that nobody wanted is left to Next, which does not expand holes.
		end = (pos.n + 511) &^ 511
	}
	if strict && pos.n-end < 512 {
		return corrupt(io.ErrUnexpectedEOF)
	}
	return a.finish()
}

// apply does one entry.
func (a *applier) apply(hdr *tar.Header, r io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := a.budget.entry(); err != nil {
		return err
	}
	clean, err := cleanName(hdr.Name)
	if err != nil {
		return err
	}
	if hdr.Uid < 0 || hdr.Uid > maxID || hdr.Gid < 0 || hdr.Gid > maxID {
		return failed("build the image with owners in that range",
			"its owner %d:%d is outside of 0–%d, which is what a sandbox has", hdr.Uid, hdr.Gid, maxID)
	}
	if clean == "" {
		if hdr.Typeflag != tar.TypeDir {
			return failed("", "the root is not a directory")
		}
		return a.dress(a.root, "", hdr)
	}
	e := entry{Header: hdr, full: clean}
	dir, base := path.Split(clean)
	e.base = base
	if e.dir, e.path, err = a.enter(strings.TrimSuffix(dir, "/")); err != nil {
		return err
	}
	e.path = path.Join(e.path, base)
	if strings.Count(e.path, "/") > maxDepth {
		return failed("", "it lies more than %d directories deep", maxDepth)
	}
	if strings.HasPrefix(base, whiteoutPrefix) {
		return a.whiteoutEntry(e)
	}
	return a.create(e, r)
}

// cleanName gives the name relative to the root. Absolute names are taken as
// relative to it, as tar does; ".." has no business in an image.
func cleanName(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", failed("", "the name leads out of the image")
		}
	}
	if strings.IndexByte(name, 0) >= 0 {
		return "", failed("", "the name holds a NUL byte")
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

// enter opens the directory that holds an entry and makes what is missing of it:
// a copy of the directory below, whose owner and mode must not change by being
// passed, or a plain one.
func (a *applier) enter(dir string) (fd int, resolved string, err error) {
	if a.parent >= 0 && a.asked == dir {
		return a.parent, a.resolved, nil
	}
	a.forget()
	resolved = dir
	fd, err = openBeneath(a.root, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		if resolved, _, err = a.view.resolve(dir, true, a.pass); err != nil {
			return -1, "", err
		}
		fd, err = openBeneath(a.root, resolved, unix.O_RDONLY|unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOTDIR) {
			err = errNotDir
		}
	}
	if err != nil {
		return -1, "", err
	}
	a.parent, a.asked, a.resolved = fd, dir, resolved
	return fd, resolved, nil
}

// pass makes the directory p in this layer unless it is there.
func (a *applier) pass(p string, h hit) error {
	if h.found && h.layer == 0 {
		return nil
	}
	if strings.Count(p, "/") >= maxDepth {
		return failed("", "it lies more than %d directories deep", maxDepth)
	}
	dir, err := openBeneath(a.root, parentOf(p), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := path.Base(p)
	opaque, err := a.clear(dir, base, true)
	if err != nil {
		return err
	}
	if err := a.budget.entry(); err != nil {
		return err
	}
	if err := unix.Mkdirat(dir, base, 0o755); err != nil {
		return err
	}
	fd, err := openBeneath(dir, base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if h.found {
		return a.copyDir(fd, p, h)
	}
	if err := unix.Fchmod(fd, 0o755); err != nil { // whatever the umask is
		return err
	}
	if opaque {
		return a.makeOpaque(fd)
	}
	return nil
}

// forget closes the remembered parent. It is called whenever something that may
// have been on its way was replaced.
func (a *applier) forget() {
	if a.parent >= 0 {
		unix.Close(a.parent)
		a.parent = -1
	}
}

// finish sets the times of directories, which writing into them has changed.
func (a *applier) finish() error {
	a.forget()
	for p, t := range a.times {
		fd, err := openBeneath(a.root, p, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue // replaced by a later entry
		}
		err = setTimes(fd, t)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// explain names the entry in an error.
func (a *applier) explain(hdr *tar.Header, err error) error {
	name := shorten(hdr.Name)
	if e, ok := errors.AsType[*sos.Error](err); ok {
		if e.Code != sos.CodeImageFailed {
			return err
		}
		return &sos.Error{Code: e.Code, Message: "the image's file " + quote(name) + " cannot be unpacked: " + e.Message, Fix: e.Fix, Cause: e.Cause}
	}
	for _, known := range []error{errLinks, errNotDir, unix.ENAMETOOLONG, unix.ELOOP, unix.EEXIST, unix.ENOTSUP} {
		if errors.Is(err, known) {
			return &sos.Error{Code: sos.CodeImageFailed, Message: "the image's file " + quote(name) + " cannot be unpacked: " + known.Error(), Cause: err}
		}
	}
	if errors.Is(err, errDamaged) {
		return corrupt(err)
	}
	return storeError(err, "unpacking "+quote(name))
}
