package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
)

const defaultServer = "http://localhost:3000"

// server is the flag that says which server to talk to. It can stand at the group
// (`sandbox -s URL exec`) and, as --server, at the command.
type server struct {
	a     *cli
	group string
	own   string
}

func (a *cli) server(groupCmd *cobra.Command) *server {
	s := &server{a: a}
	groupCmd.Flags().StringVarP(&s.group, "server", "s", "", "`URL` of the server: http://… or unix:///path (default $SOS_SERVER, else "+defaultServer+")")
	return s
}

// add gives a command of the group its own --server.
func (s *server) add(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&s.own, "server", "", "`URL` of the server: http://… or unix:///path (default $SOS_SERVER, else "+defaultServer+")")
	if strings.Contains(cmd.Use, " ID") {
		cmd.ValidArgsFunction = s.completeID
	}
	return cmd
}

// completeID gives the shell the sandboxes that there are.
func (s *server) completeID(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	svc, err := s.dial()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, done := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer done()
	list, err := svc.ListSandboxes(ctx, sos.SandboxFilter{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var ids []string
	for _, sb := range list {
		ids = append(ids, sb.ID+"\t"+plain(sb.Image)+", "+string(sb.Status))
		if sb.Name != "" {
			ids = append(ids, sb.Name+"\t"+plain(sb.Image)+", "+string(sb.Status))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (s *server) dial() (sos.Service, error) {
	url := defaultServer
	for _, u := range []string{s.own, s.group, s.a.Getenv("SOS_SERVER")} {
		if u != "" {
			url = u
			break
		}
	}
	return s.a.Dial(url)
}

func (a *cli) sandbox() *cobra.Command {
	cmd := group("sandbox", "Create, start, use and stop sandboxes")
	s := a.server(cmd)
	cmd.AddCommand(s.add(a.create(s)), s.add(a.list(s)), s.add(a.start(s)), s.add(a.exec(s)),
		s.add(a.stop(s)), s.add(a.trajectory(s)))
	return cmd
}

// pairs reads KEY=VALUE flags; a KEY alone takes its value from getenv.
func pairs(list []string, what string, getenv func(string) string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(list))
	for _, p := range list {
		k, v, ok := strings.Cut(p, "=")
		if k == "" || (!ok && getenv == nil) {
			return nil, usageError{text: fmt.Sprintf("%s %q is not KEY=VALUE", what, p), hint: "Write " + what + " KEY=VALUE."}
		}
		if !ok {
			v = getenv(k)
		}
		m[k] = v
	}
	return m, nil
}

// durationFlag and sizeFlag are flags in the words of the API.
type durationFlag struct{ v sos.Duration }

func (d *durationFlag) String() string { return "" }
func (d *durationFlag) Type() string   { return "duration" }
func (d *durationFlag) Set(s string) (err error) {
	d.v, err = sos.ParseDuration(s)
	return err
}

type sizeFlag struct{ v sos.Size }

func (z *sizeFlag) String() string { return "" }
func (z *sizeFlag) Type() string   { return "size" }
func (z *sizeFlag) Set(s string) (err error) {
	z.v, err = sos.ParseSize(s)
	return err
}
