package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
)

func (a *cli) list(s *server) *cobra.Command {
	var labels, statuses []string
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List sandboxes in order of creation", Args: exactArgs()}
	f := a.format(cmd)
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "only those with this `KEY=VALUE` label (repeatable)")
	cmd.Flags().StringSliceVar(&statuses, "status", nil, "only those in one of these `statuses`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		var filter sos.SandboxFilter
		if filter.Labels, err = pairs(labels, "--label", nil); err != nil {
			return err
		}
		for _, st := range statuses {
			filter.Status = append(filter.Status, sos.Status(st))
		}
		svc, err := s.dial()
		if err != nil {
			return err
		}
		f.say("Listing all sandboxes...")
		list, err := svc.ListSandboxes(cmd.Context(), filter)
		if err != nil {
			return failure("list sandboxes", err)
		}
		if f.json {
			if list == nil {
				list = []sos.Sandbox{}
			}
			return writeJSON(a.Out, list)
		}
		if len(list) == 0 {
			f.say("No sandboxes found")
			return nil
		}
		f.say("%-36s %-20s %-10s SETUP", "ID", "IMAGE", "STATUS")
		f.say("%s", strings.Repeat("-", 80))
		for _, sb := range list {
			f.say("%-36s %-20s %-10s %s", sb.ID, plain(sb.Image), sb.Status, setupCell(sb.SetupCommands))
			if f.quiet {
				fmt.Fprintln(a.Out, sb.ID)
			}
		}
		return nil
	}
	return cmd
}

// setupCell shows at most 30 bytes of the set-up commands, never half a character.
func setupCell(commands []string) string {
	text := strings.Join(commands, " && ")
	if text == "" {
		return "none"
	}
	if len(text) <= 30 {
		return plain(text)
	}
	cut := 27
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return plain(text[:cut]) + "..."
}
