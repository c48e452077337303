package spawner

import (
	"context"
	"fmt"
	"os"
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

// holderPatience bounds the waiting for the child that makes the namespaces.
const holderPatience = 10 * time.Second

// newBundle makes a bundle by a child that is born into the new namespaces. The
// child waits for the end of a pipe, so it ends with the spawner.
func newBundle(ctx context.Context, base uint32) (*Bundle, error) {
	park, parkEnd, err := os.Pipe() // the child reads park until its end
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer park.Close()
	defer parkEnd.Close()
	ready, say, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer ready.Close()
	defer say.Close()

	p := holderProgram(int(park.Fd()), int(say.Fd()))
	defer p.Release()
	pid, pidfd, err := p.Fork(unix.CLONE_NEWUSER|unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS,
		sysprog.ForkOptions{Pidfd: true})
	if err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	defer func() {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		_ = waitPidfd(pidfd, nil)
		_ = unix.Close(pidfd)
	}()
	if err := mapIDs(pid, base); err != nil {
		return nil, err
	}
	// Its end of the pipe closes when it dies, but children cloned by other calls may
	// hold copies of ours: so ask for its life too.
	if err := awaitHolder(ctx, ready, pidfd); err != nil {
		if cause := p.Err(); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	b := &Bundle{}
	for _, ns := range []struct {
		name string
		file **os.File
	}{{"user", &b.User}, {"net", &b.Net}, {"ipc", &b.IPC}, {"uts", &b.UTS}} {
		// The pid is that of a child that was not collected yet: it is the right one.
		if *ns.file, err = os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, ns.name)); err != nil {
			b.Close()
			return nil, fmt.Errorf("open the %s namespace: %w", ns.name, err)
		}
	}
	return b, nil
}

// holderProgram runs in the new namespaces with all rights over them.
func holderProgram(park, say int) *sysprog.Program {
	p := sysprog.New()
	p.Files([]int{park, say})
	p.Call("close other descriptors", unix.SYS_CLOSE_RANGE, 2, uintptr(^uint32(0)), 0)
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

func mapIDs(pid int, base uint32) error {
	line := fmt.Appendf(nil, "0 %d %d\n", base, spawn.IDs)
	for _, file := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file), line, 0); err != nil {
			return fmt.Errorf("map the ids of the user namespace: %w", err)
		}
	}
	return nil
}

func awaitHolder(ctx context.Context, ready *os.File, pidfd int) error {
	end := time.Now().Add(holderPatience)
	fds := []unix.PollFd{{Fd: int32(ready.Fd()), Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 100)
		switch {
		case err != nil && err != unix.EINTR:
			return fmt.Errorf("wait for the child: %w", err)
		case n > 0 && fds[0].Revents&unix.POLLIN != 0:
			return nil
		case n > 0 && fds[1].Revents != 0:
			return fmt.Errorf("the child ended")
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(end):
			return fmt.Errorf("the child did not get ready within %v", holderPatience)
		}
	}
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
