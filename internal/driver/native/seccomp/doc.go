// Package seccomp compiles the system call filter of sandboxes: Docker's default
// profile for the capabilities that a sandbox has, as a BPF program.
//
// The program searches the number among intervals of numbers with the same answer.
// When a filter is installed the kernel runs it once for every number, so depth is
// what a start pays for.
//
// What differs from the profile as Docker installs it:
//
//   - Only the native architecture runs: another one (i386 on amd64) ends the
//     process, and x32 numbers are refused.
//   - Numbers above all that the profile names answer ENOSYS, as runc does it: a
//     libc that probes a newer call then uses its fallback.
//   - RLIMIT_CORE cannot be changed (it looks as if it could). At 1 the kernel
//     dumps no core and runs no core_pattern helper of the host; at 0 it would
//     run the helper.
//
// Arguments are compared in their low 32 bits: all that the profile names are
// ints, of which the kernel reads no more, so that a comparison of 64 bits could be
// dodged.
package seccomp

//go:generate go run gen.go
