package sysprog

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// vfork makes the call and gives its result, in the parent and in the child; an
// error as the kernel gives it, between -4095 and -1. Unlike syscall.RawSyscall it
// survives that parent and child share the stack (CLONE_VM).
//
//go:noescape
func vfork(nr, a0, a1, a2 uintptr) uintptr

// order is all that the child needs, with nothing left to look up.
type order struct {
	nr    uintptr // clone or clone3
	args  [3]uintptr
	list  *step
	count uintptr
	slots *[Slots]uintptr
	page  *page
	zero  *[64]byte // an all-zero struct sigaction and signal set
	reset uint64    // signals to put to their defaults: bit 0 is signal 1
}

// fork clones and lets the child run the list. In the parent it gives the pid.
//
// entersyscall is the outermost call: the thread may wait for the child in the
// kernel for milliseconds, and a garbage collection must not wait with it. After
// beforeFork nothing here may grow the stack, allocate or store a pointer; every
// function called is nosplit.
//
//go:noinline
//go:norace
//go:nocheckptr
func fork(o *order) (pid uintptr, errno syscall.Errno) {
	entersyscall()
	beforeFork()
	r := split(o)
	afterFork()
	exitsyscall()
	if e := -r; e > 0 && e < 4096 {
		return 0, syscall.Errno(e)
	}
	return r, 0
}

// split is the clone. The child does not return from it: while it shares the stack
// with the parent it may write to this frame and below, of which the parent, once it
// goes on, uses nothing but the result of vfork.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func split(o *order) uintptr {
	if r := vfork(o.nr, o.args[0], o.args[1], o.args[2]); r != 0 {
		return r
	}

	// The child. Signals are blocked until the handlers of Go are at their defaults.
	// The runtime has a function for that, which makes 60 calls whatever is needed;
	// the rest of what it does is for children that run Go code.
	zero := uintptr(unsafe.Pointer(o.zero))
	for sig := uintptr(1); sig <= 64; sig++ {
		// Also those that the parent ignores: an ignored SIGPIPE or SIGINT would be
		// inherited over exec. KILL and STOP give EINVAL.
		if o.reset&(1<<(sig-1)) != 0 {
			syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, zero, 0, 8, 0, 0)
		}
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, zero, 0, 8, 0, 0)

	failed := false
	for i := uintptr(0); i < o.count; i++ {
		s := (*step)(unsafe.Add(unsafe.Pointer(o.list), i*unsafe.Sizeof(step{})))
		if s.when == then && failed || s.when == otherwise && !failed {
			continue
		}
		o.page.at = uint32(i + 1)
		var a [6]uintptr
		for j := uintptr(0); j < 6; j++ {
			a[j] = s.args[j]
			if s.slotted&(1<<j) != 0 {
				a[j] = o.slots[a[j]&(Slots-1)]
			}
		}
		r, _, e := syscall.RawSyscall6(s.nr, a[0], a[1], a[2], a[3], a[4], a[5])
		if e != 0 && e != s.ignore[0] && e != s.ignore[1] && e != s.ignore[2] && e != s.ignore[3] {
			o.page.errno = uint32(e)
			for {
				syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 127, 0, 0, 0, 0, 0)
			}
		}
		if s.when == always {
			failed = e != 0
		}
		if s.save >= 0 {
			o.slots[uintptr(s.save)&(Slots-1)] = r
		}
	}
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
}
