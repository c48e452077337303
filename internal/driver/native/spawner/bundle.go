package spawner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
	"github.com/seaofsimulation/sos/internal/sysprog"
)

// Bundle is a set of namespaces for one sandbox, made ahead of its process: a user
// namespace with the sandbox's range of ids, and net (with lo up), ipc and uts
// namespaces that it owns.
type Bundle struct {
	User, Net, IPC, UTS *os.File
}

// Close gives the namespaces up; those that a process is in live on.
func (b *Bundle) Close() {
	for _, f := range []*os.File{b.User, b.Net, b.IPC, b.UTS} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// holderPatience bounds the life of the child that makes the namespaces.
const holderPatience = 10 * time.Second

// holder is the child that is born into the new namespaces and stays in them until
// they are held by descriptors.
type holder struct {
	program *sysprog.Program
	park    int // the child reads it until its end
	ready   int // the child's word that it is there, or the end
	ended   chan struct{}
	err     error // then set: why it did not get to its end
}

// startHolder begins to make the namespaces of a bundle. The program shares our
// memory and keeps a thread until it ends, so it has a goroutine, which work starts
// and its owner waits for. [holder.bundle] must be called.
func startHolder(work func(func())) (*holder, error) {
	var park, ready [2]int
	if err := unix.Pipe2(park[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	if err := unix.Pipe2(ready[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(park[0])
		_ = unix.Close(park[1])
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	h := &holder{program: holderProgram(park[0], ready[1]), park: park[1], ready: ready[0], ended: make(chan struct{})}
	work(func() {
		_, _, h.err = h.program.Fork(unix.CLONE_NEWUSER|unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS,
			sysprog.ForkOptions{Stay: true, Timeout: holderPatience})
		h.program.Release()
		_ = unix.Close(park[0])
		_ = unix.Close(ready[1])
		close(h.ended)
	})
	return h, nil
}

// bundle gives the user namespace the range of ids, takes hold of the namespaces, and
// lets the child go, once it is through.
func (h *holder) bundle(base uint32) (*Bundle, error) {
	b, err := h.take(base)
	_ = unix.Close(h.park)
	_ = unix.Close(h.ready)
	if err == nil {
		return b, nil
	}
	b.Close()
	<-h.ended
	if h.err != nil { // it knows better
		err = h.err
	}
	return nil, fmt.Errorf("make namespaces: %w", err)
}

// take gives what it has got also with an error.
func (h *holder) take(base uint32) (b *Bundle, err error) {
	b = &Bundle{}
	if err := h.await(); err != nil {
		return b, err
	}
	proc := "/proc/" + strconv.Itoa(int(h.program.Result(slotPid)))
	if err := mapIDs(proc, base); err != nil {
		return b, err
	}
	for _, ns := range []struct {
		name string
		file **os.File
	}{{"user", &b.User}, {"net", &b.Net}, {"ipc", &b.IPC}, {"uts", &b.UTS}} {
		path := proc + "/ns/" + ns.name
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return b, fmt.Errorf("open the %s namespace: %w", ns.name, err)
		}
		*ns.file = os.NewFile(uintptr(fd), path)
	}
	if err := h.await(); err != nil {
		return b, err
	}
	select {
	case <-h.ended: // its patience ended first, and the pid may have become another's
		return b, errHolderEnded
	default:
		return b, nil
	}
}

var errHolderEnded = errors.New("the child ended")

// await reads a word of the child: first that it is there, then that all is set.
// Without one the end of the pipe comes with the end of the child, which has a limit.
func (h *holder) await() error {
	for {
		n, err := unix.Read(h.ready, make([]byte, 1))
		switch {
		case n == 1:
			return nil
		case err == nil:
			return errHolderEnded
		case err != unix.EINTR:
			return fmt.Errorf("wait for the child: %w", err)
		}
	}
}

const slotPid = 5 // of the holder's own pid

// holderProgram runs in the new namespaces with all rights over them. It dies with
// the spawner: the pipe that it reads ends then.
func holderProgram(park, say int) *sysprog.Program {
	p := sysprog.New()
	p.Files([]int{park, say})
	p.Call("close other descriptors", unix.SYS_CLOSE_RANGE, 2, uintptr(^uint32(0)), 0)
	// Its ids are mapped and its namespaces opened while it sets them up.
	p.Call("get the pid", unix.SYS_GETPID).Save(slotPid)
	p.Write("say that it is there", 1, "r")
	// lo up. struct ifreq: a name of 16 bytes, then the flags.
	req := make([]byte, 40)
	copy(req, "lo")
	req[16] = unix.IFF_UP
	p.Call("open a socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0).Save(0)
	p.Call("bring lo up", unix.SYS_IOCTL, 0, unix.SIOCSIFFLAGS, p.Ptr(req)).Use(0, 0)
	// No user namespace below this one, not even where the filter of system calls had
	// a hole. The value belongs to the namespace; the host's stays.
	p.Call("open user.max_user_namespaces", unix.SYS_OPENAT, sysprog.AtCWD,
		p.Str("/proc/sys/user/max_user_namespaces"), unix.O_WRONLY|unix.O_CLOEXEC, 0).Save(1)
	p.Call("set user.max_user_namespaces", unix.SYS_WRITE, 0, p.Ptr([]byte("0")), 1).Use(0, 1)
	// As containers have it: ports below 1024 are no more special than others in a
	// network of one's own.
	p.Call("open ip_unprivileged_port_start", unix.SYS_OPENAT, sysprog.AtCWD,
		p.Str("/proc/sys/net/ipv4/ip_unprivileged_port_start"), unix.O_WRONLY|unix.O_CLOEXEC, 0).Save(2).Ignore(unix.ENOENT)
	p.Call("set ip_unprivileged_port_start", unix.SYS_WRITE, 0, p.Ptr([]byte("0")), 1).Use(0, 2).Then()
	p.Write("say ready", 1, "r")
	p.Call("park", unix.SYS_READ, 0, p.Ptr(make([]byte, 1)), 1)
	return p
}

func mapIDs(proc string, base uint32) error {
	line := fmt.Appendf(nil, "0 %d %d\n", base, spawn.IDs)
	for _, file := range []string{"/uid_map", "/gid_map"} {
		if err := os.WriteFile(proc+file, line, 0); err != nil {
			return fmt.Errorf("map the ids of the user namespace: %w", err)
		}
	}
	return nil
}

// waitPidfd collects a child.
func waitPidfd(pidfd int, info *unix.Siginfo) error {
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, info, unix.WEXITED, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// siginfoStatus reads si_code and si_status, at 8 and 24 on 64-bit systems.
func siginfoStatus(info *unix.Siginfo) (code, status int) {
	p := unsafe.Pointer(info)
	return int(*(*int32)(unsafe.Add(p, 8))), int(*(*int32)(unsafe.Add(p, 24)))
}
