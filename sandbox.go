package sos

import "time"

// Status is what was observed of a sandbox.
type Status string

const (
	StatusCreated  Status = "created"  // known; nothing runs and nothing is on disk
	StatusQueued   Status = "queued"   // start asked for; waits for admission
	StatusStarting Status = "starting" // being started; set-up commands run
	StatusStarted  Status = "started"  // runs commands
	StatusExited   Status = "exited"   // its default session ended; the sandbox lives
	StatusFrozen   Status = "frozen"   // keeps its memory, uses no CPU
	StatusStopping Status = "stopping" // its processes are being ended
	StatusStopped  Status = "stopped"  // nothing runs; the files are kept
	StatusRemoving Status = "removing" // files and records are being deleted
	StatusFailed   Status = "failed"   // the last start failed, or its guest was lost; see Reason
)

// Running says whether a sandbox in this status has a guest that takes commands.
func (s Status) Running() bool { return s == StatusStarted || s == StatusExited }

// Desired is what is wanted of a sandbox; the reconciler closes the difference.
type Desired string

const (
	DesiredCreated Desired = "created"
	DesiredStarted Desired = "started"
	DesiredStopped Desired = "stopped"
	DesiredRemoved Desired = "removed"
)

// Reason is a stable word for why a sandbox is in its status.
type Reason string

const (
	ReasonUser        Reason = "user"         // somebody asked for it
	ReasonIdle        Reason = "idle"         // idle_timeout passed without activity
	ReasonTimeout     Reason = "timeout"      // its absolute lifetime ended
	ReasonMaxCost     Reason = "max_cost"     // its cost cap was reached
	ReasonOOM         Reason = "oom"          // it ran out of memory
	ReasonSetupFailed Reason = "setup_failed" // a set-up command failed
	ReasonImageFailed Reason = "image_failed" // its image could not be used
	ReasonStartFailed Reason = "start_failed" // the driver could not start it
	ReasonServerLimit Reason = "server_limit" // waits: max_sandboxes or memory of the host
	ReasonLost        Reason = "lost"         // its guest ended unasked (host reboot, kill, crash)
	ReasonDiskLimit   Reason = "disk_limit"   // something in the background wrote beyond its disk limit
	ReasonShutdown    Reason = "shutdown"     // the server was told to stop its sandboxes
)

// Limits of a sandbox: ceilings, not reservations. Zero means the default.
type Limits struct {
	CPU    float64 `json:"cpu,omitempty"`    // cores, default 1
	Memory Size    `json:"memory,omitempty"` // bytes, default 2Gi
	Disk   Size    `json:"disk,omitempty"`   // bytes of its writable files, default 10Gi
	PIDs   int     `json:"pids,omitempty"`   // tasks, default 1024
}

// DefaultLimits are the limits of a sandbox that names none.
var DefaultLimits = Limits{CPU: 1, Memory: 2 << 30, Disk: 10 << 30, PIDs: 1024}

// WithDefaults fills the zero fields.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits
	if l.CPU == 0 {
		l.CPU = d.CPU
	}
	if l.Memory == 0 {
		l.Memory = d.Memory
	}
	if l.Disk == 0 {
		l.Disk = d.Disk
	}
	if l.PIDs == 0 {
		l.PIDs = d.PIDs
	}
	return l
}

// SandboxSpec is what a sandbox was created with.
type SandboxSpec struct {
	Name          string            `json:"name,omitempty"`
	Image         string            `json:"image"`
	SetupCommands []string          `json:"setup_commands"`
	Limits                          // cpu, memory, disk, pids
	Env           map[string]string `json:"env,omitempty"`
	Workdir       string            `json:"workdir,omitempty"` // default: the image's WORKDIR, else /
	User          string            `json:"user,omitempty"`    // default: the image's USER, else root
	Labels        map[string]string `json:"labels,omitempty"`
	Timeout       Duration          `json:"timeout,omitempty"`       // absolute lifetime while it runs; 0: the server's default
	StartTimeout  Duration          `json:"start_timeout,omitempty"` // longest wait for admission; 0: the server's default
}

// Sandbox is a sandbox as clients see it.
type Sandbox struct {
	ID  string `json:"id"`
	Seq int64  `json:"-"` // creation order; lists are sorted by it
	SandboxSpec
	Status        Status  `json:"status"`
	Desired       Desired `json:"-"`
	Reason        Reason  `json:"reason,omitempty"`
	Message       string  `json:"message,omitempty"`        // a sentence on Reason for people
	QueuePosition int     `json:"queue_position,omitempty"` // 1 is next; 0: not queued
	ImageDigest   string  `json:"image_digest,omitempty"`   // what Image meant at the first start

	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at,omitempty"` // of the last start
	StoppedAt *time.Time `json:"stopped_at,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // when Timeout stops it

	SessionCommandCount    int    `json:"session_command_count"`     // recorded commands of its sessions
	LastStandaloneExitCode *int   `json:"last_standalone_exit_code"` // of the last standalone or set-up command
	Reconnected            bool   `json:"reconnected,omitempty"`     // create found it by its name
	DiskLimit              string `json:"disk_limit,omitempty"`      // which disk limit is in force: "watched", …
}

// SandboxFilter selects sandboxes; zero fields select all.
type SandboxFilter struct {
	Status []Status
	Labels map[string]string // all must be equal
}

// StopRequest says what stop does beyond ending the processes.
type StopRequest struct {
	Remove bool     `json:"remove"`          // also delete files and records
	Grace  Duration `json:"grace,omitempty"` // between TERM and KILL; 0: the server's default
}
