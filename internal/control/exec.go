package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// Limits of one command: what the kernel takes as one argument, and as all of
// arguments and environment.
const (
	maxArg  = 128<<10 - 1
	maxArgs = 1 << 20
)

// Exec implements sos.Service.
func (p *Plane) Exec(ctx context.Context, ref string, r sos.ExecRequest) (sos.ExecResult, error) {
	if err := checkExec(&r); err != nil {
		return sos.ExecResult{}, err
	}
	b, err := p.find(ctx, ref)
	if err != nil {
		return sos.ExecResult{}, err
	}
	l, err := b.running()
	if err != nil {
		return sos.ExecResult{}, err
	}
	timeout, byDefault := time.Duration(r.Timeout), false
	if timeout == 0 && p.cfg.ExecTimeout > 0 {
		timeout, byDefault = p.cfg.ExecTimeout, true
	}
	var pr *proc
	if r.Standalone {
		pr, err = l.runStandalone(ctx, r, timeout)
	} else {
		pr, err = l.runSession(ctx, r, timeout)
	}
	if err != nil {
		return sos.ExecResult{}, err
	}
	select {
	case <-pr.done:
	case <-ctx.Done(): // the command goes on and is recorded
		return sos.ExecResult{}, gone(ctx)
	}
	res, err := pr.result()
	res.DefaultTimeout = byDefault && res.TimedOut
	return res, err
}

func checkExec(r *sos.ExecRequest) error {
	invalid := func(format string, args ...any) error { return sos.Errorf(sos.CodeInvalid, format, args...) }
	switch {
	case strings.IndexByte(r.Command, 0) >= 0:
		return &sos.Error{Code: sos.CodeInvalid, Message: "command holds a NUL byte, which no shell can take", Fix: `write it as $'\0' inside printf, or pass it as stdin`}
	case r.Timeout < 0:
		return invalid("timeout is negative")
	case strings.IndexByte(r.Cwd, 0) >= 0 || strings.IndexByte(r.User, 0) >= 0:
		return invalid("cwd or user holds a NUL byte")
	case len(r.Stdin) > guest.MaxText:
		return sos.Errorf(sos.CodeTooLarge, "stdin has %d bytes; at most %d are possible", len(r.Stdin), guest.MaxText)
	case r.Standalone && r.Session != "":
		return &sos.Error{Code: sos.CodeInvalid, Message: "a standalone command runs in no session", Fix: "leave out standalone or session"}
	case !r.Standalone && r.User != "":
		return &sos.Error{Code: sos.CodeInvalid, Message: "user is for standalone commands", Fix: "set standalone, or use su in the session"}
	case !r.Standalone && len(r.Command) > guest.MaxText:
		return sos.Errorf(sos.CodeTooLarge, "command has %d bytes; at most %d are possible", len(r.Command), guest.MaxText)
	case r.Standalone && len(r.Command) > maxArg:
		return &sos.Error{Code: sos.CodeTooLarge, Message: fmt.Sprintf("command has %d bytes; a standalone command can have %d", len(r.Command), maxArg),
			Fix: "run it in the session, or pass the script as stdin of bash"}
	}
	if r.Session == "" && !r.Standalone {
		r.Session = sos.DefaultSession
	}
	return checkEnv(r.Env)
}

func checkEnv(env map[string]string) error {
	total := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return &sos.Error{Code: sos.CodeInvalid, Message: fmt.Sprintf("env has the name %q or a value that no environment can hold", k), Fix: "names are not empty and hold no =; neither holds a NUL byte"}
		}
		if len(k)+len(v)+1 > maxArg {
			return sos.Errorf(sos.CodeTooLarge, "env: %s has %d bytes; a variable can have %d", k, len(v), maxArg)
		}
		total += len(k) + len(v) + 2
	}
	if total > maxArgs {
		return sos.Errorf(sos.CodeTooLarge, "env has %d bytes; at most %d are possible", total, maxArgs)
	}
	return nil
}

// environ is the whole environment of a command, sorted by name.
func (f *facts) environ(more map[string]string) []string {
	all := maps.Clone(f.env)
	maps.Copy(all, more)
	list := make([]string, 0, len(all))
	for k, v := range all {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

// runStandalone starts a command in a shell of its own and returns when it is
// recorded and on its way to the guest.
func (l *life) runStandalone(ctx context.Context, r sos.ExecRequest, timeout time.Duration) (*proc, error) {
	if l.facts.shell == "" {
		return nil, &sos.Error{Code: sos.CodeUnsupported, Message: "the image has neither /bin/bash nor /bin/sh", Fix: "use an image with a shell"}
	}
	if err := l.takeSlot(ctx); err != nil {
		return nil, err
	}
	id, seq := l.p.newID(sos.ProcessIDPrefix), l.b.nextSeq(false)
	cmd := guest.Command{ID: id, Argv: []string{l.facts.shell, "-c", r.Command}, Env: l.facts.environ(r.Env),
		Cwd: l.facts.workdir, User: l.facts.user, Stdin: r.Stdin, Timeout: timeout}
	if r.Cwd != "" {
		cmd.Cwd = r.Cwd
	}
	if r.User != "" {
		cmd.User = r.User
	}
	pr, err := l.accept(sos.KindStandalone, id, seq, r.Command, nil, timeout)
	if err != nil {
		return nil, err
	}
	return pr, l.launch(pr, func(then func(error)) error { return l.guest.BeginStart(cmd, then) })
}

// takeSlot waits for a place among the living processes of the sandbox.
func (l *life) takeSlot(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	l.mu.Lock()
	full := l.waiting >= l.p.cfg.MaxQueue
	if !full {
		l.waiting++
	}
	l.mu.Unlock()
	if full {
		return &sos.Error{Code: sos.CodeUnavailable, Message: fmt.Sprintf("the sandbox runs %d commands and %d wait, which is the most", l.p.cfg.MaxProcesses, l.p.cfg.MaxQueue),
			Fix: "wait for some of them to end"}
	}
	defer func() {
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
	}()
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return gone(ctx)
	case <-l.ctx.Done():
		return l.failed(l.ctx.Err())
	}
}

// runSession gives a command to its session and returns when it is recorded and
// on its way to the guest.
func (l *life) runSession(ctx context.Context, r sos.ExecRequest, timeout time.Duration) (*proc, error) {
	s, err := l.sessionFor(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	return l.submit(ctx, s, sos.KindSession, r, timeout)
}

// submit queues a command in an open session. Between the number it gets and its
// sending no other command of the session comes, so that the trajectory is in the
// order of execution.
func (l *life) submit(ctx context.Context, s *session, kind sos.ProcessKind, r sos.ExecRequest, timeout time.Duration) (*proc, error) {
	select {
	case s.send <- struct{}{}:
	case <-ctx.Done():
		return nil, gone(ctx)
	case <-l.ctx.Done():
		return nil, l.failed(l.ctx.Err())
	}
	defer func() { <-s.send }()
	l.mu.Lock()
	queued, ended := len(s.queue), s.gone
	l.mu.Unlock()
	switch {
	case ended:
		return nil, errSessionExited()
	case queued > l.p.cfg.MaxQueue:
		return nil, &sos.Error{Code: sos.CodeUnavailable, Message: fmt.Sprintf("%d commands wait in the session %s, which is the most", queued-1, s.s.Name), Fix: "wait for some of them to end"}
	}
	id, seq := l.p.newID(sos.ProcessIDPrefix), l.b.nextSeq(kind == sos.KindSession)
	pr, err := l.accept(kind, id, seq, r.Command, s, timeout)
	if err != nil {
		return nil, err
	}
	cmd := guest.SessionCommand{ID: id, Session: s.s.Name, Text: r.Command, Env: r.Env, Cwd: r.Cwd, Stdin: r.Stdin, Timeout: timeout}
	return pr, l.launch(pr, func(then func(error)) error { return l.guest.BeginSession(cmd, then) })
}

// accept makes the process known, with a record for its output.
func (l *life) accept(kind sos.ProcessKind, id string, seq int64, command string, s *session, timeout time.Duration) (*proc, error) {
	rec, err := l.p.cfg.Journal.Create(l.b.id, id)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		err = internal("record output in", l.b.id, err)
	case l.closing != nil: // after finish has looked nothing may be added
		err = errors.Join(l.closing, rec.Finish())
	}
	if err != nil {
		if s == nil {
			<-l.slots
		}
		return nil, err
	}
	pr := l.newProc(id, kind, seq, l.p.cfg.Now())
	pr.rec, pr.session, pr.timeout, pr.slot = rec, s, timeout, s == nil
	pr.p.Command = command
	if s != nil {
		pr.p.Session = s.s.Name
		if len(s.queue) > 0 {
			pr.p.Status = sos.ProcessQueued
		}
		s.queue = append(s.queue, pr)
	}
	l.procs[id] = pr
	return pr, nil
}

// launch notes the process and sends it to the guest; the guest's answer is not
// waited for. What the guest refuses ends with the reason, and whoever waits for the
// process hears it then: an answer that says yes would only wake somebody who has
// to wait further.
func (l *life) launch(pr *proc, send func(then func(error)) error) error {
	l.mu.Lock()
	p := pr.p
	l.mu.Unlock()
	if err := pr.note(p); err != nil { // nothing runs without a record
		return l.refuse(pr, internal("record a process of", l.b.id, err))
	}
	err := send(func(err error) {
		if err != nil {
			l.work.spawn(func() { _ = l.refused(pr, err) }) // else the life is over, and ends it
		}
	})
	if err != nil {
		return l.refused(pr, err)
	}
	return nil
}

// refused ends a process with the guest's reason not to take it.
func (l *life) refused(pr *proc, err error) error {
	if sos.ErrorCode(err) == sos.CodeSessionExited && pr.session != nil {
		l.sessionEnded(pr.session, nil)
		return l.refuse(pr, errSessionExited())
	}
	return l.refuse(pr, l.failed(err))
}

// refuse ends a process that the guest did not take.
func (l *life) refuse(pr *proc, err error) error {
	e := ending{sos.ProcessExited, sos.Exit{Reason: sos.EndNotRun, Message: sos.ErrorMessage(err)}, err}
	switch code := sos.ErrorCode(err); {
	case code == sos.CodeSandboxStopped:
		e.exit.Reason = sos.EndSandboxStopped
	case code == sos.CodeUnavailable || code == sos.CodeInternal || code == sos.CodeSandboxLost: // it may run all the same
		e.status, e.exit.Reason = sos.ProcessLost, ""
	}
	pr.end(e, true)
	pr.drain()
	return err
}

// result is the answer to a command that has ended.
func (pr *proc) result() (sos.ExecResult, error) {
	l := pr.life
	l.mu.Lock()
	p, err := pr.p, pr.answered
	data, whole := pr.head, pr.whole
	l.mu.Unlock()
	if err != nil {
		return sos.ExecResult{Process: p.ID}, err
	}
	r := resultOf(p)
	size := answerSize(p)
	if !whole {
		data, _, err = l.p.cfg.Journal.Head(l.b.id, p.ID, sos.StreamOut, int(min(size, l.p.cfg.MaxAnswer)))
		if err != nil {
			return r, internal("read the output of", p.ID, err)
		}
	}
	r.Truncated = int64(len(data)) < size
	if r.Truncated {
		r.OutputBytes = size
	}
	r.Output = outputText(p, data, r.Truncated)
	return r, nil
}

func resultOf(p sos.Process) sos.ExecResult {
	r := sos.ExecResult{Process: p.ID, ExitCode: -1, Exited: p.ShellEnded, Message: p.Message, TimedOut: p.Reason == sos.EndTimeout,
		OOMKilled: p.OOMKilled, Survivors: p.Survivors, SessionRestarted: p.SessionRestarted}
	if p.ExitCode != nil {
		r.ExitCode = *p.ExitCode
	}
	if p.Reason != sos.EndExit {
		r.Reason = p.Reason
	}
	return r
}

// answerSize is how much the process had written when it ended: what survivors
// write later is recorded and in no answer.
func answerSize(p sos.Process) int64 {
	for _, o := range p.Output {
		if o.Stream == sos.StreamOut {
			return o.Seen
		}
	}
	return 0
}

func outputText(p sos.Process, data []byte, cut bool) string {
	if p.Kind == sos.KindSession {
		return cleanSession(data, cut)
	}
	return decode(data, cut)
}
