package cli

import (
	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
)

const defaultImage = "ubuntu:latest"

func (a *cli) create(s *server) *cobra.Command {
	var (
		spec                 = sos.SandboxSpec{Image: defaultImage}
		env, labels          []string
		memory, disk         sizeFlag
		timeout, startWithin durationFlag
	)
	cmd := &cobra.Command{Use: "create", Short: "Create a sandbox; nothing runs until it is started", Args: exactArgs()}
	f := a.format(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&spec.Image, "image", "i", spec.Image, "`image` to use; a local one, else it is pulled at the start")
	fl.StringArrayVarP(&spec.SetupCommands, "setup", "s", nil, "`command` to run at the first start (repeatable, one each)")
	fl.StringVar(&spec.Name, "name", "", "unique `name`; creating it again gives the same sandbox")
	fl.Float64Var(&spec.CPU, "cpu", 0, "`cores` at most (default 1)")
	fl.Var(&memory, "memory", "bytes of memory at most: 512Mi, 2Gi (default 2Gi)")
	fl.Var(&disk, "disk", "bytes of written files at most (default 10Gi)")
	fl.IntVar(&spec.PIDs, "pids", 0, "`number` of processes and threads at most (default 1024)")
	fl.StringArrayVarP(&env, "env", "e", nil, "`KEY=VALUE` in the environment, or KEY to pass it on (repeatable)")
	fl.StringVarP(&spec.Workdir, "workdir", "w", "", "working `directory` (default: the image's)")
	fl.StringVarP(&spec.User, "user", "u", "", "`user` of the commands (default: the image's)")
	fl.StringArrayVarP(&labels, "label", "l", nil, "`KEY=VALUE` label (repeatable)")
	fl.Var(&timeout, "timeout", "longest life while it runs (default: the server's)")
	fl.Var(&startWithin, "start-timeout", "longest wait of a start for its turn (default: the server's)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if spec.Env, err = pairs(env, "--env", a.Getenv); err != nil {
			return err
		}
		if spec.Labels, err = pairs(labels, "--label", nil); err != nil {
			return err
		}
		spec.Memory, spec.Disk = memory.v, disk.v
		spec.Timeout, spec.StartTimeout = timeout.v, startWithin.v
		if spec.SetupCommands == nil {
			spec.SetupCommands = []string{}
		}
		svc, err := s.dial()
		if err != nil {
			return err
		}
		f.say("Creating sandbox with image: %s", spec.Image)
		if len(spec.SetupCommands) > 0 {
			f.say("Setup commands: %s", quoted(spec.SetupCommands))
		}
		sb, err := svc.CreateSandbox(cmd.Context(), spec)
		if err != nil {
			return failure("create sandbox", err)
		}
		if sb.Reconnected {
			f.ok("Sandbox %s exists with ID: %s", spec.Name, sb.ID)
		} else {
			f.ok("Sandbox created with ID: %s", sb.ID)
		}
		f.say("  Use 'sos sandbox start %s' to start it", sb.ID)
		return f.result(sb, sb.ID)
	}
	return cmd
}
