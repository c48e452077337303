package native

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// Every sandbox has 65,536 host ids of its own, so that one that got out of its
// namespaces meets nothing but foreign ids in another's files.
//
// Ranges lie between 0x40000000, above what useradd hands out in /etc/subuid by
// itself (below 600,100,000), and 0x7ffdffff, below the ids that systemd reserves
// as foreign; all are positive as 32-bit numbers. What /etc/subuid or
// /etc/subgid reserve in there by hand is left out.
const (
	rangeSize  = 1 << 16
	firstRange = 0x40000000 / rangeSize
	lastRange  = 0x7ffe0000/rangeSize - 1
)

// DefaultIDsDir holds the claims of all instances of a host.
const DefaultIDsDir = "/run/sos/ids"

// idTable gives out ranges. The range of a sandbox is kept in its state record
// for as long as its files exist. What two instances of one host agree on is a
// directory with one symbolic link per range in use, named by the range and
// pointing to the state directory that claims it: made whole in one system call.
// Whoever starts a sandbox holds the claim first, so no two living
// sandboxes ever share a range; the directory is gone after a reboot, and so is
// everything that lived.
type idTable struct {
	dir   string // of the claims
	owner string // absolute path of the sandboxes directory
}

// errRangeTaken: another sandbox holds the claim.
var errRangeTaken = errors.New("the id range is in use")

func idBase(r int) uint32  { return uint32(r) * rangeSize }
func rangeOf(b uint32) int { return int(b / rangeSize) }

// allocate claims a range that nobody has and gives its first id. The search
// begins at a place that depends on the sandbox only: two instances that cannot
// see each other's stopped sandboxes hardly ever choose the same.
func (t idTable) allocate(id string) (uint32, error) {
	unlock, err := t.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	reserved := reservedIDs("/etc/subuid", "/etc/subgid")
	h := fnv.New32a()
	h.Write([]byte(id))
	n := lastRange - firstRange + 1
	first := int(h.Sum32() % uint32(n))
	for i := range n {
		r := firstRange + (first+i)%n
		if reserved.overlaps(r) {
			continue
		}
		err := t.claim(r, id)
		if err == nil {
			return idBase(r), nil
		}
		if !errors.Is(err, errRangeTaken) {
			return 0, err
		}
	}
	return 0, &sos.Error{Code: sos.CodeUnavailable, Message: "every id range of this host is in use",
		Fix: "remove sandboxes that are not needed any more"}
}

// reclaim takes the range that a sandbox had before.
func (t idTable) reclaim(id string, base uint32) error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := t.claim(rangeOf(base), id); errors.Is(err, errRangeTaken) {
		return &sos.Error{Code: sos.CodeUnavailable, Cause: err,
			Message: fmt.Sprintf("the ids from %d on, which the files of %s belong to, are in use by a sandbox of another data directory", base, id),
			Fix:     "remove the other sandbox; data directories must not be copies of each other"}
	} else if err != nil {
		return err
	}
	return nil
}

// release gives the range back; nil when it is not claimed by id.
func (t idTable) release(id string, base uint32) error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	path := t.path(rangeOf(base))
	if holder, err := os.Readlink(path); err != nil || holder != t.holder(id) {
		return nil
	}
	return os.Remove(path)
}

// sweep gives back what this instance claimed for sandboxes whose files are gone: a
// server that is killed between a claim and its record leaves one. Nothing may be
// starting.
func (t idTable) sweep() error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	links, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		r, err := strconv.Atoi(l.Name())
		if err != nil {
			continue
		}
		if holder, err := os.Readlink(t.path(r)); err == nil && filepath.Dir(holder) == t.owner && !holderLives(holder, idBase(r)) {
			errs = append(errs, os.Remove(t.path(r)))
		}
	}
	return errors.Join(errs...)
}

// claim makes the link, or takes over one whose owner has no such sandbox any
// more. The lock is held.
func (t idTable) claim(r int, id string) error {
	path := t.path(r)
	err := os.Symlink(t.holder(id), path)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	holder, err := os.Readlink(path)
	switch {
	case err != nil: // no link: not ours to judge
		return errRangeTaken
	case holder == t.holder(id):
		return nil
	case holderLives(holder, idBase(r)):
		return errRangeTaken
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Symlink(t.holder(id), path)
}

func (t idTable) path(r int) string       { return filepath.Join(t.dir, strconv.Itoa(r)) }
func (t idTable) holder(id string) string { return filepath.Join(t.owner, id) }

// holderLives says whether the state directory that a claim names still has that
// range. One without a record is about to get it.
func holderLives(stateDir string, base uint32) bool {
	if !filepath.IsAbs(stateDir) || !exists(stateDir) {
		return false
	}
	var rec record
	if err := readJSON(filepath.Join(stateDir, "state"), &rec); err != nil {
		return true
	}
	return rec.IDBase == base
}

// lock excludes the other instances.
func (t idTable) lock() (func(), error) {
	if err := makeDir(t.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(t.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// idSpans are ids that somebody else may use.
type idSpans [][2]uint64 // first, past the last

func (s idSpans) overlaps(r int) bool {
	from, to := uint64(idBase(r)), uint64(idBase(r))+rangeSize
	for _, sp := range s {
		if sp[0] < to && from < sp[1] {
			return true
		}
	}
	return false
}

// reservedIDs reads files of the form "user:first:count"; what is not of that
// form, or not there, reserves nothing.
func reservedIDs(files ...string) (s idSpans) {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(f); sc.Scan(); {
			p := strings.Split(strings.TrimSpace(sc.Text()), ":")
			if len(p) != 3 {
				continue
			}
			first, err1 := strconv.ParseUint(p[1], 10, 32)
			count, err2 := strconv.ParseUint(p[2], 10, 32)
			if err1 == nil && err2 == nil {
				s = append(s, [2]uint64{first, first + count})
			}
		}
		f.Close()
	}
	return s
}
