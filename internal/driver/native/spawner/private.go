package spawner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// PrivateMounts gives the calling thread a mount namespace of its own, in which
// only mounts are left that lead to or are below the directories in keep, /proc and
// the cgroups. Each clone copies the mounts of the namespace, so fewer are faster;
// and mounts that the host removes are not held by us: what is left follows the
// host's (it is a slave), and nothing goes the other way.
//
// The caller executes a program next, from the main thread.
func PrivateMounts(keep []string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare the mount namespace: %w", err)
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts from the host's: %w", err)
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	needed := []string{"/proc", "/sys/fs/cgroup"}
	for _, dir := range keep {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		needed = append(needed, filepath.Clean(dir))
	}
	for _, m := range unneeded(string(b), needed) {
		_ = unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // one more mount is only slower
	}
	return nil
}

// unneeded gives the mount points that can go, the last mounted first.
func unneeded(mountinfo string, needed []string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		point := unescape.Replace(f[4])
		keep := slices.ContainsFunc(needed, func(n string) bool { return below(n, point) || below(point, n) })
		if !keep {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// below says whether path is dir or in it.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
