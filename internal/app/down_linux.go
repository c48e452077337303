package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/config"
	"github.com/seaofsimulation/sos/internal/driver/native"
)

// downWithin bounds the gentle part of Down; what is left then is killed.
const downWithin = 2 * time.Minute

// Down ends everything that a data directory has running, without a server:
// sandboxes gently and with their records, then whatever is left, then the
// spawner, the cgroups and the run directory. Files are kept unless purge is set.
func Down(ctx context.Context, cfg config.Config, purge bool) (DownReport, error) {
	r := DownReport{DataDir: cfg.DataDir}
	if err := needRoot("sos down"); err != nil {
		return r, err
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "instance")); err != nil {
		return r, &sos.Error{Code: sos.CodeNotFound, Cause: err,
			Message: cfg.DataDir + " is not the data directory of a server",
			Fix:     "name the directory that the server was started with: --data-dir"}
	}
	if cfg.LogLevel == config.Default().LogLevel {
		cfg.LogLevel = slog.LevelWarn.String() // people asked for an end, not for its story
	}
	a := &App{}
	defer func() { _ = a.Close() }() // also on the ways out with an error
	err := a.parts.open(ctx, cfg)
	if sos.ErrorCode(err) == sos.CodeConflict {
		return r, err // a server runs
	}
	if err == nil {
		r.Stopped, err = a.stopGently(ctx)
	}
	if err != nil { // a broken record must not keep anything alive
		a.log.Warn("sandboxes could not be stopped gently and are killed", "op", "down", "err", err)
	}
	r.DataDir, r.Instance = a.cfg.DataDir, a.instance
	if err := a.Close(); err != nil {
		return r, err
	}
	killed, err := a.retire(ctx)
	if err != nil {
		return r, err
	}
	r.Stopped += len(killed.Sandboxes)
	if purge {
		return r, removeDataDir(a.cfg.DataDir)
	}
	return r, nil
}

// stopGently runs the control plane for as long as it needs to stop everything:
// so processes get their TERM, and the records say what happened.
func (a *App) stopGently(ctx context.Context) (stopped int, err error) {
	if err := a.openPlane(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, downWithin)
	defer cancel()
	runCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- a.plane.Run(runCtx) }()
	defer func() {
		end()
		err = errors.Join(err, ignoreCanceled(<-done))
	}()
	select {
	case <-a.plane.Ready():
	case <-ctx.Done():
		return 0, fmt.Errorf("take over the sandboxes: %w", context.Cause(ctx))
	}
	stopped = a.running(ctx)
	return stopped, a.plane.StopAll(ctx)
}

// retire ends what outlives a server on purpose: the spawner, and everything with
// the name of this instance outside the data directory. The server must have been
// closed before.
func (p *parts) retire(ctx context.Context) (native.Ended, error) {
	ended, err := native.Down(ctx, native.Config{DataDir: p.cfg.DataDir, RunDir: p.runDir, Instance: p.instance, Log: p.log})
	if err != nil {
		return ended, fmt.Errorf("end what is left of instance %s: %w", p.instance, err)
	}
	return ended, nil
}

// removeDataDir deletes a data directory. A mount below it means that somebody
// still uses it, and deleting would reach through it.
func removeDataDir(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if fields := strings.Fields(s.Text()); len(fields) > 4 && strings.HasPrefix(unescape.Replace(fields[4]), dir+"/") {
			return &sos.Error{Code: sos.CodeConflict, Message: fields[4] + " is a mount point; nothing was deleted",
				Fix: "unmount it and run sos down --purge again"}
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete the data directory: %w", err)
	}
	return nil
}

// unescape undoes how the kernel writes paths in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
