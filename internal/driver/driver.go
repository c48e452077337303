// Package driver is the contract between the control plane and what starts
// sandboxes. A driver does as little as possible: it starts a sandbox with our
// guest in it and hands back a byte stream to that guest. Processes, sessions,
// files and ports are the guest's, written once for every driver.
//
// A driver owns everything of a sandbox on the host: writable layer, namespaces,
// cgroups, run directory. It keeps enough on disk to find all of it again after
// its process was killed at any point. The suite in drivertest holds for every
// driver.
package driver

import (
	"context"
	"net"
	"time"

	"github.com/seaofsimulation/sos"
)

// Driver starts and ends sandboxes. All methods are idempotent by id, safe for
// concurrent use (calls for one id are serialised inside), end with ctx, and
// return *sos.Error where the cause is one that a user can act on
// (sos.CodeUnavailable with Fix for a host that lacks something,
// sos.CodeStartFailed with the failed step otherwise).
type Driver interface {
	// Info says what the driver can do on this host and what is missing.
	Info(ctx context.Context) Info

	// Start makes the sandbox run: its writable layer is made unless there is one
	// (files of an earlier run are kept), then namespaces, limits and guest. It
	// returns when Dial would reach the guest. A sandbox that runs already gives
	// nil. On failure nothing of this call is left, and the writable layer is left
	// only if it was there before.
	Start(ctx context.Context, id string, s Spec) error

	// Stop ends every process of the sandbox at once (SIGKILL; the guest's own
	// Shutdown is for the gentle way) and gives back everything but the writable
	// layer, which is synced to disk. Nil when it does not run or is unknown.
	Stop(ctx context.Context, id string) error

	// Remove stops, and deletes the writable layer. It returns when the sandbox is
	// gone from List; the deletion of files may go on in the background, surely
	// (a crash does not lose it). Nil when there is none.
	Remove(ctx context.Context, id string) error

	// List gives every sandbox of this driver's instance that has a writable layer
	// or runs, from the host's own state: the start of every recovery.
	List(ctx context.Context) ([]Status, error)

	// Wait blocks until the sandbox does not run (any more) and says how its guest
	// ended. It may be called any number of times, and by a server that did not
	// start the sandbox.
	Wait(ctx context.Context, id string) (Exit, error)

	// Dial opens a byte stream to the guest. CodeNotStarted when it does not run.
	Dial(ctx context.Context, id string) (net.Conn, error)
}

// Optional abilities are found by type assertion.

// Killer ends a sandbox at once, without seeing to its files: for one that is about
// to be removed. Nil when it does not run. How it ended is kept no longer than until
// the next call.
type Killer interface {
	Kill(ctx context.Context, id string) error
}

// Freezer stops and continues all user processes of a sandbox; the guest goes on.
type Freezer interface {
	Freeze(ctx context.Context, id string) error
	Thaw(ctx context.Context, id string) error
}

// Statser reads what a sandbox uses now.
type Statser interface {
	Stats(ctx context.Context, id string) (Stats, error)
}

// Spec is what a driver needs to know to start a sandbox.
type Spec struct {
	Image    Image
	Hostname string     // inside
	Limits   sos.Limits // all fields set
}

// Image is an unpacked image.
type Image struct {
	Digest string
	Layers []string // absolute host directories, lowest first; never written to
}

// Status is a sandbox as the driver finds it.
type Status struct {
	ID      string
	Running bool
	HasData bool // there is a writable layer
}

// Exit is how a guest ended.
type Exit struct {
	Known   bool   // false: nobody saw it (host reboot, lost record)
	Code    int    // exit status of the guest
	Signal  int    // signal that ended it, or 0
	OOM     bool   // the kernel killed the guest for memory
	Message string // last words of the guest, for people and the log
	Stopped bool   // by Stop or Remove
}

// Stats is what a sandbox uses.
type Stats struct {
	CPU       time.Duration // since its start
	Memory    int64         // bytes now
	PeakMem   int64         // bytes
	PIDs      int
	OOMKills  int64 // processes the kernel killed for memory
	DiskBytes int64 // of the writable layer; -1 unknown
}

// Info describes a driver on this host.
type Info struct {
	Name      string
	Checks    []sos.Check // everything it needs; a failed one makes it unhealthy
	DiskLimit string      // which disk limit is in force: "watched", "none"
	Features  []string    // "userns", "idmap", "cgroup-v1", "cgroup-v2", "freeze", …
}

// Healthy says whether every check passed.
func (i Info) Healthy() bool {
	for _, c := range i.Checks {
		if !c.OK {
			return false
		}
	}
	return true
}
