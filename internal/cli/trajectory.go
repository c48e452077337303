package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
)

func (a *cli) trajectory(s *server) *cobra.Command {
	var formatted bool
	cmd := &cobra.Command{Use: "trajectory ID", Short: "Show the commands of a sandbox's sessions with their results", Args: exactArgs("ID")}
	f := a.format(cmd)
	cmd.Flags().BoolVarP(&formatted, "formatted", "f", false, "as text: each command after '$ ', then its output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		svc, err := s.dial()
		if err != nil {
			return err
		}
		f.say("Viewing trajectory for sandbox: %s", args[0])
		tr, err := svc.Trajectory(cmd.Context(), args[0])
		if err != nil {
			return failure("get trajectory", err)
		}
		if formatted && !f.json {
			_, err := fmt.Fprintln(a.Out, formatTrajectory(tr))
			return err
		}
		return writeJSON(a.Out, trajectoryJSON(tr))
	}
	return cmd
}

// formatTrajectory is the text form that agents read.
func formatTrajectory(tr sos.Trajectory) string {
	var b strings.Builder
	for _, e := range tr.Entries {
		fmt.Fprintf(&b, "$ %s\n", e.Process.Command)
		switch {
		case !e.HasResult:
			b.WriteString("Status: Command started but no result recorded\n")
		case e.Output != "":
			b.WriteString(e.Output)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// trajectoryJSON has the keys of the API in alphabetical order.
func trajectoryJSON(tr sos.Trajectory) map[string]any {
	list := make([]map[string]any, len(tr.Entries))
	for i, e := range tr.Entries {
		m := map[string]any{"command": e.Process.Command, "index": e.Index,
			"timestamp": float64(e.Process.SinceStart) / 1e9}
		if e.HasResult {
			m["result"] = trajectoryResult(e)
		}
		list[i] = m
	}
	return map[string]any{"command_count": len(list), "sandbox_id": tr.Sandbox, "trajectory": list}
}

func trajectoryResult(e sos.TrajectoryEntry) map[string]any {
	code := -1
	if e.Process.ExitCode != nil {
		code = *e.Process.ExitCode
	}
	r := map[string]any{"exit_code": code, "output": e.Output}
	if e.Process.Reason != "" && e.Process.Reason != sos.EndExit {
		r["reason"] = e.Process.Reason
	}
	if e.Process.ShellEnded {
		r["exited"] = true
	}
	return r
}
