package cli

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos/internal/app"
	"github.com/seaofsimulation/sos/internal/config"
)

func (a *cli) serve() *cobra.Command {
	cfg := config.Default()
	cfg.Version, cfg.Commit = a.build.Version, a.build.Commit
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server (Linux, as root)",
		Long: "Run the server. It is ready when it says so on stderr, which is when GET /health answers 200.\n\n" +
			"SIGTERM ends the server and leaves its sandboxes running; the next server on the same data\n" +
			"directory takes them over. SIGINT (Ctrl-C) stops the sandboxes first and keeps their files;\n" +
			"a second one leaves at once. `sos down` ends everything of a data directory.\n\n" +
			"Every flag has a variable: --max-sandboxes is " + config.EnvName("max-sandboxes") + ". Flags stand above variables.",
		Args: exactArgs(),
	}
	config.Bind(cmd.Flags(), &cfg)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := config.FromEnv(cmd.Flags(), a.Getenv); err != nil {
			return flagError(cmd, err)
		}
		if err := cfg.Check(); err != nil {
			return flagError(cmd, err)
		}
		ctx, signals, stop := ownSignals(cmd.Context())
		defer stop()
		err := app.Serve(ctx, cfg, a.Err, signals)
		if errors.Is(err, app.ErrSecondInterrupt) {
			return signalError{syscall.SIGINT}
		}
		return err
	}
	return cmd
}

func (a *cli) down() *cobra.Command {
	cfg := config.Default()
	var purge bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End everything of a data directory without a server",
		Long: "End everything that a data directory has running without a server: all its sandboxes, their\n" +
			"processes, mounts, limits and sockets. Files, images and records are kept unless --purge is\n" +
			"given. A server that uses the directory must have ended before.",
		Args: exactArgs(),
	}
	f := a.format(cmd)
	config.BindDataDir(cmd.Flags(), &cfg)
	cmd.Flags().BoolVar(&purge, "purge", false, "also delete the data directory with all files, images and records in it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := config.FromEnv(cmd.Flags(), a.Getenv); err != nil {
			return flagError(cmd, err)
		}
		cfg.Version, cfg.Commit = a.build.Version, a.build.Commit
		report, err := app.Down(cmd.Context(), cfg, purge)
		if err != nil {
			return err
		}
		f.ok("%s", downText(report, purge))
		return f.result(report, "")
	}
	return cmd
}

func downText(r app.DownReport, purge bool) string {
	text := fmt.Sprintf("Nothing of %s runs any more (sandboxes stopped: %d)", r.DataDir, r.Stopped)
	if purge {
		text += "; the directory is deleted"
	}
	return text
}
