package sos

import "time"

// ProcessKind says how a process was started.
type ProcessKind string

const (
	KindStandalone ProcessKind = "standalone" // a command of its own shell
	KindSession    ProcessKind = "session"    // a command of a session
	KindSetup      ProcessKind = "setup"      // a set-up command, run at the first start
)

// ProcessStatus is the state of a recorded process.
type ProcessStatus string

const (
	ProcessQueued  ProcessStatus = "queued"  // waits for its session or its sandbox
	ProcessRunning ProcessStatus = "running" // started, its end not seen
	ProcessExited  ProcessStatus = "exited"  // its end was seen: EndReason tells how
	ProcessLost    ProcessStatus = "lost"    // its end was not seen and will not be
)

// EndReason says why an exited process ended. Each kind of end has its own word;
// none is ever guessed.
type EndReason string

const (
	EndExit           EndReason = "exit"            // it exited by itself
	EndSignal         EndReason = "signal"          // a signal ended it
	EndTimeout        EndReason = "timeout"         // its timeout ended it
	EndOOM            EndReason = "oom"             // the kernel killed it for memory
	EndCancelled      EndReason = "cancelled"       // somebody cancelled it
	EndDiskLimit      EndReason = "disk_limit"      // the sandbox's disk limit ended it
	EndSandboxStopped EndReason = "sandbox_stopped" // the sandbox was stopped or removed
	EndSpawnFailed    EndReason = "spawn_failed"    // it never ran: Message says why
	EndNotRun         EndReason = "not_run"         // its session refused the text: Message says why
	EndShellBroken    EndReason = "shell_broken"    // its session answered no more and was ended
)

// Exit is the end of a process.
type Exit struct {
	ExitCode   *int      `json:"exit_code"`             // what the kernel gave; 128+n for signal n; null when there is none
	Signal     string    `json:"signal,omitempty"`      // "SIGKILL", …
	Reason     EndReason `json:"reason,omitempty"`      // empty while it runs
	Message    string    `json:"message,omitempty"`     // why it did not run
	OOMKilled  bool      `json:"oom_killed,omitempty"`  // the kernel killed something of this sandbox for memory meanwhile
	ShellEnded bool      `json:"shell_ended,omitempty"` // the session's shell ended with it
	Survivors  bool      `json:"survivors,omitempty"`   // something it started still holds its output open
}

// Output counts the bytes of one recorded stream.
type Output struct {
	Stream    Stream `json:"stream"`
	Bytes     int64  `json:"bytes"`               // recorded
	Seen      int64  `json:"seen"`                // written by the process, recorded or not
	Truncated bool   `json:"truncated,omitempty"` // Seen > Bytes
}

// Stream names an output of a process.
type Stream string

const (
	StreamOut    Stream = "out"    // stdout and stderr in the order of writing
	StreamStdout Stream = "stdout" // recorded apart
	StreamStderr Stream = "stderr"
)

// Process is one recorded command.
type Process struct {
	ID        string        `json:"id"`
	Seq       int64         `json:"seq"` // order within the sandbox, from 1
	Sandbox   string        `json:"sandbox"`
	Kind      ProcessKind   `json:"kind"`
	Session   string        `json:"session,omitempty"`
	Command   string        `json:"command,omitempty"`
	Argv      []string      `json:"argv,omitempty"`
	Status    ProcessStatus `json:"status"`
	CreatedAt time.Time     `json:"created_at"`
	StartedAt *time.Time    `json:"started_at,omitempty"`
	EndedAt   *time.Time    `json:"ended_at,omitempty"`
	// SinceStart is the time from the end of the sandbox's start to the moment
	// the command was accepted, on the monotonic clock: the trajectory's timestamp.
	SinceStart Duration `json:"since_start"`
	Exit
	// SessionRestarted: it ran in a new shell because the session's had ended.
	SessionRestarted bool     `json:"session_restarted,omitempty"`
	Output           []Output `json:"output,omitempty"`
}

// ProcessFilter selects processes of one sandbox; zero fields select all.
type ProcessFilter struct {
	Kinds    []ProcessKind
	Session  string
	Statuses []ProcessStatus
}

// DefaultSession is the session that Exec uses when none is named.
const DefaultSession = "default"

// Session is a persistent bash in a sandbox.
type Session struct {
	Name      string     `json:"name"`
	Sandbox   string     `json:"sandbox"`
	Status    string     `json:"status"` // "running" or "exited"
	ExitCode  *int       `json:"exit_code"`
	CreatedAt time.Time  `json:"created_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Running   string     `json:"running,omitempty"` // id of the process it runs now
	Queued    int        `json:"queued,omitempty"`  // commands that wait
}

// ExecRequest is a command to run and wait for.
type ExecRequest struct {
	Command    string            `json:"command"`
	Standalone bool              `json:"standalone,omitempty"` // in a shell of its own, not in the session
	Session    string            `json:"session,omitempty"`    // default "default"
	Timeout    Duration          `json:"timeout,omitempty"`    // 0: the server's default (none)
	Env        map[string]string `json:"env,omitempty"`        // standalone: added to the environment; session: for this command only
	Cwd        string            `json:"cwd,omitempty"`        // standalone: working directory; session: changed into first, as by cd, and stays
	User       string            `json:"user,omitempty"`       // standalone only
	Stdin      []byte            `json:"stdin,omitempty"`      // default: /dev/null
}

// ExecResult is the answer to an ExecRequest.
type ExecResult struct {
	Process  string `json:"-"`         // id of the recorded process
	ExitCode int    `json:"exit_code"` // -1 when there is none: see Reason
	Exited   bool   `json:"exited"`    // the session's shell has ended
	// Output is text: session output without escape sequences and trailing white
	// space, standalone output as it is; bytes that are not UTF-8 as U+FFFD.
	Output           string    `json:"output"`
	Reason           EndReason `json:"reason,omitempty"` // empty for "exit"
	Message          string    `json:"message,omitempty"`
	TimedOut         bool      `json:"timed_out,omitempty"`
	DefaultTimeout   bool      `json:"-"` // the timeout was the server's, not the request's
	OOMKilled        bool      `json:"oom_killed,omitempty"`
	Survivors        bool      `json:"survivors,omitempty"`
	SessionRestarted bool      `json:"session_restarted,omitempty"`
	Truncated        bool      `json:"truncated,omitempty"`    // Output holds only the beginning
	OutputBytes      int64     `json:"output_bytes,omitempty"` // written in all, where Truncated
}

// TrajectoryEntry is one command of a trajectory.
type TrajectoryEntry struct {
	Index     int     // from 0
	Process   Process // Command, SinceStart, Exit, …
	HasResult bool    // its end was seen
	Output    string  // cleaned as in ExecResult
}

// Trajectory is the ordered commands of a sandbox's sessions.
type Trajectory struct {
	Sandbox string
	Entries []TrajectoryEntry
}
