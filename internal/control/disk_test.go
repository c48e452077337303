package control

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
)

// full is a driver whose sandboxes write to the disk.
type full struct {
	*gate
	bytes atomic.Int64
}

func (f *full) Stats(context.Context, string) (driver.Stats, error) {
	return driver.Stats{DiskBytes: f.bytes.Add(1 << 20)}, nil
}

func TestDiskLimit(t *testing.T) {
	r := newRig(t)
	r.shutdown()
	f := &full{}
	r.boot(func(c *Config) { f.gate = c.Driver.(*gate); c.Driver = f })
	id := r.started(sos.SandboxSpec{Limits: sos.Limits{Disk: 10 << 20}})
	for _, alone := range []bool{true, false} {
		f.bytes.Store(0)
		got := r.execReq(id, sos.ExecRequest{Command: "echo a; sleep 600", Standalone: alone})
		if got.Reason != sos.EndDiskLimit || got.Exited {
			t.Errorf("standalone %v: %+v", alone, got)
		}
	}
	f.bytes.Store(-1 << 40)
	if got := r.exec(id, "sleep 0.1; echo fine"); got.Output != "fine" {
		t.Errorf("under the limit: %+v", got)
	}
}

// TestDiskLimitWithoutCommands: what an earlier command left behind goes on
// writing, so the sandbox is stopped.
func TestDiskLimitWithoutCommands(t *testing.T) {
	r := newRig(t)
	r.shutdown()
	f := &full{}
	r.boot(func(c *Config) {
		f.gate = c.Driver.(*gate)
		c.Driver, c.WatchInterval = f, time.Millisecond
	})
	id := r.started(sos.SandboxSpec{Limits: sos.Limits{Disk: 5 << 20}})
	eventually(t, "it is stopped", func() bool { return r.look(id).Status == sos.StatusStopped })
	if s := r.look(id); s.Reason != sos.ReasonDiskLimit || s.Message == "" {
		t.Errorf("stopped: %+v", s)
	}
}

// TestIdleSandboxesAreNotMeasured while the host's disk does not fill.
func TestIdleSandboxesAreNotMeasured(t *testing.T) {
	var free atomic.Int64
	free.Store(100 << 30)
	r := newRig(t)
	r.shutdown()
	f := &full{}
	var rounds atomic.Int64
	r.boot(func(c *Config) {
		f.gate = c.Driver.(*gate)
		c.Driver, c.WatchInterval = f, time.Millisecond
		c.DiskFree = func() (int64, int64, error) { rounds.Add(1); return free.Load(), 200 << 30, nil }
	})
	r.started(sos.SandboxSpec{})
	before := rounds.Load()
	eventually(t, "the watch went round", func() bool { return rounds.Load() > before+100 })
	if n := f.bytes.Load(); n != 0 {
		t.Errorf("an idle sandbox was measured %d times", n>>20)
	}
	free.Store(99 << 30)
	eventually(t, "it is measured", func() bool { return f.bytes.Load() > 0 })
}
