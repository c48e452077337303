package control

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/seaofsimulation/sos"
)

func TestNext(t *testing.T) {
	const yes, no = true, false
	for _, c := range []struct {
		desired               sos.Desired
		status                sos.Status
		started, running, has bool
		want                  action
	}{
		{sos.DesiredCreated, sos.StatusCreated, no, no, no, actNone},
		{sos.DesiredCreated, sos.StatusCreated, no, no, yes, actClear},
		{sos.DesiredCreated, sos.StatusCreated, no, yes, yes, actKill},
		{sos.DesiredStarted, sos.StatusQueued, no, no, no, actUndoStart},
		{sos.DesiredStarted, sos.StatusStarting, no, no, no, actUndoStart},
		{sos.DesiredStarted, sos.StatusStarting, no, yes, yes, actUndoStart},
		{sos.DesiredStarted, sos.StatusStarting, yes, yes, yes, actUndoStart},
		{sos.DesiredStarted, sos.StatusStarted, yes, yes, yes, actAdopt},
		{sos.DesiredStarted, sos.StatusStarted, yes, no, yes, actLost},
		{sos.DesiredStarted, sos.StatusStarted, yes, no, no, actLost},
		{sos.DesiredStarted, sos.StatusExited, yes, yes, yes, actAdopt},
		{sos.DesiredStarted, sos.StatusExited, yes, no, yes, actLost},
		{sos.DesiredStarted, sos.StatusFrozen, yes, yes, yes, actAdopt},
		{sos.DesiredStopped, sos.StatusStarted, yes, yes, yes, actStop},
		{sos.DesiredStopped, sos.StatusStarted, yes, no, yes, actStop},
		{sos.DesiredStopped, sos.StatusExited, yes, yes, yes, actStop},
		{sos.DesiredStopped, sos.StatusStopping, yes, yes, yes, actStop},
		{sos.DesiredStopped, sos.StatusStopping, yes, no, yes, actStop},
		{sos.DesiredStopped, sos.StatusStopped, yes, no, yes, actNone},
		{sos.DesiredStopped, sos.StatusStopped, yes, no, no, actNone},
		{sos.DesiredStopped, sos.StatusStopped, yes, yes, yes, actKill},
		{sos.DesiredStarted, sos.StatusFailed, no, no, no, actNone},
		{sos.DesiredStarted, sos.StatusFailed, no, no, yes, actClear},
		{sos.DesiredStarted, sos.StatusFailed, yes, no, yes, actNone},
		{sos.DesiredStarted, sos.StatusFailed, yes, yes, yes, actKill},
		{sos.DesiredRemoved, sos.StatusStarted, yes, yes, yes, actRemove},
		{sos.DesiredRemoved, sos.StatusCreated, no, no, no, actRemove},
		{sos.DesiredRemoved, sos.StatusStarting, no, yes, yes, actRemove},
		{sos.DesiredStopped, sos.StatusRemoving, yes, no, yes, actRemove},
	} {
		o := observed{Status: c.status, Started: c.started, Running: c.running, HasData: c.has}
		if got := next(c.desired, o); got != c.want {
			t.Errorf("next(%s, %+v) = %d, want %d", c.desired, o, got, c.want)
		}
	}
}

// TestNextConverges checks that doing what next says leads to rest from every
// state, with files of a successful start kept unless removal is wanted.
func TestNextConverges(t *testing.T) {
	statuses := []sos.Status{sos.StatusCreated, sos.StatusQueued, sos.StatusStarting, sos.StatusStarted, sos.StatusExited,
		sos.StatusFrozen, sos.StatusStopping, sos.StatusStopped, sos.StatusRemoving, sos.StatusFailed}
	desires := []sos.Desired{sos.DesiredCreated, sos.DesiredStarted, sos.DesiredStopped, sos.DesiredRemoved}
	rapid.Check(t, func(t *rapid.T) {
		desired := rapid.SampledFrom(desires).Draw(t, "desired")
		o := observed{Status: rapid.SampledFrom(statuses).Draw(t, "status"), Started: rapid.Bool().Draw(t, "started"),
			Running: rapid.Bool().Draw(t, "running"), HasData: rapid.Bool().Draw(t, "data")}
		first, hadData := o, o.HasData
		for range 4 {
			switch next(desired, o) {
			case actNone, actAdopt:
				if o.Started && hadData && !o.HasData {
					t.Fatalf("%s %+v lost its files", desired, first)
				}
				return
			case actRemove:
				return
			case actStop:
				desired, o.Status, o.Running = sos.DesiredStopped, sos.StatusStopped, false
				o.Started = true // only what was started can be stopped
			case actLost:
				o.Status, o.Running = sos.StatusFailed, false
			case actUndoStart:
				o.Running, o.Status = false, before(o.Started)
				o.HasData = o.HasData && o.Started
			case actKill:
				o.Running = false
			case actClear:
				o.HasData = false
			}
		}
		t.Fatalf("%s %+v does not come to rest: %+v", desired, first, o)
	})
}
