package session

import (
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// Config says how to open a session.
type Config struct {
	// Dir is a tmpfs directory of the guest (0711, relatime), in which every
	// session makes one of its own. Its path is of letters, digits and "/._-".
	Dir  string
	Host Host
	Spec guest.SessionSpec
	// Bash is the path of bash; "" looks in the usual places and on PATH.
	Bash string
	// StartLimit bounds the start files; 0: 10 s. Files that take longer, or that
	// end the shell, cost one restart without them.
	StartLimit time.Duration
}

// Shell is one bash with what is needed to talk to it. It runs one command at a
// time; the queue is the guest's.
type Shell struct {
	cfg      Config
	bash     string
	version  int // 502 is bash 5.2
	note     string
	dir      *dir
	child    Child
	pidfd    int
	ctl      int // bash reads it as descriptor 0
	stat     int // bash's first stderr
	tail     int // bash's first stdout
	null     int
	wake     int  // eventfd: Wake, Interrupt, Close
	atime    bool // access times move
	noPeek   bool // /proc/PID/syscall is refused: another user's shell
	statOver bool // end of file on stat, tail, ctl
	tailOver bool
	ctlOver  bool
	buf      []byte

	runMu sync.Mutex // held by Run; guards the rest of this block
	count int        // of commands
	last  int        // the status that the next command sees as $?
	risky bool       // the last text may have had broken text inside
	flags string     // $- after the last command, "Q" in posix mode

	mu      sync.Mutex // guards what follows
	running bool
	asked   sos.EndReason // Interrupt: why the running command has to end
	closing bool
	exit    sos.Exit // Reason, Message: why we ended the shell; else empty
}

// Result is the end of one command.
type Result struct {
	Exit sos.Exit
	// Rest is the reading end of the command's FIFO when something that it
	// started still holds it, else -1. It belongs to the caller.
	Rest int
}

// Pid is the process id of the shell.
func (s *Shell) Pid() int { return s.child.Pid }

// Note says what was unusual at the start, in a sentence, or is empty.
func (s *Shell) Note() string { return s.note }

// Ended is closed when the shell has ended, whatever the reason.
func (s *Shell) Ended() <-chan struct{} { return s.child.Done }

// Exit is the end of the shell itself; it blocks until Ended. Where the session
// ended the shell, Reason and Message say why.
func (s *Shell) Exit() sos.Exit {
	<-s.child.Done
	e := exitOf(s.child.Status())
	e.ShellEnded = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exit.Reason != "" {
		e.Reason, e.Message = s.exit.Reason, s.exit.Message
	}
	return e
}

// exitOf is what the kernel said.
func exitOf(ws syscall.WaitStatus) (e sos.Exit) {
	code := ws.ExitStatus()
	e.Reason = sos.EndExit
	if ws.Signaled() {
		code = 128 + int(ws.Signal())
		e.Reason = sos.EndSignal
		if e.Signal = unix.SignalName(ws.Signal()); e.Signal == "" {
			e.Signal = "signal " + strconv.Itoa(int(ws.Signal()))
		}
	}
	e.ExitCode = &code
	return e
}

// Interrupt ends what the shell runs now, with reason; nothing when it runs
// nothing. The shell survives where bash allows it. It does not wait.
func (s *Shell) Interrupt(reason sos.EndReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running && s.asked == "" {
		s.asked = reason
		s.poke()
	}
}

// Wake says that the Output of the running command has space again.
func (s *Shell) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poke()
}

// poke ends the wait of the running command; s.mu is held.
func (s *Shell) poke() {
	if s.wake >= 0 {
		one := [8]byte{1: 1} // any number but 0, in either byte order
		unix.Write(s.wake, one[:])
	}
}

// Close ends the shell with everything in it and gives back what it held. A
// running command ends as cancelled.
func (s *Shell) Close() {
	s.mu.Lock()
	s.closing = true
	s.poke()
	s.mu.Unlock()
	s.runMu.Lock() // the running command has returned
	defer s.runMu.Unlock()
	s.kill(sos.EndCancelled, "the session was closed")
	s.release()
}

// release gives back descriptors and directory; a second time it does nothing.
func (s *Shell) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.ctl, s.stat, s.tail, s.pidfd, s.null, s.wake)
	s.ctl, s.stat, s.tail, s.pidfd, s.null, s.wake = -1, -1, -1, -1, -1, -1
	if s.dir != nil {
		s.dir.close()
	}
}

// gone says whether the status of the shell is known.
func (s *Shell) gone() bool {
	select {
	case <-s.child.Done:
		return true
	default:
		return false
	}
}

// kill ends the shell and everything below it. The first reason given stays.
// Bash is stopped while its tree is taken down: it cannot start more, and its
// orphans do not leave the tree.
func (s *Shell) kill(reason sos.EndReason, message string) {
	if s.gone() {
		return
	}
	s.mu.Lock()
	if s.exit.Reason == "" {
		s.exit.Reason, s.exit.Message = reason, message
	}
	s.mu.Unlock()
	s.signal(unix.SIGSTOP)
	killAll(func() []process { return tree(s.child.Pid, nil) })
	s.signal(unix.SIGKILL)
	<-s.child.Done
}

// signal goes to bash itself, by its pidfd: never to a stranger with its pid.
func (s *Shell) signal(sig unix.Signal) { unix.PidfdSendSignal(s.pidfd, sig, nil, 0) }
