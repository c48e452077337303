// Package guest is what host and guest have in common: the vocabulary of the
// protocol between them. wire holds its frames, server the side inside the
// sandbox, client the side of the host, session the bash sessions.
//
// The guest is process 1 of its sandbox. It starts processes, reads their
// output into bounded buffers and passes it on; the host stores it and
// acknowledges. What is not acknowledged the guest keeps, so that a connection
// can be lost and made again without losing or doubling a byte. When a buffer is
// full the process blocks on its pipe like on any full pipe. Completion is the
// kernel's exit status from wait, never text and never the end of a stream.
//
// The host takes every byte from the guest as hostile.
package guest

import (
	"time"

	"github.com/seaofsimulation/sos"
)

// Protocol is the version that this build speaks; MinProtocol is the oldest
// guest that this build's host side still talks to.
const (
	Protocol    = 1
	MinProtocol = 1
)

// Limits of the protocol.
const (
	MaxFrame   = 1 << 20 // bytes of one frame
	MaxText    = 7 << 20 // bytes of a command's text, and of its stdin: both fit the 16 MiB tmpfs of the sessions
	MaxWindow  = 1 << 20 // bytes of one stream that are not acknowledged
	DrainGrace = 50 * time.Millisecond
)

// Command is a process to start. ID is chosen by the host and unique in the
// sandbox; a second start of the same ID is the same process.
type Command struct {
	ID      string
	Argv    []string
	Env     []string      // whole environment
	Cwd     string        // must exist
	User    string        // "", "name", "uid", "name:group", "uid:gid"; looked up in the sandbox's own /etc/passwd and /etc/group
	Split   bool          // stdout and stderr as two streams; else one, in order
	Stdin   []byte        // what it reads; nothing: /dev/null
	Timeout time.Duration // 0: none. At its end: TERM, Grace, KILL to all it started
	Grace   time.Duration // 0: one second
}

// SessionSpec is a bash to start.
type SessionSpec struct {
	Name string
	Env  []string
	Cwd  string
	User string
}

// SessionCommand is a text for a session. Commands of a session run one at a time
// in the order of arrival.
type SessionCommand struct {
	ID      string
	Session string
	Text    string
	Env     map[string]string // for this command only
	Cwd     string            // changed into first, as by cd
	Stdin   []byte
	Timeout time.Duration // from its start, not from its arrival; 0: none
}

// ProcessInfo is what a guest tells of a process when a host connects.
type ProcessInfo struct {
	ID      string
	Session string // empty: standalone
	Started time.Time
	// Offsets are the first bytes that the guest can still send, by stream; Ends
	// the counts of bytes read from the process so far.
	Offsets, Ends map[sos.Stream]int64
	Exited        bool
}

// Sink is where the host side puts what the guest says. Its methods are called
// from one goroutine of the client, in the order of the guest's frames; none
// may call back into the client and wait.
type Sink interface {
	// Resume says what the host has of a process that a guest holds: the number of
	// bytes by stream. keep false: the host does not want it (its record was
	// removed); the guest forgets it.
	Resume(p ProcessInfo) (offsets map[sos.Stream]int64, keep bool)
	// Started: the process runs now.
	Started(id string, at time.Time)
	// Output: data begins at offset of the stream and is valid during the call
	// only. The client acknowledges it when Output returns, whatever it returns;
	// an error is logged and counted by the sink itself.
	Output(id string, s sos.Stream, offset int64, data []byte)
	// Exited: the process ended, and all that it wrote before has been passed to
	// Output. Output of survivors may follow until Drained. The guest keeps the
	// end until Exited has returned.
	Exited(id string, e sos.Exit, at time.Time)
	// Drained: no more output of this process will come.
	Drained(id string)
	// SessionEnded: the shell is gone; a later command of that session is refused
	// by the guest with sos.CodeSessionExited until it is opened again.
	SessionEnded(session string, e sos.Exit)
}
