package session

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// run is one command under way.
type run struct {
	s    *Shell
	out  Output
	fifo *fifo
	scan scanner
	old  map[int]uint64 // children of bash from before: no business of this command
	send []byte         // control text that is not written yet
	tail []byte         // what the shell printed outside of the command
}

// maxTail bounds what is kept of the shell's own last words.
const maxTail = 1 << 20

// Run gives a command to bash and waits for its end: one at a time, a second
// call waits for the first. started is called when bash is about to get it, and
// not at all for a command that is refused. Cwd is changed into first, as by cd,
// and stays; Env holds for this command only. Neither can be trusted where the
// user has replaced the builtins "builtin" or "return" by functions of his own.
//
// The Exit has: reason exit with the code; exit or signal with ShellEnded when
// the shell itself ended; timeout or the reason of Interrupt without a code,
// ShellEnded only if the shell had to be killed; not_run with a Message when
// bash did not take the text; shell_broken with ShellEnded when it answered no
// more.
func (s *Shell) Run(c guest.SessionCommand, out Output, started func()) Result {
	s.runMu.Lock()
	defer s.runMu.Unlock()
	if why := check(c); why != "" {
		return notRun(why)
	}
	s.mu.Lock()
	if s.closing || s.gone() {
		s.mu.Unlock()
		r := notRun("the session's shell has ended")
		r.Exit.ShellEnded = true
		return r
	}
	s.running, s.asked = true, ""
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running = false
		s.mu.Unlock()
	}()
	if s.count > 0 && c.Cwd == "" && blank(c.Text) {
		started()
		code := s.last
		return Result{Exit: sos.Exit{ExitCode: &code, Reason: sos.EndExit}, Rest: -1}
	}
	s.count++
	return s.run(c, out, started)
}

// interruptedCode is what the next command sees as $? after one that was ended.
const interruptedCode = 128 + int(unix.SIGINT)

func notRun(why string) Result {
	return Result{Exit: sos.Exit{Reason: sos.EndNotRun, Message: why}, Rest: -1}
}

func (s *Shell) run(c guest.SessionCommand, out Output, started func()) Result {
	r := &run{s: s, out: out, scan: newScanner()}
	r.readStat() // what came between the commands belongs to none
	r.readTail()
	r.scan, r.tail = newScanner(), nil
	nonce := r.scan.nonce()
	lines, err := r.prepare(c, nonce)
	if err != nil {
		return notRun("the command cannot be put into the session's directory: " + err.Error())
	}
	defer s.dir.remove(s.fifoName(), s.stdinName())
	r.old = kids(s.child.Pid)
	var until time.Time
	if c.Timeout > 0 {
		until = time.Now().Add(c.Timeout)
	}
	started()
	r.send = []byte(lines)
	return r.end(r.await(until, true))
}

func (s *Shell) fifoName() string  { return "o" + strconv.Itoa(s.count) }
func (s *Shell) stdinName() string { return "i" + strconv.Itoa(s.count) }

// prepare makes the files of the command. Where somebody has put things in the
// way, a second try has a directory of its own.
func (r *run) prepare(c guest.SessionCommand, nonce string) (lines string, err error) {
	d := r.s.dir
	for try := range 2 {
		if try == 0 {
			err = d.ensure()
		} else if err == unix.ENOSPC {
			break
		} else {
			err = d.make()
		}
		if err != nil {
			continue
		}
		fd, e := d.fifo(r.s.fifoName())
		if err = e; err != nil {
			continue
		}
		if lines, err = r.s.compose(c, nonce); err == nil {
			r.fifo = &fifo{fd: fd, buf: r.s.buf, stray: []byte("bash: ((: 0x" + nonce)}
			return lines, nil
		}
		closeAll(fd)
		d.remove(r.s.fifoName(), r.s.stdinName())
	}
	return "", err
}

// end turns the outcome into a result.
func (r *run) end(o outcome) Result {
	s := r.s
	var reason sos.EndReason
	switch o {
	case late, told:
		if r.turn(0); r.scan.code >= 0 || s.gone() {
			break // it ended before anything was done to it: that stands
		}
		reason = sos.EndTimeout
		if o == told {
			reason = s.why()
		}
		if s.isClosing() || !r.interrupt() {
			s.kill(reason, "the command could not be ended otherwise")
		}
	case silent:
		reason = sos.EndShellBroken
		s.kill(reason, "the shell answered no more: "+orElse(r.scan.complaint(), "a trap or an option of the user keeps it from reporting"))
	}
	survivors := r.drain()
	if s.gone() {
		r.readTail()
		r.words()
	}
	res := Result{Rest: -1}
	if survivors {
		res.Rest = r.fifo.fd
	} else {
		closeAll(r.fifo.fd)
	}
	res.Exit = r.exit(reason)
	res.Exit.Survivors = survivors
	return res
}

// exit says how the command ended; reason is set when it was not by itself.
func (r *run) exit(reason sos.EndReason) (e sos.Exit) {
	s := r.s
	code := r.scan.code
	if code >= 0 && reason != sos.EndShellBroken {
		s.flags = r.scan.flags
	}
	switch {
	case s.gone() && reason == "" && code < 0:
		e = s.Exit()
	case s.gone() && reason != "":
		e.Reason, e.ShellEnded = reason, true
		if reason == sos.EndShellBroken {
			e.Message = s.Exit().Message
		}
	case reason != "":
		e.Reason = reason
		s.last = interruptedCode
	case !r.fifo.opened || s.atime && !s.dir.wasRead("cmd"):
		if s.count == 1 && r.fifo.opened {
			s.atime = false // they stand still here; the FIFO has to do
			return r.exit(reason)
		}
		e = notRun("bash did not run the command: " + orElse(r.scan.complaint(), "the way it reads commands was changed in it; a new session helps")).Exit
	default:
		e.Reason, e.ExitCode = sos.EndExit, &code
		s.last = code
	}
	return e
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// why is the reason of the one who interrupted.
func (s *Shell) why() sos.EndReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked != "" {
		return s.asked
	}
	return sos.EndCancelled // Close
}

// words passes on what the shell printed at its very end: under set -e bash
// undoes the redirections before it runs an EXIT trap.
func (r *run) words() {
	for len(r.tail) > 0 {
		if n := min(len(r.tail), r.out.Space()); n > 0 {
			r.out.Write(r.tail[:n])
			r.tail = r.tail[n:]
		} else if !r.space() {
			return
		}
	}
}

// drain passes on what the command wrote before it ended, then waits a moment
// for those who still hold its output. The result stands already: no limit ends
// the wait for space, only Close does. It says whether somebody is left.
func (r *run) drain() (survivors bool) {
	f := r.fifo
	if f.look(); !f.opened {
		f.pump(r.out, len(f.buf)) // a writer that has written nothing is seen by reading only
	}
	if !f.opened {
		return false
	}
	for need := queued(f.fd); need > 0 && !f.over; {
		n := f.pump(r.out, need)
		if need -= n; n == 0 && (r.out.Space() > len(f.held) || !r.space()) {
			break
		}
	}
	for end := time.Now().Add(guest.DrainGrace); !f.over; {
		f.pump(r.out, 1<<20)
		if f.look(); f.over {
			break
		}
		left := time.Until(end)
		if r.s.isClosing() || left <= 0 && !r.lastWriterGone() {
			break
		}
		r.rest(left)
	}
	for len(f.held) > 0 {
		if f.flush(r.out); len(f.held) > 0 && !r.space() {
			break
		}
	}
	return !f.over
}

// space waits until the record takes more; false: Close does not wait for it.
func (r *run) space() bool {
	if r.s.isClosing() {
		return false
	}
	p := []unix.PollFd{{Fd: int32(r.s.wake), Events: unix.POLLIN}}
	poll(p, -1)
	r.s.clearWake()
	return true
}

// lastWriterGone: nobody holds the output any more, but there is no space yet
// for what they left.
func (r *run) lastWriterGone() bool {
	p := []unix.PollFd{{Fd: int32(r.fifo.fd)}}
	poll(p, 0)
	return p[0].Revents&unix.POLLHUP != 0
}

func (s *Shell) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}
