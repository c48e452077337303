package server

import (
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/sysprog"
)

// child is a process that the guest started itself.
type child struct {
	pid    int
	done   chan struct{}
	status syscall.WaitStatus // valid when done is closed
}

// reaper collects every process that ends. Two rules keep statuses from being lost
// or mixed up: a fork and its entry in the table are one step, and a zombie is
// only looked at (WNOWAIT) until no fork is in flight. While it is not collected
// its pid cannot be another's.
type reaper struct {
	mu   sync.RWMutex // read: a fork or a signal is under way; write: collecting
	poke chan struct{}

	table sync.Mutex
	kids  map[int]*child
}

func newReaper() *reaper {
	return &reaper{poke: make(chan struct{}, 1), kids: map[int]*child{}}
}

// fork runs a program that ends in an exec.
func (r *reaper) fork(p *sysprog.Program, opt sysprog.ForkOptions) (*child, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	opt.Signals = keptSignals[:]
	pid, _, err := p.Fork(0, opt)
	if err != nil {
		return nil, err
	}
	c := &child{pid: pid, done: make(chan struct{})}
	r.table.Lock()
	r.kids[pid] = c
	r.table.Unlock()
	select {
	case r.poke <- struct{}{}:
	default:
	}
	return c, nil
}

// loop reaps for ever.
func (r *reaper) loop() {
	for {
		pid, err := peek(unix.P_ALL, 0, 0)
		switch err {
		case 0:
			r.collect(pid)
		case unix.ECHILD:
			<-r.poke // nobody below us, so nobody can become an orphan of ours
		}
	}
}

func (r *reaper) collect(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ws syscall.WaitStatus
	got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
	if err != nil || got != pid {
		return // a failed fork was collected by the one who made it
	}
	r.table.Lock()
	c := r.kids[pid]
	delete(r.kids, pid)
	r.table.Unlock()
	if c != nil {
		c.status = ws
		close(c.done)
	}
}

// signal sends a signal to a child, or to its process group. False: it has ended,
// whether collected or not.
func (r *reaper) signal(c *child, sig syscall.Signal, group bool) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.owns(c.pid, c) {
		return false
	}
	if pid, err := peek(unix.P_PID, c.pid, unix.WNOHANG); err != 0 || pid != 0 {
		return false
	}
	pid := c.pid
	if group {
		pid = -pid
	}
	return syscall.Kill(pid, sig) == nil
}

// owns says whether pid is now child c, or any child of ours where c is nil.
func (r *reaper) owns(pid int, c *child) bool {
	r.table.Lock()
	defer r.table.Unlock()
	have := r.kids[pid]
	return have != nil && (c == nil || have == c)
}

// peek waits for an ended child without collecting it. 0 with WNOHANG: none.
func peek(kind, id int, flags int) (pid int, errno syscall.Errno) {
	var info [128]byte // si_pid is at offset 16 on 64-bit systems
	for {
		_, _, errno = syscall.Syscall6(unix.SYS_WAITID, uintptr(kind), uintptr(id), uintptr(unsafe.Pointer(&info)),
			uintptr(unix.WEXITED|unix.WNOWAIT|flags), 0, 0)
		if errno != syscall.EINTR {
			return int(*(*int32)(unsafe.Pointer(&info[16]))), errno
		}
	}
}
