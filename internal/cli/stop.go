package cli

import (
	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
)

func (a *cli) stop(s *server) *cobra.Command {
	var remove bool
	var grace durationFlag
	cmd := &cobra.Command{
		Use: "stop ID", Short: "Stop a sandbox; its files are kept unless --remove is given", Args: exactArgs("ID"),
		Annotations: map[string]string{optionalBool: "remove"},
	}
	f := a.format(cmd)
	cmd.Flags().BoolVarP(&remove, "remove", "r", false, "also delete its files and records (bare, or true|false)")
	cmd.Flags().Var(&grace, "grace", "time between TERM and KILL (default: the server's)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		svc, err := s.dial()
		if err != nil {
			return err
		}
		f.say("Stopping sandbox: %s", args[0])
		sb, err := svc.StopSandbox(cmd.Context(), args[0], sos.StopRequest{Remove: remove, Grace: grace.v})
		if err != nil {
			return failure("stop sandbox", err)
		}
		f.ok("Sandbox %s stopped", args[0])
		if !remove {
			f.say("  Use 'sos sandbox trajectory %s' to view command history", args[0])
		}
		return f.result(sb, "")
	}
	return cmd
}
