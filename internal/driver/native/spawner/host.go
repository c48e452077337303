package spawner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/seccomp"
)

// host is what does not change while the spawner lives.
type host struct {
	cgroups  *cgroup.Host
	bootID   string
	lastCap  int
	maxFiles uint64 // hard limit on descriptors of a sandbox's process
	filter   []unix.SockFilter
	overlay  string     // overlayFD or overlayAttach
	masked   []maskPath // those of maskedPaths that this kernel has
	readonly []string
}

func newHost(cfg Config) (*host, error) {
	h := &host{overlay: cfg.Overlay, cgroups: cfg.Cgroups}
	var err error
	if h.cgroups == nil {
		if h.cgroups, err = cgroup.Detect(); err != nil {
			return nil, err
		}
	}
	if h.filter, err = seccomp.Compile(capNames()); err != nil {
		return nil, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read the boot id: %w", err)
	}
	h.bootID = strings.TrimSpace(string(boot))
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil, fmt.Errorf("read the last capability: %w", err)
	}
	if h.lastCap, err = strconv.Atoi(strings.TrimSpace(string(last))); err != nil {
		return nil, fmt.Errorf("read the last capability: %w", err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("read the limit on descriptors: %w", err)
	}
	h.maxFiles = min(hardFiles, files.Max) // raising it takes a right that a contained root lacks
	switch h.overlay {
	case overlayFD, overlayAttach:
	case "":
		if h.overlay, err = probeOverlay(cfg.RunDir); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("overlay %q: %s or %s is possible", h.overlay, overlayFD, overlayAttach)
	}
	h.masked, h.readonly, err = protectedPaths()
	return h, err
}

func (h *host) features() []string {
	f := []string{"cgroup-v" + strconv.Itoa(h.cgroups.Version), "userns", "idmap", "freeze"}
	if h.cgroups.Swap {
		f = append(f, "swap-limit")
	}
	return f
}

// maskedPaths and readonlyPaths are Docker's.
var (
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

type maskPath struct {
	path string
	dir  bool
}

// protectedPaths finds those that are there: what a kernel has in /proc and /sys is
// the same inside and outside.
func protectedPaths() (masked []maskPath, readonly []string, err error) {
	for _, pattern := range maskedPaths {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, nil, fmt.Errorf("find %s: %w", pattern, err)
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				return nil, nil, fmt.Errorf("look at %s: %w", path, err)
			}
			masked = append(masked, maskPath{path, info.IsDir()})
		}
	}
	for _, path := range readonlyPaths {
		if _, err := os.Stat(path); err == nil {
			readonly = append(readonly, path)
		} else if !errors.Is(err, os.ErrNotExist) {
			return nil, nil, fmt.Errorf("look at %s: %w", path, err)
		}
	}
	return masked, readonly, nil
}
