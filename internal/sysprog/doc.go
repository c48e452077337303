// Package sysprog runs a list of raw system calls in a freshly cloned child,
// between the clone and the exec.
//
// A Go program cannot run Go code in a forked child: only the forking thread
// exists there, while the locks of the runtime may be held by threads that do
// not. So what the child has to do is written down beforehand as a [Program],
// and the child only walks over that list with RawSyscall6: no allocation, no
// stack growth, no scheduler.
//
// The child shares the memory of its parent, whose thread waits in the kernel until
// the child has exec'd or is gone (CLONE_VM, CLONE_VFORK): no page tables are copied,
// and no page of a busy parent faults afterwards because it was shared. The waiting
// also tells success and failure apart without a pipe, whose write end other children
// forked at the same time would hold open. A program without an exec gets a copy of
// the memory and does not make the parent wait, unless it asks for that: see
// [Program.Fork].
//
// All descriptors of the calling program must be close-on-exec, as Go's are;
// syscall.ForkLock is not taken, and forks run in parallel.
package sysprog
