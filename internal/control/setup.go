package control

import (
	"context"
	"strings"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// setupSession is the shell of the set-up commands: one for all, so that cd
// carries over from one to the next, and not the one that users get.
const setupSession = "setup"

// maxSetupOutput is how much of the output a failed set-up's message holds.
const maxSetupOutput = 64 << 10

// plainSetup runs all commands in one sh, for images without bash.
const plainSetup = `for sos_setup do eval "$sos_setup" || exit; done`

// setup runs the set-up commands of a first start one by one and stops at the
// first that fails. What they leave in the background goes on.
func (l *life) setup(ctx context.Context, commands []string) error {
	s, err := l.open(setupSession)
	if err == nil {
		err = s.wait(ctx)
	}
	if sos.ErrorCode(err) == sos.CodeUnsupported && l.facts.shell != "" {
		return l.setupPlain(ctx, commands)
	}
	if err != nil {
		return l.failed(err)
	}
	var out strings.Builder
	// The first system's set-up had pipefail off, its sessions on.
	if err := l.aside(ctx, s, "set +o pipefail"); err != nil {
		return err
	}
	for _, c := range commands {
		pr, err := l.submit(ctx, s, sos.KindSetup, sos.ExecRequest{Command: c}, l.p.cfg.ExecTimeout)
		if err != nil {
			return l.failed(err)
		}
		p, err := l.setupEnd(ctx, pr, &out)
		if err != nil {
			return err
		}
		if p.ShellEnded { // exit 0: the rest is not wanted
			l.b.setLastStandalone(p.ExitCode)
			return nil
		}
	}
	code := 0
	l.b.setLastStandalone(&code)
	l.leave(ctx, s)
	return nil
}

// setupPlain is setup with a shell that is no session.
func (l *life) setupPlain(ctx context.Context, commands []string) error {
	if err := l.takeSlot(ctx); err != nil {
		return err
	}
	id, seq := l.p.newID(sos.ProcessIDPrefix), l.b.nextSeq(false)
	pr, err := l.accept(sos.KindSetup, id, seq, strings.Join(commands, "\n"), nil, l.p.cfg.ExecTimeout)
	if err != nil {
		return err
	}
	cmd := guest.Command{ID: id, Argv: append([]string{l.facts.shell, "-c", plainSetup, "sh"}, commands...), Env: l.facts.environ(nil),
		Cwd: l.facts.workdir, User: l.facts.user, Timeout: l.p.cfg.ExecTimeout}
	if err := l.launch(pr, func(then func(error)) error { return l.guest.BeginStart(cmd, then) }); err != nil {
		return err
	}
	var out strings.Builder
	p, err := l.setupEnd(ctx, pr, &out)
	if err == nil {
		l.b.setLastStandalone(p.ExitCode)
	}
	return err
}

// setupEnd waits for a set-up command and judges it.
func (l *life) setupEnd(ctx context.Context, pr *proc, out *strings.Builder) (sos.Process, error) {
	select {
	case <-pr.done:
	case <-ctx.Done():
		return sos.Process{}, context.Cause(ctx)
	case <-l.ctx.Done():
		return sos.Process{}, l.failed(l.ctx.Err())
	}
	l.mu.Lock()
	p, err := pr.p, pr.answered
	l.mu.Unlock()
	if err != nil && sos.ErrorCode(err) != sos.CodeSpawnFailed {
		return p, err
	}
	data, _, jerr := l.p.cfg.Journal.Head(l.b.id, p.ID, sos.StreamOut, int(min(answerSize(p), maxSetupOutput)))
	if jerr != nil {
		l.p.cfg.Log.Error("cannot read the output of a set-up command", "sandbox", l.b.id, "process", p.ID, "err", jerr)
	}
	out.WriteString(decode(data, int64(len(data)) < answerSize(p)))
	if p.Reason == sos.EndExit && p.ExitCode != nil && *p.ExitCode == 0 {
		return p, nil
	}
	l.b.setLastStandalone(p.ExitCode)
	text := out.String()
	if len(text) > maxSetupOutput { // the end says why
		text = "…" + strings.ToValidUTF8(text[len(text)-maxSetupOutput:], "")
	}
	if p.Reason != sos.EndExit && p.Reason != sos.EndSignal {
		text += "(" + strings.TrimSpace(string(p.Reason)+" "+p.Message) + ")"
	}
	return p, sos.Errorf(sos.CodeSetupFailed, "Setup commands failed: %s", text)
}

// aside runs a line of ours in a session; it is in no record.
func (l *life) aside(ctx context.Context, s *session, text string) error {
	pr := &proc{life: l, id: l.p.newID(sos.ProcessIDPrefix), done: make(chan struct{}), session: s}
	l.mu.Lock()
	l.procs[pr.id] = pr
	l.mu.Unlock()
	defer pr.drain()
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := l.guest.RunSession(cctx, guest.SessionCommand{ID: pr.id, Session: s.s.Name, Text: text}); err != nil {
		return l.failed(err)
	}
	select {
	case <-pr.done:
		return nil
	case <-cctx.Done():
		return l.failed(cctx.Err())
	case <-l.ctx.Done():
		return l.failed(l.ctx.Err())
	}
}

// leave ends the set-up shell as exit does, which ends nothing that it started.
func (l *life) leave(ctx context.Context, s *session) {
	err := l.aside(ctx, s, "builtin exit")
	l.mu.Lock()
	ended := s.gone
	delete(l.sessions, setupSession)
	l.mu.Unlock()
	if err == nil && !ended {
		cctx, cancel := l.call()
		defer cancel()
		err = l.guest.CloseSession(cctx, setupSession)
	}
	if err != nil {
		l.p.cfg.Log.Warn("the set-up shell does not end", "sandbox", l.b.id, "err", err)
	}
}
