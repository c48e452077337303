// Package sysprog runs a list of raw system calls in a freshly cloned child,
// between the clone and the exec.
//
// A Go program cannot run Go code in a forked child: only the forking thread
// exists there, while the locks of the runtime may be held by threads that do
// not. So what the child has to do is written down beforehand as a [Program],
// and the child only walks over that list with RawSyscall6: no allocation, no
// stack growth, no scheduler.
//
// The child gets a copy-on-write copy of the memory (no CLONE_VM, so no assembly
// is needed) and the parent thread waits in the kernel until the child has
// exec'd or is gone (CLONE_VFORK). This tells success and failure apart without a
// pipe, whose write end other children forked at the same time would hold open.
// A program without an exec does not make the parent wait: see [Program.Fork].
//
// All descriptors of the calling program must be close-on-exec, as Go's are;
// syscall.ForkLock is not taken, and forks run in parallel.
package sysprog
