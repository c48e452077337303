package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/config"
)

// readyWithin is the longest wait for recovery before people are told that it
// takes long.
const readyWithin = 30 * time.Second

// Serve runs a server until a signal ends it and tells people on console what
// they have to know. TERM and HUP leave sandboxes running; INT stops them first,
// and a second INT leaves at once with ErrSecondInterrupt.
func Serve(ctx context.Context, cfg config.Config, console io.Writer, signals <-chan os.Signal) error {
	if err := needRoot("sos serve"); err != nil {
		return err
	}
	cfg.LogTo = console
	a, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		a.announce(ctx, console)
	}()

	end := func() error {
		stop()
		<-announced
		return errors.Join(<-ended, a.Close())
	}
	select {
	case err = <-ended:
		ended <- err
		return end()
	case s := <-signals:
		if s == syscall.SIGINT {
			return a.stopAndEnd(ctx, console, signals, end)
		}
		n := a.running(ctx)
		err = end()
		fmt.Fprintf(console, "sos has stopped; %s\n", sandboxes(n, "keeps running for the next server", "keep running for the next server"))
		return err
	}
}

// stopAndEnd stops the sandboxes, keeps their files, and ends the server and what
// would outlive it. A second interrupt returns at once and waits for nothing.
func (a *App) stopAndEnd(ctx context.Context, console io.Writer, signals <-chan os.Signal, end func() error) error {
	fmt.Fprintf(console, "sos is stopping; %s, files kept (Ctrl-C again leaves at once)\n",
		sandboxes(a.running(ctx), "is being stopped", "are being stopped"))
	done := make(chan error, 1)
	go func() {
		err := a.StopAll(ctx)
		err = errors.Join(err, end())
		_, retireErr := a.retire(context.WithoutCancel(ctx))
		if sos.ErrorCode(retireErr) == sos.CodeConflict {
			retireErr = nil // the next server is there already; it takes over what there is
		}
		done <- errors.Join(err, retireErr)
	}()
	for {
		select {
		case err := <-done:
			if err == nil {
				fmt.Fprintln(console, "sos has stopped; its sandboxes are stopped, files kept")
			}
			return err
		case s := <-signals:
			if s == syscall.SIGINT {
				return ErrSecondInterrupt
			}
		}
	}
}

func (a *App) running(ctx context.Context) int {
	info, err := a.plane.Info(ctx)
	if err != nil {
		return 0
	}
	return info.Running
}

func sandboxes(n int, one, many string) string {
	switch n {
	case 0:
		return "no sandbox runs"
	case 1:
		return "1 sandbox " + one
	}
	return fmt.Sprintf("%d sandboxes %s", n, many)
}

// announce says that the server is ready when it is, and what this host lacks.
func (a *App) announce(ctx context.Context, console io.Writer) {
	var status int
	for {
		wait, done := context.WithTimeout(ctx, readyWithin)
		var err error
		status, err = a.Ready(wait)
		done()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		fmt.Fprintln(console, "sos is still taking over the sandboxes of the server before")
	}
	info, err := a.plane.Info(ctx)
	if err != nil {
		return
	}
	fmt.Fprint(console, a.verdict(info, status))
}

func (a *App) verdict(info sos.Info, status int) string {
	var b strings.Builder
	word := "is ready on"
	if status != 200 {
		word = "answers, but this host cannot run sandboxes, on"
	}
	list := a.addresses() // the first one stands alone, for scripts
	fmt.Fprintf(&b, "sos %s %s", word, list[0])
	if len(list) > 1 {
		fmt.Fprintf(&b, " (also %s)", strings.Join(list[1:], ", "))
	}
	b.WriteByte('\n')
	fmt.Fprintf(&b, "  version %s, data directory %s, instance %s\n", info.Version, a.cfg.DataDir, info.Instance)
	good := 0
	for _, c := range info.Checks {
		if c.OK {
			good++
		}
	}
	fmt.Fprintf(&b, "  driver %s: %d of %d checks of this host passed; disk limit: %s\n", info.Driver, good, len(info.Checks),
		a.driver.Info(context.Background()).DiskLimit)
	fmt.Fprintf(&b, "  %s; %d may run at once\n", sandboxes(info.Running, "was taken over", "were taken over"), info.MaxSandboxes)
	for _, c := range info.Checks {
		if !c.OK {
			fmt.Fprintf(&b, "  FAILED %s: %s\n    Fix: %s\n", c.Name, c.Message, c.Fix)
		}
	}
	return b.String()
}

// addresses are all places where clients can reach the server.
func (a *App) addresses() []string {
	var list []string
	for _, l := range a.listeners {
		if addr := l.Addr(); addr.Network() == "tcp" {
			list = append(list, "http://"+addr.String())
		} else {
			list = append(list, "unix://"+addr.String())
		}
	}
	return list
}
