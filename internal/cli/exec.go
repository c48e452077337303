package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/config"
)

// maxStdin is the most that -i passes on: the command's input goes with the request.
const maxStdin = 16 << 20

func (a *cli) exec(s *server) *cobra.Command {
	var (
		req     sos.ExecRequest
		env     []string
		timeout durationFlag
		stdin   bool
	)
	cmd := &cobra.Command{
		Use:   "exec ID COMMAND",
		Short: "Run a command in a sandbox, in its session or (-s) by itself",
		Long: "Run a command in a sandbox and print its output.\n\n" +
			"COMMAND is one argument and shell text. Several arguments are one program with its\n" +
			"arguments, passed on word for word: exec ID -- ls -l \"a file\".\n" +
			"The exit code is the command's own; 124 when --timeout ended it, 255 where it has none.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return exactArgs("ID", "COMMAND")(cmd, args)
			}
			return nil
		},
		Annotations: map[string]string{optionalBool: "standalone", takesCommand: "yes"},
	}
	f := a.format(cmd)
	fl := cmd.Flags()
	fl.BoolVarP(&req.Standalone, "standalone", "s", false, "run outside the session, in a shell of its own (bare, or true|false)")
	fl.StringVar(&req.Session, "session", "", "`name` of the session (default: default)")
	fl.Var(&timeout, "timeout", "longest run: 30, 5m; the command is then ended and its output so far printed")
	fl.StringArrayVarP(&env, "env", "e", nil, "`KEY=VALUE` for this command, or KEY to pass it on (repeatable)")
	fl.StringVarP(&req.Cwd, "cwd", "w", "", "working `directory` of this command")
	fl.StringVarP(&req.User, "user", "u", "", "`user` of this command (standalone only)")
	fl.BoolVarP(&stdin, "stdin", "i", false, "pass this program's stdin on; without it the command reads nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		req.Command = commandText(args[1:])
		req.Timeout = timeout.v
		if req.Env, err = pairs(env, "--env", a.Getenv); err != nil {
			return err
		}
		if stdin {
			if req.Stdin, err = a.readStdin(); err != nil {
				return err
			}
		}
		svc, err := s.dial()
		if err != nil {
			return err
		}
		f.say("Executing command in sandbox %s: %s", args[0], req.Command)
		res, err := a.execInterruptible(cmd.Context(), svc, args[0], req)
		if err != nil {
			return failure("execute command", err)
		}
		a.printResult(f, req, res)
		return execExit(f, req, res)
	}
	return cmd
}

// commandText is one argument as it is, or several as one shell command that runs
// exactly that program with exactly those arguments.
func commandText(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	words := make([]string, len(args))
	for i, w := range args {
		words[i] = shellQuote(w)
	}
	return strings.Join(words, " ")
}

func shellQuote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+:,./-"
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (a *cli) readStdin() ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(a.In, maxStdin+1))
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	if len(data) > maxStdin {
		return nil, fmt.Errorf("stdin is larger than %s: write it to a file of the sandbox in parts", sos.Size(maxStdin))
	}
	return data, nil
}

// execInterruptible passes Ctrl-C on to what the session runs and waits for its
// end; a second signal leaves at once. A standalone command goes on without us,
// as every command does whose client went away.
func (a *cli) execInterruptible(ctx context.Context, svc sos.Service, ref string, req sos.ExecRequest) (sos.ExecResult, error) {
	if req.Standalone {
		res, err := svc.Exec(ctx, ref, req)
		if err != nil && ctx.Err() != nil {
			fmt.Fprintln(a.Err, "The command goes on in the sandbox.")
		}
		return res, err
	}
	session := req.Session
	if session == "" {
		session = sos.DefaultSession
	}
	work, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	type answer struct {
		res sos.ExecResult
		err error
	}
	got := make(chan answer, 1)
	go func() {
		res, err := svc.Exec(work, ref, req)
		got <- answer{res, err}
	}()
	select {
	case r := <-got:
		return r.res, r.err
	case <-ctx.Done():
	}
	if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok && sig.sig == syscall.SIGINT {
		second, stop := a.signals(work)
		defer stop()
		limit, done := context.WithTimeout(second, 30*time.Second)
		defer done()
		if err := svc.InterruptSession(limit, ref, session); err == nil {
			select {
			case r := <-got:
				return r.res, r.err
			case <-limit.Done():
			}
		}
	}
	leave()
	<-got
	return sos.ExecResult{}, context.Cause(ctx)
}

// printResult prints the output as the seed does: a line end after it when there
// is any; with --quiet no more than what ends the last line of a session's output,
// which comes trimmed.
func (a *cli) printResult(f *format, req sos.ExecRequest, res sos.ExecResult) {
	switch {
	case f.json || res.Output == "":
	case f.quiet && req.Standalone:
		fmt.Fprint(a.Out, res.Output)
	default:
		fmt.Fprintln(a.Out, res.Output)
	}
	if f.json {
		return
	}
	if res.Truncated {
		f.note("Output was cut: %d of %d bytes are shown", len(res.Output), res.OutputBytes)
	}
	if res.SessionRestarted {
		f.note("The session had ended; the command ran in a new shell")
	}
	if res.OOMKilled {
		f.note("The sandbox ran out of memory and the kernel killed a process of it")
	}
	if res.Exited {
		f.note("The session has ended")
	}
}

// execExit is the end of the program for the end of the command.
func execExit(f *format, req sos.ExecRequest, res sos.ExecResult) error {
	if f.json {
		if err := writeJSON(f.a.Out, execJSON{res.Process, res}); err != nil {
			return err
		}
	}
	code, text := endOf(res)
	if res.TimedOut {
		text += " after " + config.Text(req.Timeout)
	}
	if code == 0 && text == "" {
		return nil
	}
	if f.quiet || f.json {
		text = ""
	}
	return exitError{code: code, text: text}
}

// endOf gives the exit code of this program for the end of a command, and the end
// in words where it is not plain success.
func endOf(res sos.ExecResult) (code int, text string) {
	switch {
	case res.TimedOut:
		return exitTimedOut, "Command timed out"
	case res.ExitCode == 0:
		return 0, ""
	case res.ExitCode < 0 && res.Reason == sos.EndCancelled:
		return exitInterrupted, "Command was interrupted"
	}
	text = fmt.Sprintf("Command failed with exit code: %d", res.ExitCode)
	if res.Message != "" {
		text += ": " + res.Message
	} else if res.ExitCode < 0 && res.Reason != "" {
		text += ": " + string(res.Reason)
	}
	return res.ExitCode & 0xff, text
}

// execJSON is a result with the id of its recorded process.
type execJSON struct {
	Process string `json:"process,omitempty"`
	sos.ExecResult
}
