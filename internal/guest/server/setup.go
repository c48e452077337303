package server

import (
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// secure makes this process one that nothing in the sandbox can get at or end.
// It comes before everything else.
func secure(cfg Config) error {
	keep := append([]int{cfg.Listen}, cfg.Join...)
	if cfg.OOM >= 0 {
		keep = append(keep, cfg.OOM)
	}
	closeOthers(keep)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	unix.Umask(0o022)
	if os.Getpid() == 1 {
		ignoreSignals()
		return nil
	}
	// Not an init (tests): orphans still come to us.
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// lowFiles is below what a descriptor of Go's runtime can be at the start.
const lowFiles = 64

// closeOthers closes every descriptor above 2 that was not given by name, and
// marks those close-on-exec. What the runtime opened itself stays: it is
// close-on-exec, what was inherited is not.
func closeOthers(keep []int) {
	stay := append([]int{2}, keep...)
	for n := 3; n < lowFiles; n++ {
		flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC != 0 {
			stay = append(stay, n)
		}
	}
	slices.Sort(stay)
	for i, n := range stay {
		last := uint(1<<32 - 1)
		if i+1 < len(stay) {
			last = uint(stay[i+1]) - 1
		}
		if first := uint(n) + 1; first <= last {
			closeRange(first, last)
		}
	}
	for _, n := range keep {
		unix.CloseOnExec(n)
	}
}

// closeRange closes first to last; kernels before 5.9 know no call for it.
func closeRange(first, last uint) {
	if unix.CloseRange(first, last, 0) == nil {
		return
	}
	for n := first; n <= min(last, 1<<16); n++ {
		unix.Close(int(n))
	}
}

// keptSignals keep their handlers: SIGURG preempts goroutines, 33 is for setuid.
var keptSignals = [...]syscall.Signal{syscall.SIGURG, 33}

// ignoreSignals puts every signal but those two to its default, which an init
// ignores when it comes from inside, even when it is forged by sigqueue. Go's own
// handlers would end the process.
func ignoreSignals() {
	type sigaction struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	var dfl sigaction
	for sig := uintptr(1); sig <= 64; sig++ {
		if slices.Contains(keptSignals[:], syscall.Signal(sig)) {
			continue
		}
		// KILL and STOP refuse: they never reach an init from inside anyway.
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&dfl)), 0, 8, 0, 0)
	}
}
