package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
)

func (a *cli) start(s *server) *cobra.Command {
	cmd := &cobra.Command{Use: "start ID", Short: "Start a sandbox; waits for its turn and its set-up commands", Args: exactArgs("ID")}
	f := a.format(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		svc, err := s.dial()
		if err != nil {
			return err
		}
		f.say("Starting sandbox: %s", args[0])
		sb, err := a.startAndTell(cmd.Context(), svc, args[0], f)
		if err != nil {
			return failure("start sandbox", err)
		}
		f.ok("Sandbox %s started successfully", args[0])
		f.say("  Use 'sos sandbox exec %s <command>' to run commands", args[0])
		return f.result(sb, "")
	}
	return cmd
}

// startAndTell starts a sandbox and tells people at a terminal its place in the
// queue while it waits.
func (a *cli) startAndTell(ctx context.Context, svc sos.Service, ref string, f *format) (sos.Sandbox, error) {
	if !a.ErrTTY || f.quiet {
		return svc.StartSandbox(ctx, ref)
	}
	watch, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tellQueue(watch, svc, ref, f)
	}()
	sb, err := svc.StartSandbox(ctx, ref)
	stop()
	<-done
	return sb, err
}

func tellQueue(ctx context.Context, svc sos.Service, ref string, f *format) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sb, err := svc.GetSandbox(ctx, ref)
		if err == nil && sb.QueuePosition > 0 && sb.QueuePosition != last {
			last = sb.QueuePosition
			f.note("Waiting for its turn: position %d in the queue", last)
		}
	}
}
