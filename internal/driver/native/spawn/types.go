package spawn

import (
	"fmt"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// Hello is what a spawner says of itself.
type Hello struct {
	Protocol int      `json:"protocol"`
	Build    string   `json:"build"`
	Pid      int      `json:"pid"`
	Cgroup   string   `json:"cgroup"`   // "v1" or "v2"
	Overlay  string   `json:"overlay"`  // "fd" or "attach": how layers reach the overlay
	Features []string `json:"features"` // "cgroup-v1" or "cgroup-v2", "userns", "idmap", "freeze", "swap-limit"
}

// Create asks for a sandbox that runs.
type Create struct {
	ID        string   `json:"id"`
	RunDir    string   `json:"run_dir"`    // <run>/<id>; made when missing
	StateDir  string   `json:"state_dir"`  // holds u and w; made when missing, kept when it was there
	GuestPath string   `json:"guest_path"` // 0711 root:root
	Layers    []string `json:"layers"`     // absolute directories, lowest first
	IDBase    uint32   `json:"id_base"`    // host id of the sandbox's root; a range of IDs ids, not below 65536
	Cgroup    string   `json:"cgroup"`     // name below the instance's cgroup; empty: ID
	Limits    Limits   `json:"limits"`
	Hostname  string   `json:"hostname"` // empty: ID

	// Deadline bounds the steps of the child before it executes the guest; 0: 10 s.
	Deadline time.Duration `json:"deadline,omitempty"`
}

// Limits of a sandbox; 0 is no limit.
type Limits struct {
	CPU    float64 `json:"cpu,omitempty"`    // cores
	Memory int64   `json:"memory,omitempty"` // bytes, swap included where it is accounted
	PIDs   int     `json:"pids,omitempty"`   // tasks of the user's processes
}

// Created is a sandbox that runs.
type Created struct {
	Pid     int  `json:"pid"`     // of the guest, on the host
	Existed bool `json:"existed"` // it ran already: nothing was done

	// Pidfd is a descriptor of the guest that the caller owns (close-on-exec,
	// O_NONBLOCK). It is readable when the guest has ended.
	Pidfd int `json:"-"`
}

// Guest is a sandbox as the spawner knows it.
type Guest struct {
	ID      string `json:"id"`
	Pid     int    `json:"pid"`
	Running bool   `json:"running"`
	Foreign bool   `json:"foreign,omitempty"` // adopted: not a child of this spawner
	Exit    *Exit  `json:"exit,omitempty"`    // set when it does not run
}

// Exit is how a guest ended; also the content of <run>/<id>/exit.
type Exit struct {
	Known  bool      `json:"known"`  // false: the end was not seen
	Status int       `json:"status"` // exit status, when Signal is 0
	Signal int       `json:"signal"`
	OOM    bool      `json:"oom"`              // the kernel killed the guest for memory
	Killed bool      `json:"killed,omitempty"` // by a Kill call
	When   time.Time `json:"when"`
	Log    string    `json:"log,omitempty"` // last words, at most 4 KiB
}

// Error is a failure that the spawner tells of: a step and its cause.
type Error struct {
	Step    string `json:"step,omitempty"`  // "mount proc"; empty: Message says all
	Errno   int    `json:"errno,omitempty"` // 0: none
	Message string `json:"message"`         // a sentence
	Code    string `json:"code,omitempty"`  // one of the Code constants
}

// Codes of an Error.
const (
	CodeInvalid  = "invalid"   // the request is wrong
	CodeNotFound = "not_found" // no such sandbox
	CodeFailed   = "failed"    // a step failed; nothing of the call is left
	CodeClosing  = "closing"   // the spawner is about to end
)

func (e *Error) Error() string { return e.Message }

// Unwrap gives the errno, for errors.Is.
func (e *Error) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return syscall.Errno(e.Errno)
}

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Validate says what is wrong with a request.
func (c *Create) Validate() error {
	bad := func(format string, args ...any) error {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("create: "+format, args...)}
	}
	if !idPattern.MatchString(c.ID) {
		return bad("%q is not an id", c.ID)
	}
	if c.Cgroup != "" && !idPattern.MatchString(c.Cgroup) {
		return bad("%q is not a cgroup name", c.Cgroup)
	}
	for what, path := range map[string]string{"run_dir": c.RunDir, "state_dir": c.StateDir, "guest_path": c.GuestPath} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return bad("%s %q is not a clean absolute path", what, path)
		}
	}
	if len(c.Layers) == 0 || len(c.Layers) > MaxLayers {
		return bad("%d layers; 1 to %d are possible", len(c.Layers), MaxLayers)
	}
	for _, l := range c.Layers {
		if !filepath.IsAbs(l) {
			return bad("layer %q is not an absolute path", l)
		}
	}
	if c.IDBase < IDs || c.IDBase > 1<<32-1-IDs {
		return bad("id_base %d leaves no range of %d ids above those of the host", c.IDBase, IDs)
	}
	if len(c.Hostname) > 64 {
		return bad("host name of %d bytes; 64 are possible", len(c.Hostname))
	}
	if c.Limits.CPU < 0 || c.Limits.Memory < 0 || c.Limits.PIDs < 0 || c.Deadline < 0 {
		return bad("a negative limit")
	}
	return nil
}
