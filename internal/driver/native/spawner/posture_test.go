package spawner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// proc reads a file of the guest's /proc, on the host.
func proc(t *testing.T, pid int, file string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// field gives the value of a line "name:\tvalue" of a status.
func field(status, name string) string {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return "(none)"
}

// TestPosture reads what the kernel says of a guest and of a user's process, on
// both ways to an overlay.
func TestPosture(t *testing.T) {
	for _, how := range []string{overlayFD, overlayAttach} {
		t.Run(how, func(t *testing.T) { testPosture(t, how) })
	}
}

func testPosture(t *testing.T, how string) {
	r := newRig(t, "-overlay", how)
	req := r.request("sb-posture")
	before := fingerprint(t, image(t))
	pid := r.create(req).Pid
	out := r.sh(req.ID, "id -u; id -g; hostname; cat /etc/hostname; pwd")
	if want := "0\n0\nbox-sb-posture\nbox-sb-posture\n/\n"; out != want {
		t.Errorf("inside: %q, want %q", out, want)
	}

	const mask = "00000000a80425fb" // Docker's 14
	user := r.sh(req.ID, "cat /proc/self/status")
	guest := proc(t, pid, "status")
	for _, status := range []string{guest, user} {
		for name, want := range map[string]string{
			"CapEff": mask, "CapPrm": mask, "CapBnd": mask, "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
			"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "1", "Groups": "",
		} {
			if got := field(status, name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
	base := req.IDBase
	if got, want := field(guest, "Uid"), fmt.Sprintf("%d %d %d %d", base, base, base, base); got != want {
		t.Errorf("Uid on the host: %s, want %s", got, want)
	}
	for _, m := range []string{"uid_map", "gid_map"} {
		if got, want := strings.Join(strings.Fields(proc(t, pid, m)), " "), fmt.Sprintf("0 %d 65536", base); got != want {
			t.Errorf("%s: %s, want %s", m, got, want)
		}
	}
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		inside, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err != nil {
			t.Fatal(err)
		}
		if outside, _ := os.Readlink("/proc/self/ns/" + ns); inside == outside {
			t.Errorf("the %s namespace is the host's", ns)
		}
	}
	if got := strings.TrimSpace(proc(t, pid, "oom_score_adj")); got != oomScore {
		t.Errorf("oom_score_adj %s", got)
	}
	checkLimits(t, proc(t, pid, "limits"))
	checkDescriptors(t, pid, r.sh(req.ID, "ls -l /proc/self/fd"))
	checkCgroups(t, r, req.ID, pid)
	checkMounts(t, proc(t, pid, "mountinfo"), r.dir, filepath.Dir(image(t)))
	checkInside(t, r, req.ID)
	if fingerprint(t, image(t)) != before {
		t.Error("the image was changed")
	}
	env := proc(t, pid, "environ")
	if !strings.HasPrefix(env, "SOS_GUEST=listen=3;join=4") || !strings.HasSuffix(env, ";dir=/dev/.sos\x00GOMAXPROCS=1\x00") {
		t.Errorf("environment %q", env)
	}
}

func checkLimits(t *testing.T, limits string) {
	t.Helper()
	for name, want := range map[string]string{"Max core file size": "1 1 bytes", "Max open files": "65536 1048576 files"} {
		found := false
		for line := range strings.Lines(limits) {
			if v, ok := strings.CutPrefix(line, name); ok {
				found = strings.Join(strings.Fields(v), " ") == want
			}
		}
		// Go raises its own soft limit on files to the hard one.
		if !found && name != "Max open files" {
			t.Errorf("%s is not %s:\n%s", name, want, limits)
		}
	}
}

// checkDescriptors: the guest has what it was given and what it opened itself, a
// user's process only 0 to 2 and the directory that ls reads.
func checkDescriptors(t *testing.T, pid int, inside string) {
	t.Helper()
	if n := strings.Count(inside, "->"); n != 4 {
		t.Errorf("descriptors of a user's process:\n%s", inside)
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil {
			continue // closed just now
		}
		ok := false
		for _, prefix := range []string{"/dev/null", "socket:", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "pipe:",
			"anon_inode:[pidfd]", "pidfd:", "/sos-", "/null"} {
			ok = ok || strings.HasPrefix(target, prefix)
		}
		ok = ok || strings.HasSuffix(target, "/"+logPipe) || strings.Contains(target, "/user/") || strings.HasSuffix(target, "memory.oom_control")
		if !ok {
			t.Errorf("the guest holds %s -> %s", fd, target)
		}
	}
}

func checkCgroups(t *testing.T, r *rig, id string, pid int) {
	t.Helper()
	if out := r.sh(id, "cat /proc/self/cgroup"); strings.Contains(out, "sos-") {
		t.Errorf("a user's process sees the host's groups:\n%s", out)
	}
	guest := proc(t, pid, "cgroup")
	if !strings.Contains(guest, "/sos-"+r.instance+"/"+id+"/guest\n") || strings.Contains(guest, "/user") {
		t.Errorf("groups of the guest:\n%s", guest)
	}
}

func checkMounts(t *testing.T, mountinfo string, hostDirs ...string) {
	t.Helper()
	for _, dir := range hostDirs {
		if strings.Contains(mountinfo, dir) {
			t.Errorf("the mounts tell a path of the host:\n%s", mountinfo)
		}
	}
	options := map[string]string{}
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		options[f[4]] = f[5] + " " + line[strings.Index(line, " - "):]
		if strings.Contains(line, "shared:") || strings.Contains(line, "master:") {
			t.Errorf("a mount that is not private: %s", line)
		}
	}
	for point, want := range map[string][]string{
		"/":                   {"rw", "nodev", "- overlay", "volatile"},
		"/proc":               {"nosuid,nodev,noexec", "- proc"},
		"/dev":                {"nosuid", "- tmpfs"},
		"/dev/pts":            {"nosuid,noexec", "- devpts"},
		"/dev/shm":            {"nosuid,nodev,noexec", "- tmpfs"},
		"/dev/mqueue":         {"nosuid,nodev,noexec", "- mqueue"},
		"/dev/.sos":           {"nosuid,nodev,noexec", "- tmpfs"},
		"/sys":                {"ro,nosuid,nodev,noexec", "- sysfs"},
		"/sys/firmware":       {"ro,", "- tmpfs"},
		"/proc/sys":           {"ro,nosuid,nodev,noexec"},
		"/proc/sysrq-trigger": {"ro,nosuid,nodev,noexec"},
		"/proc/keys":          {"tmpfs"},
		"/etc/hosts":          {"rw", "- tmpfs"},
		"/etc/hostname":       {"rw", "- tmpfs"},
		"/etc/resolv.conf":    {"rw", "- tmpfs"},
	} {
		got, ok := options[point]
		if !ok {
			if _, err := os.Stat(point); err != nil && strings.HasPrefix(point, "/proc") {
				continue // this kernel does not have it
			}
			t.Errorf("no mount on %s:\n%s", point, mountinfo)
			continue
		}
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("mount on %s: %s lacks %s", point, got, w)
			}
		}
	}
}

// checkInside tries from inside what must work and what must not.
func checkInside(t *testing.T, r *rig, id string) {
	t.Helper()
	for text, want := range map[string]string{
		"cat /sys/class/net/lo/operstate; ls /sys/class/net | wc -l":                "unknown\n1\n",
		"stat -c '%A %u:%g' /workspace /tmp /":                                      "drwxr-xr-x 0:0\ndrwxrwxrwt 0:0\ndrwxr-xr-x 0:0\n",
		"stat -c '%a %u' /dev/null /dev/.sos /dev/shm":                              "666 0\n711 0\n1777 0\n",
		"echo x > /dev/null && head -c 3 /dev/zero | wc -c":                         "3\n",
		"grep -c localhost /etc/hosts":                                              "2\n",
		"echo mine >> /etc/hosts && tail -1 /etc/hosts":                             "mine\n",
		"cat /proc/sys/net/ipv4/ip_unprivileged_port_start":                         "0\n",
		"cat /proc/sys/user/max_user_namespaces":                                    "0\n",
		"ulimit -c 0 && grep -c 'core file size  *1  *1  *bytes' /proc/self/limits": "1\n",
		"find / -xdev -nouser -o -xdev -nogroup | head":                             "",
		"wc -c < /proc/interrupts":                                                  "0\n",
		"ls /sys/firmware | wc -l":                                                  "0\n",
		"touch /usr/bin/new && rm /usr/bin/new /usr/bin/tac && echo done":           "done\n",
	} {
		out := r.sh(id, text)
		if want != "" && out != want || strings.HasPrefix(text, "find") && out != "" {
			t.Errorf("%s: %q, want %q", text, out, want)
		}
	}
	for _, text := range []string{
		"mount -t tmpfs x /mnt", "umount /proc/sys", "mount -o remount,rw /sys", "unshare -U true", "unshare -m true",
		"echo 1 > /proc/sys/kernel/panic", "echo x > /proc/sysrq-trigger", "mknod /dev/kmsg c 1 11", "mknod /tmp/sda b 8 0",
		"cat /proc/1/environ", "ls /proc/1/fd", "readlink /proc/1/root", "dd if=/proc/1/mem count=1", "kill -9 1; false",
		"hostname other", "nsenter -t 1 -m true", "chroot /proc/1/root true", "date -s 2001-01-01",
	} {
		if out := r.sh(id, text); !strings.HasSuffix(out, "]") {
			t.Errorf("%s works: %q", text, out)
		}
	}
	if out := r.sh(id, "echo alive"); out != "alive\n" {
		t.Errorf("after that: %q", out)
	}
}
