package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// From here on the numbers are those of x32, a second ABI behind the same
	// architecture value.
	foreignFrom = 0x40000000
)
