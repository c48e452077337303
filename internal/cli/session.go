package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
)

func (a *cli) session() *cobra.Command {
	var keep bool
	spec := sos.SandboxSpec{Image: defaultImage, SetupCommands: []string{}}
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Work in a new sandbox line by line; it is removed when you leave",
		Long: "Work in a new sandbox line by line. Each line is a command of one persistent bash.\n" +
			"Ctrl-C interrupts the running command, Ctrl-D, 'exit' or 'quit' leave; the sandbox is\n" +
			"then removed unless --keep is given. Lines may also come from a pipe or file.",
		Args: exactArgs(),
	}
	s := a.server(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&spec.Image, "image", "i", spec.Image, "`image` to use")
	fl.StringArrayVar(&spec.SetupCommands, "setup", spec.SetupCommands, "`command` to run first (repeatable)")
	fl.BoolVar(&keep, "keep", false, "keep the sandbox when leaving")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		svc, err := s.dial()
		if err != nil {
			return err
		}
		ctx, signals, stop := ownSignals(cmd.Context())
		defer stop()
		r := &repl{cli: a, f: &format{a: a}, svc: svc, signals: signals}
		return r.run(ctx, spec, keep)
	}
	return cmd
}

// repl is one interactive session.
type repl struct {
	*cli
	f       *format
	svc     sos.Service
	signals <-chan os.Signal
	id      string
}

var errLeave = errors.New("leave")

func (r *repl) run(ctx context.Context, spec sos.SandboxSpec, keep bool) (err error) {
	r.f.say("Starting interactive session with image: %s", spec.Image)
	if len(spec.SetupCommands) > 0 {
		r.f.say("Setup commands: %s", quoted(spec.SetupCommands))
	}
	// Creating is quick and not interrupted: a sandbox whose id never came back could
	// not be removed.
	quick, done := context.WithTimeout(ctx, time.Minute)
	sb, err := r.svc.CreateSandbox(quick, spec)
	done()
	if err != nil {
		return failure("create sandbox", err)
	}
	r.id = sb.ID
	r.f.ok("Sandbox created with ID: %s", r.id)
	started := false
	defer func() { // also after a failed start, the end of input and a signal
		if keep && started {
			r.f.say("Sandbox %s is kept. Use 'sos sandbox stop -r %s' to remove it", r.id, r.id)
			return
		}
		r.leave(ctx)
	}()

	r.f.say("Starting sandbox...")
	err = r.interruptible(ctx, func(ctx context.Context) error {
		_, err := r.startAndTell(ctx, r.svc, r.id, r.f)
		return err
	})
	if err != nil {
		return failureUnlessSignal("start sandbox", err)
	}
	started = true
	r.f.ok("Sandbox started successfully")
	r.f.say("Entering interactive session. Type 'exit' to quit.")
	r.f.say("Session ID: %s", r.id)
	r.f.say("%s", strings.Repeat("=", 50))
	return r.loop(ctx, spec.Image)
}

// leave removes the sandbox whatever has happened before.
func (r *repl) leave(ctx context.Context) {
	r.f.say("Stopping and removing sandbox...")
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer done()
	_, err := r.svc.StopSandbox(ctx, r.id, sos.StopRequest{Remove: true})
	if err != nil && sos.ErrorCode(err) != sos.CodeNotFound {
		fmt.Fprintf(r.Err, "⚠ Warning: Failed to clean up sandbox: %s\n", describe(err))
		return
	}
	r.f.ok("Sandbox session ended")
}

// interruptible ends f's context at the first signal.
func (r *repl) interruptible(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = f(ctx)
	}()
	select {
	case <-done:
		return err
	case s := <-r.signals:
		cancel(signalError{s.(syscall.Signal)})
		<-done // the signal is the reason, whatever it made of the call
		return context.Cause(ctx)
	}
}

func failureUnlessSignal(what string, err error) error {
	if _, ok := errors.AsType[signalError](err); ok {
		return err
	}
	return failure(what, err)
}

// loop runs line after line until the end of input, a word that leaves, the end
// of the shell or a signal.
func (r *repl) loop(ctx context.Context, image string) error {
	lines, err := r.openLines(image)
	if err != nil {
		return err
	}
	defer lines.Close()
	for {
		line, err := r.next(lines)
		switch {
		case errors.Is(err, errLineInterrupted):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		line = strings.TrimSpace(line)
		switch strings.ToLower(line) {
		case "":
			continue
		case "exit", "quit":
			return nil
		}
		if err := r.command(ctx, line); err != nil {
			if errors.Is(err, errLeave) {
				return nil
			}
			return err
		}
	}
}

// next waits for a line or a signal.
func (r *repl) next(lines lineReader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		line, err := lines.Line()
		got <- answer{line, err}
	}()
	select {
	case g := <-got:
		return g.line, g.err
	case s := <-r.signals:
		return "", signalError{s.(syscall.Signal)}
	}
}

// command runs one line. Ctrl-C interrupts it in the sandbox; a second one, and
// any other signal, leaves.
func (r *repl) command(ctx context.Context, line string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		res sos.ExecResult
		err error
	}
	got := make(chan answer, 1)
	go func() {
		res, err := r.svc.Exec(ctx, r.id, sos.ExecRequest{Command: line})
		got <- answer{res, err}
	}()
	for interrupted := false; ; {
		select {
		case g := <-got:
			return r.show(g.res, g.err)
		case s := <-r.signals:
			sig := s.(syscall.Signal)
			if sig != syscall.SIGINT || interrupted {
				cancel()
				<-got
				return signalError{sig}
			}
			interrupted = true
			limit, done := context.WithTimeout(ctx, 10*time.Second)
			err := r.svc.InterruptSession(limit, r.id, sos.DefaultSession)
			done()
			if err != nil {
				fmt.Fprintf(r.Err, "✗ Failed to interrupt the command: %s\n", describe(err))
			}
		}
	}
}

func (r *repl) show(res sos.ExecResult, err error) error {
	if err != nil {
		fmt.Fprintln(r.Err, failure("execute command", err).Error())
		switch sos.ErrorCode(err) {
		case sos.CodeNotFound, sos.CodeNotStarted, sos.CodeSandboxStopped, sos.CodeSandboxLost, sos.CodeSessionExited:
			return exitError{code: exitError1} // nothing more can run
		}
		return nil
	}
	if res.Output != "" {
		if _, err := fmt.Fprintln(r.Out, res.Output); err != nil {
			return errLeave // nobody reads; the sandbox is removed on the way out
		}
	}
	code, _ := endOf(res)
	switch {
	case code == exitInterrupted && res.ExitCode < 0:
		fmt.Fprintln(r.Err, "(interrupted)")
	case res.ExitCode != 0 && res.Message != "":
		fmt.Fprintf(r.Err, "(exit code: %d: %s)\n", res.ExitCode, res.Message)
	case res.ExitCode != 0:
		fmt.Fprintf(r.Err, "(exit code: %d)\n", res.ExitCode)
	}
	if res.Exited {
		fmt.Fprintln(r.Err, "The session has ended.")
		if code != 0 {
			return exitError{code: code}
		}
		return errLeave
	}
	return nil
}
