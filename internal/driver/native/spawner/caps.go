package spawner

import "golang.org/x/sys/unix"

// caps are the capabilities of a sandbox, within its user namespace: those that
// containers get by default.
var caps = []struct {
	name   string
	number int
}{
	{"CAP_CHOWN", unix.CAP_CHOWN},
	{"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE},
	{"CAP_FOWNER", unix.CAP_FOWNER},
	{"CAP_FSETID", unix.CAP_FSETID},
	{"CAP_KILL", unix.CAP_KILL},
	{"CAP_SETGID", unix.CAP_SETGID},
	{"CAP_SETUID", unix.CAP_SETUID},
	{"CAP_SETPCAP", unix.CAP_SETPCAP},
	{"CAP_NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE},
	{"CAP_NET_RAW", unix.CAP_NET_RAW},
	{"CAP_SYS_CHROOT", unix.CAP_SYS_CHROOT},
	{"CAP_MKNOD", unix.CAP_MKNOD},
	{"CAP_AUDIT_WRITE", unix.CAP_AUDIT_WRITE},
	{"CAP_SETFCAP", unix.CAP_SETFCAP},
}

func capNames() []string {
	var names []string
	for _, c := range caps {
		names = append(names, c.name)
	}
	return names
}

func capMask() uint64 {
	var mask uint64
	for _, c := range caps {
		mask |= 1 << c.number
	}
	return mask
}
