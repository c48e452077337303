package native

import (
	"testing"

	"github.com/seaofsimulation/sos/internal/driver/drivertest"
)

// Space that a sandbox takes behind the back of a walk over its files counts: a
// file without a name that is still open.
func TestStatsCountFilesWithoutNames(t *testing.T) {
	d := open(t, newConfig(t))
	id := newID()
	start(t, d, id)
	sh := drivertest.Connect(t, d, id)
	disk := func() int64 {
		t.Helper()
		s, err := d.Stats(t.Context(), id)
		if err != nil || s.DiskBytes < 0 {
			t.Fatalf("stats %+v, %v", s, err)
		}
		return s.DiskBytes
	}
	before := disk()
	const size = 8 << 20
	holder := sh.Begin(t, "exec 9>/big; rm /big; head -c 8388608 /dev/zero >&9; echo written > /done; sleep 1000")
	eventually(t, "the file is written", func() bool { _, code := sh.Run(t, "cat /done"); return code == 0 })
	eventually(t, "it counts", func() bool { return disk() >= before+size })
	if err := sh.Client.Signal(t.Context(), holder, 9); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it does not count when it is gone", func() bool { return disk() < before+size })
	// Memory files and /dev/shm are the memory limit's.
	sh.Begin(t, "exec 9>/dev/shm/big; rm /dev/shm/big; head -c 8388608 /dev/zero >&9; echo > /done2; sleep 1000")
	eventually(t, "the file is written", func() bool { _, code := sh.Run(t, "cat /done2"); return code == 0 })
	if n := disk(); n >= before+size {
		t.Errorf("memory counts as disk: %d bytes after %d", n, before)
	}
}

// The cache gives what was counted last while nothing changed, and no longer.
func TestDiskUsageFollowsWrites(t *testing.T) {
	d := open(t, newConfig(t))
	id := newID()
	start(t, d, id)
	sh := drivertest.Connect(t, d, id)
	var last int64
	for range 3 {
		s, err := d.Stats(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		last = s.DiskBytes
		sh.Must(t, "head -c 1048576 /dev/zero >> /grows; sync /grows")
		eventually(t, "the written megabyte counts", func() bool {
			s, err := d.Stats(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return s.DiskBytes >= last+1<<20
		})
	}
}

func BenchmarkStartRemove(b *testing.B) {
	d := open(b, newConfig(b))
	for b.Loop() {
		id := newID()
		start(b, d, id)
		if err := d.Remove(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
}
