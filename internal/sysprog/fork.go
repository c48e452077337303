package sysprog

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ForkOptions say how a child is made. The zero value is a plain child.
type ForkOptions struct {
	// Pidfd asks for a descriptor of the child (close-on-exec).
	Pidfd bool
	// Timeout kills a child that has not exec'd by then; 0: no limit. It is for
	// programs that end in an exec or stay.
	Timeout time.Duration
	// Cgroup is a directory of a version 2 cgroup that the child is born in, by
	// clone3(2); 0: the caller's. Filters for containers refuse clone3 with ENOSYS.
	Cgroup int
	// Signals are those that the calling program handles or ignores, which the
	// child puts to their defaults; none: it may be any, which costs 64 calls.
	Signals []syscall.Signal
	// Stay is for a program without an exec: Fork returns when the child has ended.
	// Until then the child shares the memory of this process, which is cheaper than a
	// copy. What it has done is told by [Program.Result].
	Stay bool
}

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// Fork clones a child with these clone(2) flags (namespaces; the signal at its end
// is SIGCHLD) and lets it run the program.
//
// A program with an exec: Fork returns when the child has exec'd or failed. A
// failure is a *StepError, and the child has been collected; it may also have been
// collected by a waiter for any child, which does no harm.
//
// A program without an exec ends with exit(0) after its last step: Fork returns at
// once, [Program.Err] says what went wrong with a child that is gone, and the
// caller collects it. With Stay, Fork does all of that before it returns; the caller
// releases the program.
//
// pidfd is -1 unless it was asked for.
func (p *Program) Fork(flags uintptr, opt ForkOptions) (pid, pidfd int, err error) {
	if p.used {
		p.fail(errors.New("a program is forked once"))
	}
	p.used = true
	if p.err != nil {
		return -1, -1, p.err
	}
	if p.page, err = newPage(); err != nil {
		return -1, -1, err
	}
	o := p.order(flags, opt)
	stop := p.watch(opt)
	n, errno := fork(o)
	stop()
	runtime.KeepAlive(p)
	runtime.KeepAlive(o)
	if errno != 0 {
		p.Release()
		return -1, -1, &StepError{Step: "clone", Errno: errno}
	}
	pid, pidfd = int(n), -1
	if opt.Pidfd {
		pidfd = p.page.loadChild()
	}
	if opt.Stay && !p.exec {
		return pid, -1, collect(pid, pidfd, p.Err())
	}
	if !p.exec {
		return pid, pidfd, nil
	}
	if err := p.Err(); err != nil {
		err = collect(pid, pidfd, err)
		p.Release()
		return -1, -1, err
	}
	p.Release()
	return pid, pidfd, nil
}

// Err says why a child did not come to the end of its program: nil when it did, or
// got as far as its exec. The child must have ended, or have exec'd.
func (p *Program) Err() error {
	if p.page == nil || p.page.errno == 0 && int(p.page.at) == len(p.steps) {
		return nil
	}
	name := "clone"
	if at := int(p.page.at); at > 0 && at <= len(p.steps) {
		name = p.steps[at-1].name
	}
	return &StepError{Step: name, Errno: syscall.Errno(p.page.errno)}
}

// Release frees what the program holds. Fork does so by itself when the program
// ends in an exec.
func (p *Program) Release() {
	if p.page != nil {
		p.page.free()
	}
	p.page, p.steps, p.list, p.keep = nil, nil, nil, nil
}

func (p *Program) order(flags uintptr, opt ForkOptions) *order {
	p.list = make([]step, len(p.steps)+1)
	for i, s := range p.steps {
		p.list[i] = s.step
	}
	o := &order{list: &p.list[0], count: uintptr(len(p.steps)), slots: p.slots, page: p.page, zero: new([64]byte), reset: opt.reset()}
	child := uintptr(unsafe.Pointer(&p.page.child))
	if p.exec || opt.Stay {
		flags |= unix.CLONE_VM | unix.CLONE_VFORK
	}
	if opt.Cgroup > 0 {
		p.clone = &cloneArgs{flags: uint64(flags) | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(opt.Cgroup)}
		if opt.Pidfd {
			p.clone.flags |= unix.CLONE_PIDFD
			p.clone.pidfd = uint64(child)
		} else {
			p.clone.flags |= unix.CLONE_PARENT_SETTID
			p.clone.parentTID = uint64(child)
		}
		o.nr = unix.SYS_CLONE3
		o.args = [3]uintptr{uintptr(unsafe.Pointer(p.clone)), unsafe.Sizeof(*p.clone)}
		return o
	}
	if opt.Pidfd {
		flags |= unix.CLONE_PIDFD // clone(2) puts it where the thread id would go
	} else {
		flags |= unix.CLONE_PARENT_SETTID
	}
	o.nr = unix.SYS_CLONE
	o.args = [3]uintptr{flags | uintptr(unix.SIGCHLD), 0, child}
	return o
}

func (opt ForkOptions) reset() (set uint64) {
	for _, s := range opt.Signals {
		set |= 1 << (s - 1)
	}
	if set == 0 {
		set = ^set
	}
	return set
}

// watch starts the watchdog over the child; the function that it gives ends it.
func (p *Program) watch(opt ForkOptions) (stop func()) {
	if opt.Timeout <= 0 || !p.exec && !opt.Stay {
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	t := time.AfterFunc(opt.Timeout, func() {
		defer close(done)
		for {
			// Until it is known: the clone itself may be what takes long.
			if child := p.page.loadChild(); child >= 0 {
				kill(child, opt.Pidfd)
				return
			}
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() {
		close(over)
		if !t.Stop() {
			<-done // it looks at the page
		}
	}
}

// kill ends a child; one that is gone already is fine.
func kill(child int, pidfd bool) {
	if pidfd {
		_ = unix.PidfdSendSignal(child, unix.SIGKILL, nil, 0)
		return
	}
	_ = unix.Kill(child, unix.SIGKILL)
}

// collect reaps a child and adds the signal that ended it to its error, if there is
// one.
func collect(pid, pidfd int, cause error) error {
	signal := syscall.Signal(0)
	if pidfd >= 0 {
		var info unix.Siginfo
		err := ignoringEINTR(func() error { return unix.Waitid(unix.P_PIDFD, pidfd, &info, unix.WEXITED, nil) })
		_ = unix.Close(pidfd)
		if err == nil {
			// si_status follows pid and uid, which are at offset 16 on 64-bit.
			signal = syscall.Signal(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 24)))
		}
	} else {
		var ws unix.WaitStatus
		err := ignoringEINTR(func() error { _, err := unix.Wait4(pid, &ws, 0, nil); return err })
		if err == nil && ws.Signaled() {
			signal = ws.Signal()
		}
	}
	if step, ok := errors.AsType[*StepError](cause); ok && step.Errno == 0 {
		step.Signal = signal
	}
	return cause
}

func ignoringEINTR(fn func() error) error {
	for {
		if err := fn(); err != unix.EINTR {
			if err != nil {
				return fmt.Errorf("collect a child: %w", err)
			}
			return nil
		}
	}
}
