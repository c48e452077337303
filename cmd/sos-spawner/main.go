// Command sos-spawner clones the sandboxes of one instance. The native driver
// starts it; see package spawner.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawner"
)

// oomScore keeps the kernel from choosing the parent of all sandboxes when the host
// runs out of memory.
const oomScore = -900

type paths []string

func (p *paths) String() string { return strings.Join(*p, ",") }

func (p *paths) Set(s string) error { *p = append(*p, s); return nil }

func main() {
	// The main thread is the process's own: what is unshared before the exec below must
	// be unshared here.
	runtime.LockOSThread()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sos-spawner:", err)
		os.Exit(1)
	}
}

func run() error {
	var cfg spawner.Config
	var keep paths
	inside := false
	flag.StringVar(&cfg.RunDir, "run", "", "run `directory` of the instance")
	flag.StringVar(&cfg.Instance, "instance", "", "instance `id`; cgroups are below sos-<id>")
	flag.StringVar(&cfg.Build, "build", "dev", "build to say in hello")
	flag.StringVar(&cfg.Overlay, "overlay", "", "how layers reach the overlay: fd or attach (default: what the kernel can)")
	flag.Var(&keep, "keep", "`directory` that requests name (data directory); mounts that it does not need are detached; repeatable")
	flag.BoolVar(&inside, "inside", false, "the mount namespace is private already")
	flag.Parse()
	if cfg.RunDir == "" || cfg.Instance == "" || flag.NArg() > 0 {
		flag.Usage()
		return fmt.Errorf("-run and -instance are needed")
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("root is needed to make sandboxes")
	}
	if !inside {
		return enter(append(keep, cfg.RunDir))
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(oomScore)), 0); err != nil {
		cfg.Log.Warn("the kernel may choose the spawner when memory runs out", "err", err)
	}
	// Who reads our log may be gone: that must not end the parent of all sandboxes.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return spawner.New(cfg).Run(ctx)
}

// enter leaves the session and the mount namespace of who started us, and executes
// this program again: only so do all threads live in the new namespace.
func enter(keep []string) error {
	if _, err := unix.Setsid(); err != nil && err != unix.EPERM { // a leader already
		return fmt.Errorf("setsid: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter /: %w", err)
	}
	if err := spawner.PrivateMounts(keep); err != nil {
		return err
	}
	args := append([]string{os.Args[0], "-inside"}, os.Args[1:]...)
	if err := unix.Exec("/proc/self/exe", args, os.Environ()); err != nil {
		return fmt.Errorf("execute again: %w", err)
	}
	return nil
}
