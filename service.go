package sos

import (
	"context"
	"io"
)

// Service is everything that a front end can ask for. References (ref) are ids,
// unique prefixes of ids, or names. All methods are safe for concurrent use, end
// when ctx does, and return *Error. Work that was begun for a caller that went
// away is finished and recorded all the same, except where said.
type Service interface {
	Sandboxes
	Commands
	Images
	// Info never fails on a sick host: it says what is wrong.
	Info(ctx context.Context) (Info, error)
}

// Sandboxes is the life cycle of sandboxes.
type Sandboxes interface {
	// CreateSandbox records a sandbox and returns it at once; nothing is started.
	// A name that is taken gives the existing sandbox, Reconnected, when every
	// field that spec names is equal; else CodeConflict.
	CreateSandbox(ctx context.Context, spec SandboxSpec) (Sandbox, error)
	GetSandbox(ctx context.Context, ref string) (Sandbox, error)
	// ListSandboxes gives them in order of creation and waits for no sandbox.
	ListSandboxes(ctx context.Context, f SandboxFilter) ([]Sandbox, error)
	// StartSandbox waits for admission (FIFO), starts the sandbox, runs its set-up
	// commands at the first start, and returns when it takes commands. Unknown
	// refs and wrong states answer before any wait. A caller that goes away while
	// queued leaves the queue; one that goes away later ends nothing.
	StartSandbox(ctx context.Context, ref string) (Sandbox, error)
	// StopSandbox ends all processes and keeps the files; with Remove it also
	// deletes them. Stopping what does not run is no error.
	StopSandbox(ctx context.Context, ref string, r StopRequest) (Sandbox, error)
	// RemoveSandbox stops and deletes; CodeNotFound when there is none.
	RemoveSandbox(ctx context.Context, ref string) error
}

// Commands is what runs in a sandbox, and its records.
type Commands interface {
	// Exec runs a command and waits for its end. A command that ended, however it
	// ended, is a result; an error means that there is none.
	Exec(ctx context.Context, ref string, r ExecRequest) (ExecResult, error)
	ListSessions(ctx context.Context, ref string) ([]Session, error)
	CreateSession(ctx context.Context, ref, name string) (Session, error)
	RemoveSession(ctx context.Context, ref, name string) error
	// InterruptSession ends what the session runs now; the session survives.
	InterruptSession(ctx context.Context, ref, name string) error
	Trajectory(ctx context.Context, ref string) (Trajectory, error)
	ListProcesses(ctx context.Context, ref string, f ProcessFilter) ([]Process, error)
	GetProcess(ctx context.Context, ref, id string) (Process, error)
	// ReadOutput copies a stream of a process from offset to w; with follow it
	// goes on until the stream has ended or ctx is done. It returns the offset
	// after the last byte written.
	ReadOutput(ctx context.Context, ref, id string, stream Stream, offset int64, follow bool, w io.Writer) (int64, error)
}

// Images is the image store.
type Images interface {
	ListImages(ctx context.Context) ([]Image, error)
	GetImage(ctx context.Context, ref string) (Image, error)
	PullImage(ctx context.Context, ref string, progress func(Progress)) (Image, error)
	// ImportImage reads a rootfs tar, a docker-save or OCI archive, plain or
	// compressed by gzip or zstd, and gives it name (which may be empty where the
	// archive names its image).
	ImportImage(ctx context.Context, r io.Reader, name string, progress func(Progress)) (Image, error)
	RemoveImage(ctx context.Context, ref string) error
}

// Info is what a server says of itself.
type Info struct {
	Version      string  `json:"version"`
	Commit       string  `json:"commit,omitempty"`
	Instance     string  `json:"instance"`
	Healthy      bool    `json:"healthy"`
	Driver       string  `json:"driver"`
	Checks       []Check `json:"checks,omitempty"` // what the driver needs of this host
	MaxSandboxes int     `json:"max_sandboxes"`
	Running      int     `json:"running"`
	Queued       int     `json:"queued"`
}

// Check is one thing that was looked at, with what to do when it fails.
type Check struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Message string `json:"message,omitempty"`
	Fix     string `json:"fix,omitempty"`
}
