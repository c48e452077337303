package control

import "github.com/seaofsimulation/sos"

// observed is what is known of a sandbox: its record and what the driver says.
type observed struct {
	Status  sos.Status // recorded
	Started bool       // it has been started successfully at some time: its files are somebody's work
	Running bool       // the driver runs it
	HasData bool       // the driver has its files
}

// action is one step towards what is wanted.
type action int

const (
	actNone      action = iota
	actAdopt            // it runs as wanted: connect to its guest
	actStop             // end what runs, keep the files, record stopped
	actRemove           // delete files and records
	actLost             // it should run and does not: record failed, clean up
	actUndoStart        // a start was interrupted: clean up, back to what it was before
	actKill             // it runs and should not, its record stands: end it
	actClear            // files of a start that never succeeded: delete them
)

// next decides from what is wanted and what is observed what is to be done. Doing
// it and asking again gives actNone, or actAdopt for a sandbox that runs.
func next(desired sos.Desired, o observed) action {
	if desired == sos.DesiredRemoved || o.Status == sos.StatusRemoving {
		return actRemove
	}
	switch o.Status {
	case sos.StatusQueued, sos.StatusStarting:
		return actUndoStart
	case sos.StatusStopping:
		return actStop
	case sos.StatusStarted, sos.StatusExited, sos.StatusFrozen:
		switch {
		case desired == sos.DesiredStopped:
			return actStop
		case !o.Running:
			return actLost
		}
		return actAdopt
	}
	// created, stopped, failed: nothing of it may run.
	switch {
	case o.Running:
		return actKill
	case o.HasData && !o.Started:
		return actClear
	}
	return actNone
}

// before is the status that a start which did not succeed goes back to.
func before(startedOnce bool) sos.Status {
	if startedOnce {
		return sos.StatusStopped
	}
	return sos.StatusCreated
}

// startable says whether start is allowed in a status.
func startable(s sos.Status) bool {
	return s == sos.StatusCreated || s == sos.StatusStopped || s == sos.StatusFailed
}
