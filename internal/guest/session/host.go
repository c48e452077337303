package session

import "syscall"

// Host starts processes the guest's way. A session never waits for a process
// itself: the guest has one reaper, and a second one would steal its statuses.
type Host interface {
	// Fork starts a process: own session (setsid), member of the sandbox's
	// cgroup, every signal at its default, user switched. It returns when the
	// program runs or could not be started. An *sos.Error is passed on as it is.
	Fork(f Fork) (Child, error)
}

// Fork says what to start.
type Fork struct {
	Path string   // of the program
	Argv []string // with the name
	Env  []string // whole environment
	Cwd  string   // "": that of the guest
	User string   // as guest.Command.User
	// Files become descriptors 0, 1 and 2; all others are closed.
	Files [3]int
	// Subreaper: orphans among its descendants become its children
	// (PR_SET_CHILD_SUBREAPER, which survives exec).
	Subreaper bool
}

// Child is a started process.
type Child struct {
	Pid    int
	Done   <-chan struct{}           // closed when the reaper has its status
	Status func() syscall.WaitStatus // valid after Done
}

// Output is the recorded stream of one command. Its methods are called by the
// goroutine that is in Run only.
type Output interface {
	// Space is the number of bytes that Write takes now. At 0 the session stops
	// reading the command's output until Shell.Wake.
	Space() int
	// Write takes p, which is never longer than Space was, and does not keep it.
	Write(p []byte)
}
