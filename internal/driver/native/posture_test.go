package native

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seaofsimulation/sos/internal/driver/drivertest"
)

// posture is what /proc of the host must say of a process in a sandbox. {base}
// stands for the first of the sandbox's ids.
type posture struct {
	status map[string]string
	limits map[string]string // soft and hard
	oom    string            // oom_score_adj
	uidMap string            // and gid_map
	fds    []string          // patterns: each descriptor matches one of them
}

// The 14 capabilities of containers by default, all of them only within the
// sandbox's user namespace.
const capsOfSandbox = "00000000a80425fb"

var confined = map[string]string{
	"Uid":    "{base} {base} {base} {base}",
	"Gid":    "{base} {base} {base} {base}",
	"CapInh": "0000000000000000", "CapPrm": capsOfSandbox, "CapEff": capsOfSandbox,
	"CapBnd": capsOfSandbox, "CapAmb": "0000000000000000",
	"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "1", "TracerPid": "0",
}

// A core of at most one byte is none, and unlike zero it keeps the kernel from
// starting the host's core_pattern helper.
var limited = map[string]string{"Max core file size": "1 1"}

var wantGuest = posture{
	status: confined, limits: limited, oom: "300", uidMap: "0 {base} 65536",
	fds: []string{
		`^/dev/null$`,
		`^pipe:`, `^socket:`, `^anon_inode:\[(eventpoll|eventfd|pidfd)\]$`,
		`/log\.pipe$`, // its last words go to the spawner
		// By these its children join the user's level, and it learns of OOM kills.
		`^/sys/fs/cgroup/.*/user/(tasks|cgroup\.procs|memory\.oom_control|memory\.events)$`,
	},
}

var wantUser = posture{
	status: confined, limits: limited, oom: "300", uidMap: "0 {base} 65536",
	fds: []string{`^/dev/null$`, `^pipe:`},
}

// wantMounts is the sandbox's whole mount table: mount point, filesystem, options
// of the mount. A line that begins with ? is there when the kernel has the path.
const wantMounts = `
/ overlay rw,nodev,relatime
/proc proc rw,nosuid,nodev,noexec,relatime
/dev tmpfs rw,nosuid
/dev/pts devpts rw,nosuid,noexec,relatime
/dev/shm tmpfs rw,nosuid,nodev,noexec,relatime
/dev/mqueue mqueue rw,nosuid,nodev,noexec,relatime
/dev/.sos tmpfs rw,nosuid,nodev,noexec,relatime
/sys sysfs ro,nosuid,nodev,noexec,relatime
/etc/hostname tmpfs rw,nosuid,nodev,noexec,relatime
/etc/hosts tmpfs rw,nosuid,nodev,noexec,relatime
/etc/resolv.conf tmpfs rw,nosuid,nodev,noexec,relatime
?/proc/bus proc ro,nosuid,nodev,noexec,relatime
?/proc/fs proc ro,nosuid,nodev,noexec,relatime
?/proc/irq proc ro,nosuid,nodev,noexec,relatime
?/proc/sys proc ro,nosuid,nodev,noexec,relatime
?/proc/sysrq-trigger proc ro,nosuid,nodev,noexec,relatime
?/proc/acpi tmpfs ro,nosuid,nodev,noexec,relatime
?/proc/asound tmpfs ro,nosuid,nodev,noexec,relatime
?/proc/scsi tmpfs ro,nosuid,nodev,noexec,relatime
?/proc/interrupts tmpfs rw,nosuid
?/proc/kcore tmpfs rw,nosuid
?/proc/keys tmpfs rw,nosuid
?/proc/latency_stats tmpfs rw,nosuid
?/proc/sched_debug tmpfs rw,nosuid
?/proc/timer_list tmpfs rw,nosuid
?/proc/timer_stats tmpfs rw,nosuid
?/sys/firmware tmpfs ro,nosuid,nodev,noexec,relatime
?/sys/devices/virtual/powercap tmpfs ro,nosuid,nodev,noexec,relatime
`

// namespaces that a sandbox shares with nobody. (time is the host's: clocks are
// not secret, and an offset would only confuse.)
var namespaces = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}

func TestPosture(t *testing.T) {
	d := open(t, newConfig(t))
	a, b := newID(), newID()
	start(t, d, a, b)
	bases := map[uint32]string{}
	seen := map[string]string{} // namespace to its owner
	for _, ns := range namespaces {
		seen[link(t, os.Getpid(), "ns/"+ns)] = "the host"
	}
	for _, id := range []string{a, b} {
		sh := drivertest.Connect(t, d, id)
		sh.Begin(t, "exec sleep 1000")
		guest := guestPid(t, d, id)
		children := childrenOf(guest)
		if len(children) != 1 {
			t.Fatalf("the guest of %s has the children %v; want one", id, children)
		}
		rec, err := readRecord(d.dirs.record(id))
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := bases[rec.IDBase]; taken {
			t.Errorf("%s and %s have the same ids", id, other)
		}
		bases[rec.IDBase] = id
		for _, ns := range namespaces {
			of := link(t, guest, "ns/"+ns)
			if owner, shared := seen[of]; shared {
				t.Errorf("%s shares its %s namespace with %s", id, ns, owner)
			}
			seen[of] = id
			if child := link(t, children[0], "ns/"+ns); child != of {
				t.Errorf("a process of %s is in another %s namespace than its guest", id, ns)
			}
		}
		t.Run("guest", func(t *testing.T) { wantGuest.check(t, guest, rec.IDBase); checkMounts(t, d, guest) })
		t.Run("process", func(t *testing.T) { wantUser.check(t, children[0], rec.IDBase); checkMounts(t, d, children[0]) })
		t.Run("inside", func(t *testing.T) { checkInside(t, d, sh, rec.IDBase) })
	}
}

func (p posture) check(t *testing.T, pid int, base uint32) {
	t.Helper()
	number := fmt.Sprint(base)
	status := map[string]string{}
	for line := range strings.Lines(procFile(t, pid, "status")) {
		key, value, _ := strings.Cut(line, ":")
		if _, wanted := p.status[key]; wanted {
			status[key] = strings.ReplaceAll(strings.Join(strings.Fields(value), " "), number, "{base}")
		}
	}
	if diff := cmp.Diff(p.status, status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	for line := range strings.Lines(procFile(t, pid, "limits")) {
		for name, want := range p.limits {
			if rest, ok := strings.CutPrefix(line, name); ok {
				if got := strings.Join(strings.Fields(rest)[:2], " "); got != want {
					t.Errorf("limit %s is %s; want %s", name, got, want)
				}
			}
		}
	}
	if got := strings.TrimSpace(procFile(t, pid, "oom_score_adj")); got != p.oom {
		t.Errorf("oom_score_adj %s; want %s", got, p.oom)
	}
	for _, name := range []string{"uid_map", "gid_map"} {
		got := strings.ReplaceAll(strings.Join(strings.Fields(procFile(t, pid, name)), " "), number, "{base}")
		if got != p.uidMap {
			t.Errorf("%s %q; want %q", name, got, p.uidMap)
		}
	}
	p.checkFDs(t, pid)
}

func (p posture) checkFDs(t *testing.T, pid int) {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 3 {
		t.Errorf("%d descriptors", len(entries))
	}
	for _, e := range entries {
		to := link(t, pid, "fd/"+e.Name())
		if !slices.ContainsFunc(p.fds, func(re string) bool { return regexp.MustCompile(re).MatchString(to) }) {
			t.Errorf("descriptor %s is %s", e.Name(), to)
		}
	}
}

func checkMounts(t *testing.T, d *Driver, pid int) {
	t.Helper()
	var want, got []string
	for line := range strings.Lines(strings.TrimSpace(wantMounts)) {
		line, maybe := strings.CutPrefix(strings.TrimSpace(line), "?")
		path, _, _ := strings.Cut(line, " ")
		if !maybe || exists(path) {
			want = append(want, line)
		}
	}
	thermal, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
	for _, path := range thermal {
		want = append(want, path+" tmpfs ro,nosuid,nodev,noexec,relatime")
	}
	for line := range strings.Lines(procFile(t, pid, "mountinfo")) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		got = append(got, f[4]+" "+f[dash+1]+" "+f[5])
		for _, secret := range []string{d.cfg.DataDir, d.cfg.RunDir, shared.dir, d.cfg.Instance} {
			if strings.Contains(line, secret) {
				t.Errorf("a path of the host can be read inside: %s", line)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

// checkInside looks from within: what must fail, fails, and nothing tells of the
// host.
func checkInside(t *testing.T, d *Driver, sh *drivertest.Shell, base uint32) {
	t.Helper()
	for _, c := range []struct{ cmd, want string }{
		{"id -u; id -g", "0\n0\n"},
		{"hostname", "box\n"},
		{"cat /proc/sys/user/max_user_namespaces", "0\n"},
		{"grep -c : /proc/net/dev", "1\n"}, // lo
		{"wc -l < /proc/net/unix", "1\n"},  // the heading: no socket of the host or guest
		{"touch /etc/x && stat -c %u:%g /etc/x", "0:0\n"},
		{"cat /proc/1/environ 2>/dev/null || echo denied", "denied\n"},
		{"ls /proc/1/fd 2>/dev/null || echo denied", "denied\n"},
		{"echo 1 2>/dev/null > /proc/sys/kernel/core_pattern || echo denied", "denied\n"},
		{"mount -t tmpfs x /mnt 2>/dev/null || echo denied", "denied\n"},
		{"umount /proc/sys 2>/dev/null || echo denied", "denied\n"},
		{"mknod /mem c 1 1 2>/dev/null && cat /mem 2>/dev/null || echo denied", "denied\n"},
		{"unshare -Ur true 2>/dev/null || echo denied", "denied\n"},
		{"kill -9 1; kill -TERM 1; kill -SEGV 1; echo alive", "alive\n"},
	} {
		out, _ := sh.Run(t, c.cmd)
		if out != c.want {
			t.Errorf("%s: %q; want %q", c.cmd, out, c.want)
		}
	}
	out, _ := sh.Run(t, "cat /proc/self/cgroup /proc/self/mountinfo")
	if strings.Contains(out, d.cfg.Instance) || strings.Contains(out, d.cfg.DataDir) {
		t.Errorf("names of the host can be read inside:\n%s", out)
	}
	if strings.Contains(out, fmt.Sprint(base)+" ") {
		t.Errorf("host ids can be read inside:\n%s", out)
	}
}

func procFile(t *testing.T, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func link(t *testing.T, pid int, name string) string {
	t.Helper()
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return to
}
