package image

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	opaqueXattr = "trusted.overlay.opaque"
	maxLinks    = 40 // symlinks followed in one name, as the kernel has it
)

var (
	errLinks  = errors.New("too many symbolic links")
	errNotDir = errors.New("a parent is not a directory")
)

// view looks at layers as overlayfs will merge them, without mounting anything.
// Every name is resolved within the layers: a symlink, absolute or not, cannot
// lead out of them. Nobody else may write to the layers meanwhile.
type view struct {
	layers []int // directory descriptors, the topmost first
}

// hit is what a name is in a view.
type hit struct {
	found bool
	layer int // index of the topmost layer that has it
	stat  unix.Stat_t
}

func (h hit) is(kind uint32) bool { return h.found && h.stat.Mode&unix.S_IFMT == kind }

// lookup finds p, which must be clean, relative and free of symlinks before its
// last part. skip leaves out so many of the top layers for the last part: what
// is below them. The empty p is the root.
func (v *view) lookup(p string, skip int) (hit, error) {
	live := make([]int, len(v.layers))
	for i := range live {
		live[i] = i
	}
	if p == "" {
		h := hit{found: len(live) > skip, layer: skip}
		if !h.found {
			return h, nil
		}
		return h, unix.Fstat(v.layers[skip], &h.stat)
	}
	for end := 0; ; {
		rest := strings.IndexByte(p[end:], '/')
		last := rest < 0
		if last {
			end = len(p)
		} else {
			end += rest
		}
		h, next, err := v.step(p[:end], live, skip, last)
		if err != nil || last {
			return h, err
		}
		if !h.is(unix.S_IFDIR) {
			return hit{}, nil
		}
		live = next
		end++
	}
}

// step finds one prefix in the layers that are merged at its parent, and says
// which of them are merged at the prefix itself.
func (v *view) step(prefix string, live []int, skip int, last bool) (h hit, next []int, err error) {
	for _, l := range live {
		if last && l < skip {
			continue
		}
		var st unix.Stat_t
		err := unix.Fstatat(v.layers[l], prefix, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return h, nil, fmt.Errorf("stat %q: %w", prefix, err)
		}
		if isWhiteout(&st) {
			break
		}
		isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
		if !h.found {
			h = hit{found: true, layer: l, stat: st}
		}
		if !isDir {
			break // hides what is below, or is hidden by the directory above
		}
		next = append(next, l)
		if v.opaque(l, prefix) {
			break
		}
	}
	return h, next, nil
}

func (v *view) opaque(layer int, p string) bool {
	fd, err := openBeneath(v.layers[layer], p, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return isOpaque(fd)
}

// place is a directory on the way of a name, with the layers merged there.
type place struct {
	path string
	live []int
}

// resolve follows p, including its last part when last is set, and gives the
// path without symlinks and what is there. enter, if set, is called for each
// directory or missing name on the way and must make it in the topmost layer; a
// missing name ends the walk otherwise.
func (v *view) resolve(p string, last bool, enter func(p string, h hit) error) (string, hit, error) {
	all := make([]int, len(v.layers))
	for i := range all {
		all[i] = i
	}
	trail, todo, links := []place{{"", all}}, strings.Split(p, "/"), 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(trail) > 1 {
				trail = trail[:len(trail)-1]
			}
			continue
		}
		at := trail[len(trail)-1]
		next := join(at.path, part)
		h, live, err := v.step(next, at.live, 0, false)
		if err != nil {
			return "", hit{}, err
		}
		switch {
		case h.is(unix.S_IFLNK) && (last || len(todo) > 0):
			target, err := readlinkAt(v.layers[h.layer], next)
			if err != nil {
				return "", hit{}, err
			}
			todo = append(strings.Split(target, "/"), todo...)
			if links++; links > maxLinks || len(todo) > unix.PathMax {
				return "", hit{}, errLinks
			}
			if strings.HasPrefix(target, "/") {
				trail = trail[:1]
			}
			continue
		case enter != nil && (!h.found || h.is(unix.S_IFDIR)):
			if err := enter(next, h); err != nil {
				return "", hit{}, err
			}
			if len(live) == 0 || live[0] != 0 {
				live = append([]int{0}, live...)
			}
		case !h.found:
			return next, h, nil
		case !h.is(unix.S_IFDIR):
			if len(todo) > 0 {
				return "", hit{}, errNotDir
			}
			return next, h, nil
		}
		trail = append(trail, place{next, live})
	}
	cur := trail[len(trail)-1]
	h, err := v.lookup(cur.path, 0)
	return cur.path, h, err
}

// names lists what the layers below the topmost have at the root.
func (v *view) names(skip int) (map[string]bool, error) {
	seen := map[string]bool{}
	for _, fd := range v.layers[min(skip, len(v.layers)):] {
		list, err := readNames(fd)
		if err != nil {
			return nil, err
		}
		for _, name := range list {
			seen[name] = true
		}
	}
	return seen, nil
}

func parentOf(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}
