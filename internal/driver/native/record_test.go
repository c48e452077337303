package native

import (
	"os"
	"testing"

	"github.com/seaofsimulation/sos/internal/driver/drivertest"
)

// A record that a power loss took does not take the files with it, whoever the
// sandbox gave its root to.
func TestLostRecordIsMadeAgain(t *testing.T) {
	d := open(t, newConfig(t))
	id := newID()
	start(t, d, id)
	drivertest.Connect(t, d, id).Must(t, "echo kept > /kept; chown 1000:1000 /")
	if err := d.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	want, err := readRecord(d.dirs.record(id))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.dirs.record(id), 0); err != nil {
		t.Fatal(err)
	}
	start(t, d, id)
	if out := drivertest.Connect(t, d, id).Must(t, "cat /kept; id -u; stat -c %u /kept"); out != "kept\n0\n0\n" {
		t.Errorf("inside it is %q", out)
	}
	if got, err := readRecord(d.dirs.record(id)); err != nil || got.IDBase != want.IDBase {
		t.Errorf("record %+v, %v; want the ids from %d on", got, err, want.IDBase)
	}
}
