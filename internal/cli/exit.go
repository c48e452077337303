package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seaofsimulation/sos"
)

// Exit codes; scripts rely on them.
const (
	exitError1      = 1
	exitUsage       = 2
	exitTimedOut    = 124 // as timeout(1) has it
	exitInterrupted = 128 + int(syscall.SIGINT)
	exitNoReader    = 128 + int(syscall.SIGPIPE)
)

// exitError ends the program with a code; text, where there is any, goes to
// stderr as it is.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string { return e.text }

// usageError is a wrong command line.
type usageError struct{ text, hint string }

func (e usageError) Error() string { return e.text }

// signalError is the cause of a context that a signal ended.
type signalError struct{ sig syscall.Signal }

func (e signalError) Error() string { return "ended by " + e.sig.String() }

// signals gives a context that the first INT, TERM or HUP ends. SIGPIPE is taken,
// not ignored (an ignored signal would be inherited by programs that we start), so
// that a write to a closed pipe fails instead of killing.
func (a *cli) signals(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 4)
	pipe := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(pipe, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-ch:
			cancel(signalError{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		signal.Stop(pipe)
		cancel(nil)
		<-done
	}
}

// ownSignals is for commands that treat signals themselves.
func ownSignals(ctx context.Context) (context.Context, <-chan os.Signal, func()) {
	ch := make(chan os.Signal, 4)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	return context.WithoutCancel(ctx), ch, func() { signal.Stop(ch) }
}

// finish turns the end of a command into messages on stderr and an exit code.
func (a *cli) finish(root *cobra.Command, err error, cause, writeErr error) int {
	if errors.Is(writeErr, syscall.EPIPE) {
		return exitNoReader
	}
	if err == nil && writeErr != nil {
		err = fmt.Errorf("write to stdout: %w", writeErr)
	}
	if err == nil {
		return 0
	}
	if usage, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(a.Err, "Error: %s\n", usage.text)
		if usage.hint != "" {
			fmt.Fprintf(a.Err, "%s\n", usage.hint)
		}
		return exitUsage
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		if exit.text != "" {
			fmt.Fprintln(a.Err, exit.text)
		}
		return exit.code
	}
	if sig, ok := errors.AsType[signalError](err); ok {
		return 128 + int(sig.sig)
	}
	if sig, ok := errors.AsType[signalError](cause); ok && canceled(err) {
		return 128 + int(sig.sig)
	}
	if failed, ok := errors.AsType[*failedError](err); ok {
		fmt.Fprintln(a.Err, failed.Error())
		return exitError1
	}
	fmt.Fprintf(a.Err, "Error: %s\n", describe(err))
	return exitError1
}

// canceled says whether err only tells that the caller went away.
func canceled(err error) bool {
	return sos.ErrorCode(err) == sos.CodeCanceled || errors.Is(err, context.Canceled)
}

// describe is an error for people: its message, the cause where the message has
// it not, and what to do about it.
func describe(err error) string {
	text := err.Error()
	if e, ok := errors.AsType[*sos.Error](err); ok && e.Fix != "" {
		text += "\n  Fix: " + e.Fix
	}
	return text
}

// failure is how a command of the seed reports that the server said no.
func failure(what string, err error) error {
	return &failedError{what: what, err: err}
}

type failedError struct {
	what string
	err  error
}

func (e *failedError) Error() string { return "✗ Failed to " + e.what + ": " + describe(e.err) }
func (e *failedError) Unwrap() error { return e.err }

func unknownCommand(cmd *cobra.Command, name string) error {
	e := usageError{text: fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath()),
		hint: fmt.Sprintf("Run '%s --help' for the commands.", cmd.CommandPath())}
	best, distance := "", 3
	for _, c := range cmd.Commands() {
		if d := editDistance(name, c.Name()); c.IsAvailableCommand() && (d < distance || strings.HasPrefix(c.Name(), name)) {
			best, distance = c.Name(), d
		}
	}
	if best != "" {
		e.hint = fmt.Sprintf("Did you mean '%s %s'?\n%s", cmd.CommandPath(), best, e.hint)
	}
	return e
}

// flagError turns what pflag says into a usage error with a near miss.
func flagError(cmd *cobra.Command, err error) error {
	e := usageError{text: err.Error(), hint: fmt.Sprintf("Run '%s --help' for the flags.", cmd.CommandPath())}
	if fix, ok := errors.AsType[*sos.Error](err); ok && fix.Fix != "" {
		e.hint = "Fix: " + fix.Fix + "\n" + e.hint
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return e
	}
	if cmd.Annotations[takesCommand] != "" {
		e.hint = "Put -- before a command that begins with '-'.\n" + e.hint
	}
	best, distance := "", 3
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := editDistance(unknown.GetSpecifiedName(), f.Name); d < distance && len(unknown.GetSpecifiedName()) > 1 {
			best, distance = f.Name, d
		}
	})
	if best != "" {
		e.hint = "Did you mean '--" + best + "'?\n" + e.hint
	}
	return e
}

// exactArgs accepts exactly the named arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usageError{text: fmt.Sprintf("%s is missing", strings.Join(names[len(args):], " and ")),
				hint: "Usage: " + cmd.UseLine()}
		}
		if len(args) > len(names) {
			return usageError{text: fmt.Sprintf("unexpected argument %q", args[len(names)]),
				hint: "Usage: " + cmd.UseLine()}
		}
		return nil
	}
}

// editDistance is the Levenshtein distance.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
