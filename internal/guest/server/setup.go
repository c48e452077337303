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

// closeOthers closes every descriptor above 2 that was not given by name, and
// marks those close-on-exec. The runtime's own poller is not open yet or is
// close-on-exec and among what must stay.
func closeOthers(keep []int) {
	for _, n := range openFiles() {
		if n < 3 || slices.Contains(keep, n) || runtimeOwn(n) {
			continue
		}
		unix.Close(n)
	}
	for _, n := range keep {
		unix.CloseOnExec(n)
	}
}

// openFiles lists our descriptors, from /proc or, where that is shut, by trying.
func openFiles() (list []int) {
	for n := range 1024 {
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// runtimeOwn says whether Go's runtime opened it: those are close-on-exec, what
// was inherited is not.
func runtimeOwn(n int) bool {
	flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC != 0
}

// ignoreSignals puts every signal to its default, which an init ignores when it
// comes from inside, even when it is forged by sigqueue. Go's own handlers would
// end the process. Two stay: SIGURG preempts goroutines, 33 is for setuid.
func ignoreSignals() {
	type sigaction struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	var dfl sigaction
	for sig := uintptr(1); sig <= 64; sig++ {
		if sig == uintptr(syscall.SIGURG) || sig == 33 {
			continue
		}
		// KILL and STOP refuse: they never reach an init from inside anyway.
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&dfl)), 0, 8, 0, 0)
	}
}
