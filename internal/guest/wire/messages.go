package wire

import (
	"sort"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// Message is the content of a frame.
type Message interface {
	Type() Type
	fields(c *coder)
}

// Type is the kind of a frame. 14–63 and 75–127 are free for what comes later
// (stdin, terminals, files, ports).
type Type uint8

// Types of frames: requests of the host, from 64 on what the guest says.
const (
	TypeHello        Type = 1
	TypeStart        Type = 2
	TypeOpenSession  Type = 3
	TypeRunSession   Type = 4
	TypeInterrupt    Type = 5
	TypeCloseSession Type = 6
	TypeSignal       Type = 7
	TypeCancel       Type = 8
	TypeAck          Type = 9
	TypeResume       Type = 10
	TypeRelease      Type = 11
	TypeShutdown     Type = 12
	TypePing         Type = 13

	TypeHelloReply   Type = 64
	TypeHeld         Type = 65
	TypeReply        Type = 66
	TypeStarted      Type = 67
	TypeOutput       Type = 68
	TypeExited       Type = 69
	TypeDrained      Type = 70
	TypeSessionEnded Type = 71
	TypePong         Type = 72
	TypeSuperseded   Type = 73

	typeMore Type = 128
)

// Hello is the first frame of a connection. The newest hello takes over. Client is
// random, of one life of the host's client: a call whose id that client used
// before is the same call, made again because the connection broke.
type Hello struct {
	Protocol, MinProtocol int
	Build                 string
	Client                string
}

// Start starts a standalone command. The reply says that it is accepted.
type Start struct{ guest.Command }

// OpenSession starts a bash. The reply's Value is its pid.
type OpenSession struct{ guest.SessionSpec }

// RunSession queues a text. The reply says that it is queued.
type RunSession struct{ guest.SessionCommand }

// Interrupt cancels what a session runs now.
type Interrupt struct{ Session string }

// CloseSession ends a shell and forgets it.
type CloseSession struct{ Session string }

// Signal goes to the process group of a command.
type Signal struct {
	ID     string
	Number int
}

// Cancel ends a command and all that it started.
type Cancel struct {
	ID     string
	Reason sos.EndReason
	Grace  time.Duration
}

// Ack says that the host has the stream up to Offset. No reply.
type Ack struct {
	ID     string
	Stream sos.Stream
	Offset int64
}

// Resume answers a Held: what the host has. Only then does the guest send
// anything of that process on this connection. No reply.
type Resume struct {
	ID      string
	Offsets map[sos.Stream]int64
}

// Release says that the host has all of a process, or does not want it: the guest
// forgets it. No reply.
type Release struct{ ID string }

// Shutdown ends everything in the sandbox. The reply comes when only the guest is
// left, all ends and outputs were sent and the filesystem is synced.
type Shutdown struct{ Grace time.Duration }

// Ping asks for a Pong.
type Ping struct{}

// HelloReply answers Hello; Held frames follow it, one for each of Processes.
type HelloReply struct {
	Protocol  int
	Build     string
	Instance  string // random, of this run of the guest
	Processes int
}

// Held is a process that the guest has.
type Held struct{ guest.ProcessInfo }

// Reply answers a call.
type Reply struct {
	Code    sos.Code // empty: it worked
	Message string
	Value   int64
}

// Started says that a process runs.
type Started struct {
	ID string
	At time.Time
}

// Output is bytes of a stream. Data of a decoded frame belongs to the reader's
// buffer.
type Output struct {
	ID     string
	Stream sos.Stream
	Offset int64
	Data   []byte
}

// Exited is the end of a process.
type Exited struct {
	ID   string
	Exit sos.Exit
	At   time.Time
}

// Drained says that no more output comes.
type Drained struct{ ID string }

// SessionEnded says that a shell is gone. It is said again at each hello until
// the session is opened again or closed.
type SessionEnded struct {
	Session string
	Exit    sos.Exit
}

// Pong answers Ping.
type Pong struct{}

// Superseded is the last frame of a connection that a newer hello replaced.
type Superseded struct{}

func (*Hello) Type() Type        { return TypeHello }
func (*Start) Type() Type        { return TypeStart }
func (*OpenSession) Type() Type  { return TypeOpenSession }
func (*RunSession) Type() Type   { return TypeRunSession }
func (*Interrupt) Type() Type    { return TypeInterrupt }
func (*CloseSession) Type() Type { return TypeCloseSession }
func (*Signal) Type() Type       { return TypeSignal }
func (*Cancel) Type() Type       { return TypeCancel }
func (*Ack) Type() Type          { return TypeAck }
func (*Resume) Type() Type       { return TypeResume }
func (*Release) Type() Type      { return TypeRelease }
func (*Shutdown) Type() Type     { return TypeShutdown }
func (*Ping) Type() Type         { return TypePing }
func (*HelloReply) Type() Type   { return TypeHelloReply }
func (*Held) Type() Type         { return TypeHeld }
func (*Reply) Type() Type        { return TypeReply }
func (*Started) Type() Type      { return TypeStarted }
func (*Output) Type() Type       { return TypeOutput }
func (*Exited) Type() Type       { return TypeExited }
func (*Drained) Type() Type      { return TypeDrained }
func (*SessionEnded) Type() Type { return TypeSessionEnded }
func (*Pong) Type() Type         { return TypePong }
func (*Superseded) Type() Type   { return TypeSuperseded }

func (m *Hello) fields(c *coder) {
	c.int(&m.Protocol)
	c.int(&m.MinProtocol)
	c.string(&m.Build, MaxID)
	c.string(&m.Client, MaxID)
}

func (m *Start) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.strings(&m.Argv, guest.MaxText)
	c.strings(&m.Env, guest.MaxText)
	c.string(&m.Cwd, guest.MaxText)
	c.string(&m.User, 2*MaxID)
	c.bool(&m.Split)
	c.bytes(&m.Stdin, guest.MaxText)
	c.duration(&m.Timeout)
	c.duration(&m.Grace)
}

func (m *OpenSession) fields(c *coder) {
	c.string(&m.Name, MaxID)
	c.strings(&m.Env, guest.MaxText)
	c.string(&m.Cwd, guest.MaxText)
	c.string(&m.User, 2*MaxID)
}

func (m *RunSession) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.string(&m.Session, MaxID)
	c.string(&m.Text, guest.MaxText)
	m.env(c)
	c.string(&m.Cwd, guest.MaxText)
	c.bytes(&m.Stdin, guest.MaxText)
	c.duration(&m.Timeout)
}

func (m *RunSession) env(c *coder) {
	var list []string
	if !c.dec {
		for k := range m.Env {
			list = append(list, k)
		}
		sort.Strings(list)
		for i, k := range list {
			list[i] = k + "=" + m.Env[k]
		}
	}
	c.strings(&list, guest.MaxText)
	if !c.dec {
		return
	}
	m.Env = nil
	for _, kv := range list {
		k, v, ok := cut(kv)
		if !ok {
			c.fail(ErrValue)
			return
		}
		if m.Env == nil {
			m.Env = make(map[string]string, len(list))
		}
		m.Env[k] = v
	}
}

func cut(kv string) (k, v string, ok bool) {
	for i := range len(kv) {
		if kv[i] == '=' {
			return kv[:i], kv[i+1:], true
		}
	}
	return "", "", false
}

func (m *Interrupt) fields(c *coder)    { c.string(&m.Session, MaxID) }
func (m *CloseSession) fields(c *coder) { c.string(&m.Session, MaxID) }

func (m *Signal) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.int(&m.Number)
}

func (m *Cancel) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.reason(&m.Reason)
	c.duration(&m.Grace)
}

func (m *Ack) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.stream(&m.Stream)
	c.int63(&m.Offset)
}

func (m *Resume) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.offsets(&m.Offsets)
}

func (m *Release) fields(c *coder)  { c.string(&m.ID, MaxID) }
func (m *Shutdown) fields(c *coder) { c.duration(&m.Grace) }
func (*Ping) fields(*coder)         {}

func (m *HelloReply) fields(c *coder) {
	c.int(&m.Protocol)
	c.string(&m.Build, MaxID)
	c.string(&m.Instance, MaxID)
	c.int(&m.Processes)
}

func (m *Held) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.string(&m.Session, MaxID)
	c.time(&m.ProcessInfo.Started)
	c.offsets(&m.Offsets)
	c.offsets(&m.Ends)
	c.bool(&m.ProcessInfo.Exited)
}

func (m *Reply) fields(c *coder) {
	c.code(&m.Code)
	c.string(&m.Message, MaxMessage)
	c.int63(&m.Value)
}

func (m *Started) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.time(&m.At)
}

func (m *Output) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.stream(&m.Stream)
	c.int63(&m.Offset)
	c.view(&m.Data, guest.MaxFrame)
}

func (m *Exited) fields(c *coder) {
	c.string(&m.ID, MaxID)
	c.exit(&m.Exit)
	c.time(&m.At)
}

func (m *Drained) fields(c *coder) { c.string(&m.ID, MaxID) }

func (m *SessionEnded) fields(c *coder) {
	c.string(&m.Session, MaxID)
	c.exit(&m.Exit)
}

func (*Pong) fields(*coder)       {}
func (*Superseded) fields(*coder) {}
