package native

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// tables are the tables of n instances of one host.
func tables(t *testing.T, n int) []idTable {
	ids := filepath.Join(t.TempDir(), "ids")
	list := make([]idTable, n)
	for i := range list {
		list[i] = idTable{dir: ids, owner: filepath.Join(t.TempDir(), "sandboxes")}
	}
	return list
}

// take does what a start does with a range.
func take(t *testing.T, tab idTable, id string) uint32 {
	t.Helper()
	dir := filepath.Join(tab.owner, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	base, err := tab.allocate(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(filepath.Join(dir, "state"), record{Version: recordVersion, IDBase: base}); err != nil {
		t.Fatal(err)
	}
	return base
}

func TestRangesAreNeverShared(t *testing.T) {
	tabs := tables(t, 2)
	var mu sync.Mutex
	owners := map[uint32]string{}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for range testutil.Scale(50) {
				id := sos.NewID(sos.SandboxIDPrefix, nil)
				base := take(t, tabs[w%2], id)
				mu.Lock()
				if other, taken := owners[base]; taken {
					t.Errorf("%s and %s both have the ids from %d on", id, other, base)
				}
				owners[base] = id
				mu.Unlock()
				if base%rangeSize != 0 || base < firstRange*rangeSize || base > lastRange*rangeSize {
					t.Errorf("range from %d on is outside what is ours", base)
				}
			}
		})
	}
	wg.Wait()
}

func TestSameIDInTwoInstancesGetsTwoRanges(t *testing.T) {
	tabs := tables(t, 2)
	const id = "sb-aaaaaaaaaaaaaaaa"
	a, b := take(t, tabs[0], id), take(t, tabs[1], id)
	if a == b {
		t.Fatalf("both instances have the ids from %d on", a)
	}
	if again, err := tabs[0].allocate(id); err != nil || again != a {
		t.Errorf("a second allocation gives %d, %v after %d", again, err, a)
	}
}

func TestRangeIsUsedAgainAfterRelease(t *testing.T) {
	tabs := tables(t, 2)
	const id = "sb-aaaaaaaaaaaaaaaa"
	base := take(t, tabs[0], id)
	if err := tabs[1].release(id, base); err != nil {
		t.Fatal(err)
	}
	if b := take(t, tabs[1], id); b == base {
		t.Fatal("another instance gave the claim away")
	}
	if err := tabs[0].release(id, base); err != nil {
		t.Fatal(err)
	}
	if b, err := tabs[0].allocate(id); err != nil || b != base {
		t.Errorf("after release the range is not used again: %d, %v", b, err)
	}
}

func TestReclaimAfterReboot(t *testing.T) {
	tabs := tables(t, 2)
	const id, other = "sb-aaaaaaaaaaaaaaaa", "sb-bbbbbbbbbbbbbbbb"
	base := take(t, tabs[0], id)
	if err := os.RemoveAll(tabs[0].dir); err != nil { // what a reboot does
		t.Fatal(err)
	}
	// Another instance has the same range, as with a copied data directory.
	dir := filepath.Join(tabs[1].owner, other)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(filepath.Join(dir, "state"), record{Version: recordVersion, IDBase: base}); err != nil {
		t.Fatal(err)
	}
	if err := tabs[1].reclaim(other, base); err != nil {
		t.Fatal(err)
	}
	err := tabs[0].reclaim(id, base)
	if sos.ErrorCode(err) != sos.CodeUnavailable {
		t.Fatalf("two sandboxes have one range: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil { // the other data directory is deleted
		t.Fatal(err)
	}
	if err := tabs[0].reclaim(id, base); err != nil {
		t.Errorf("a claim without a sandbox stands in the way: %v", err)
	}
}

func TestReservedIDsAreLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subuid")
	text := fmt.Sprintf("# comment\nme:100000:65536\nbig:%d:%d\nbad:x:y\n", idBase(firstRange), 3*rangeSize+1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := reservedIDs(path, path+"-missing")
	for r, want := range map[int]bool{1: true, 2: true, 3: false, firstRange - 1: false, firstRange: true, firstRange + 3: true, firstRange + 4: false} {
		if s.overlaps(r) != want {
			t.Errorf("range %d is reserved: %v; want %v", r, !want, want)
		}
	}
}

// TestSweptClaims: a claim whose sandbox never got files goes; those of sandboxes
// that have some, and of other instances, stay.
func TestSweptClaims(t *testing.T) {
	dir := t.TempDir()
	a := idTable{dir: filepath.Join(dir, "ids"), owner: filepath.Join(dir, "a")}
	b := idTable{dir: a.dir, owner: filepath.Join(dir, "b")}
	if err := os.MkdirAll(a.holder("sb-files"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, c := range []struct {
		t    idTable
		id   string
		stay bool
	}{{a, "sb-files", true}, {a, "sb-gone", false}, {b, "sb-foreign", true}} {
		base, err := c.t.allocate(c.id)
		if err != nil {
			t.Fatal(err)
		}
		want[a.path(rangeOf(base))] = c.stay
	}
	for range 2 {
		if err := a.sweep(); err != nil {
			t.Fatal(err)
		}
		for path, stay := range want {
			if _, err := os.Lstat(path); (err == nil) != stay {
				t.Errorf("%s: %v, want it to stay: %v", path, err, stay)
			}
		}
	}
}
