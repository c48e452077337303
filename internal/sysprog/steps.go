package sysprog

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exec ends the program by executing path.
func (p *Program) Exec(path string, argv, env []string) {
	a, e := p.strings(argv), p.strings(env)
	p.Call("exec "+path, unix.SYS_EXECVE, p.Str(path), a, e)
	p.exec = true
}

// ExecFD ends the program by executing the file behind fd, which may be O_PATH
// and close-on-exec (but then not a script: its interpreter could not open it).
func (p *Program) ExecFD(fd int, argv, env []string) {
	a, e := p.strings(argv), p.strings(env)
	p.Call("exec", unix.SYS_EXECVEAT, uintptr(fd), p.Str(""), a, e, unix.AT_EMPTY_PATH)
	p.exec = true
}

func (p *Program) strings(list []string) uintptr {
	ptrs, err := syscall.SlicePtrFromStrings(list)
	if err != nil {
		p.fail(fmt.Errorf("a NUL byte in an argument or variable"))
		return 0
	}
	p.keep = append(p.keep, ptrs)
	return uintptr(unsafe.Pointer(&ptrs[0]))
}

// firstHigh is above every descriptor number that Files gives out.
const firstHigh = 256

// Files makes descriptor i of the child a duplicate of fds[i], for every i. It
// may be called once. Other descriptors are left as they are (close-on-exec).
func (p *Program) Files(fds []int) {
	if len(fds) > Slots/2 {
		p.fail(fmt.Errorf("%d files", len(fds)))
		return
	}
	// First out of the way: a target may be the source of a later one.
	for i, fd := range fds {
		p.Call(fmt.Sprintf("duplicate descriptor %d", fd), unix.SYS_FCNTL,
			uintptr(fd), unix.F_DUPFD_CLOEXEC, firstHigh).Save(Slots/2 + i)
	}
	p.place(len(fds))
}

// FilesFromSlots is Files for descriptors that earlier steps opened.
func (p *Program) FilesFromSlots(slots []int) {
	if len(slots) > Slots/2 {
		p.fail(fmt.Errorf("%d files", len(slots)))
		return
	}
	for i, slot := range slots {
		p.Call(fmt.Sprintf("duplicate descriptor of slot %d", slot), unix.SYS_FCNTL,
			0, unix.F_DUPFD_CLOEXEC, firstHigh).Use(0, slot).Save(Slots/2 + i)
	}
	p.place(len(slots))
}

func (p *Program) place(n int) {
	for i := range n {
		p.Call(fmt.Sprintf("place descriptor %d", i), unix.SYS_DUP3, 0, uintptr(i), 0).Use(0, Slots/2+i)
	}
}

// Set puts a value that is known beforehand into a slot.
func (p *Program) Set(slot int, value uintptr) {
	if slot < 0 || slot >= Slots {
		p.fail(fmt.Errorf("no slot %d", slot))
		return
	}
	p.slots[slot] = value
}

// CloseOnExecFrom marks every descriptor from fd on close-on-exec: a second lock
// behind O_CLOEXEC. Kernels before 5.11 do not know it, which is ignored.
func (p *Program) CloseOnExecFrom(fd int) {
	p.Call("close_range", unix.SYS_CLOSE_RANGE, uintptr(fd), uintptr(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC).
		Ignore(unix.ENOSYS, unix.EINVAL)
}

// Rlimit sets a resource limit.
func (p *Program) Rlimit(name string, resource int, soft, hard uint64) {
	l := &unix.Rlimit{Cur: soft, Max: hard}
	p.keep = append(p.keep, l)
	p.Call("set limit "+name, unix.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(l)), 0)
}

// Write writes b to a descriptor.
func (p *Program) Write(name string, fd int, b string) *Step {
	return p.Call(name, unix.SYS_WRITE, uintptr(fd), p.Ptr([]byte(b)), uintptr(len(b)))
}

// AtCWD is AT_FDCWD as an argument: paths relative to the working directory.
const AtCWD = ^uintptr(99) // -100
