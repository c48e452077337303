// Package cli is the command line of SoS, one file per command. What people and
// scripts read on stdout is a contract: the lines of `sos sandbox` and `sos
// session` stay as they are, logs and errors go to stderr, exit codes are those
// of exit.go.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/seaofsimulation/sos"
)

// Build says which build this is.
type Build struct{ Version, Commit string }

// IO is the world outside: streams, whether they are terminals, environment, and
// how a server is reached.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	OutTTY   bool // stdout is a terminal
	ErrTTY   bool
	InTTY    bool
	Getenv   func(string) string
	Dial     func(server string) (sos.Service, error)
}

// System is the world of this process.
func System() IO {
	tty := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	return IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		OutTTY: tty(os.Stdout), ErrTTY: tty(os.Stderr), InTTY: tty(os.Stdin),
		Getenv: os.Getenv, Dial: dial,
	}
}

// Main runs the command line args (without the program's name) and returns the
// exit code.
func Main(args []string, w IO, b Build) int {
	a := &cli{IO: w, build: b}
	out := &stickyWriter{w: w.Out}
	a.Out = out
	root := a.root()
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetArgs(mergeOptionalBools(root, args))

	ctx, stop := a.signals(context.Background())
	err := root.ExecuteContext(ctx)
	cause := context.Cause(ctx)
	stop()
	return a.finish(root, err, cause, out.err)
}

// cli is what every command needs.
type cli struct {
	IO
	build Build
}

const exitHelp = `Exit codes:
  0    done
  1    error; the message on stderr says what and how to mend it
  2    the command line is wrong
  124  exec: the command was ended by --timeout
  130  ended by Ctrl-C (SIGINT), also exec when that ended the command;
       143 by SIGTERM, 129 by SIGHUP
  141  nobody reads stdout any more
  exec gives the exit code of the command itself (255 where it has none),
  session that of its shell when the shell ended it`

func (a *cli) root() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "sos",
		Short: "Isolated Linux sandboxes for shell agents and untrusted code",
		Long: "SoS (Sea of Simulation) runs isolated Linux sandboxes for shell agents and untrusted code.\n" +
			"Start a server with `sos serve`; talk to it with the other commands.\n\n" + exitHelp,
		Args:             cobra.ArbitraryArgs,
		TraverseChildren: true, // `sandbox -s URL exec -s …`: each -s belongs to its own command
		SilenceErrors:    true,
		SilenceUsage:     true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if version {
				return a.printVersion(false, true)
			}
			return needSubcommand(cmd, args)
		},
	}
	root.Flags().BoolVarP(&version, "version", "V", false, "print the version")
	root.SetHelpCommand(help(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, err) })
	root.AddCommand(a.serve(), a.down(), a.sandbox(), a.session(), a.image(), a.version())
	return root
}

// needSubcommand is what a group does by itself: show its help on stderr, or say
// that there is no such command.
func needSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "help" {
		return showHelp(cmd, args[1:])
	}
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	cmd.SetOut(cmd.ErrOrStderr())
	if err := cmd.Help(); err != nil {
		return err
	}
	return exitError{code: exitUsage}
}

func group(use, short string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: needSubcommand}
}

// help is `sos help [COMMAND…]`: the same text as with --help.
func help(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Show the help of a command",
		Args:  cobra.ArbitraryArgs,
		RunE:  func(_ *cobra.Command, args []string) error { return showHelp(root, args) },
	}
}

func showHelp(cmd *cobra.Command, args []string) error {
	cmd, rest, err := cmd.Find(args)
	if err != nil || len(rest) > 0 {
		return unknownCommand(cmd, args[len(args)-len(rest)])
	}
	cmd.InitDefaultHelpFlag() // as with --help
	return cmd.Help()
}

func (a *cli) version() *cobra.Command {
	var asJSON, quiet bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  exactArgs(),
		RunE:  func(*cobra.Command, []string) error { return a.printVersion(asJSON, quiet) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the version only, without the commit")
	return cmd
}

func (a *cli) printVersion(asJSON, short bool) error {
	switch {
	case asJSON:
		return writeJSON(a.Out, map[string]string{"version": a.build.Version, "commit": a.build.Commit})
	case short || a.build.Commit == "":
		fmt.Fprintf(a.Out, "sos %s\n", a.build.Version)
	default:
		fmt.Fprintf(a.Out, "sos %s (%s)\n", a.build.Version, a.build.Commit)
	}
	return nil
}
