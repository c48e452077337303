package system

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/seaofsimulation/sos"
)

// tasks are the processes of a sandbox's users, as the host sees them.
func (b *box) tasks() []string {
	b.t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		text, err := os.ReadFile(filepath.Join(pattern, "sos-"+b.srv.Instance, b.id, "user", "cgroup.procs"))
		if err == nil {
			return strings.Fields(string(text))
		}
	}
	b.t.Fatalf("%s has no cgroup", b.id)
	return nil
}

// command lines of the tasks, for messages.
func lines(pids []string) (all []string) {
	for _, p := range pids {
		text, _ := os.ReadFile(filepath.Join("/proc", p, "cmdline")) // it may have ended
		all = append(all, p+" "+strings.ReplaceAll(string(text), "\x00", " "))
	}
	return all
}

// only waits until nothing runs in the sandbox but so many processes.
func (b *box) only(n int, after string) {
	b.t.Helper()
	var left []string
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if left = b.tasks(); len(left) <= n {
			return
		}
		if time.Now().After(end) {
			b.t.Errorf("after %s there run %q, want %d", after, lines(left), n)
			return
		}
	}
}

// A fork bomb reaches its limit and nothing else; the sandbox answers again.
func testForkBomb(r *rig) {
	b, other := r.use(sos.Limits{PIDs: 128}), r.use(sos.Limits{})
	for _, bomb := range []string{"b() { b | b & }; b; sleep 60", "while :; do (sleep 30 &) ; done", `perl -e 'fork while 1'`, `perl -e '$SIG{TERM}=$SIG{INT}="IGNORE"; for (1..20) { fork } while (1) {}'`} {
		done := b.background(sos.ExecRequest{Command: bomb, Standalone: true, Timeout: sos.Duration(2 * time.Second)})
		eventually(r.t, "the bomb has gone off", func() bool { return len(b.tasks()) > 60 })
		if n := len(b.tasks()); n > 128 {
			r.t.Errorf("%d processes where 128 are allowed", n)
		}
		other.sh("echo unharmed", "unharmed", 0)
		if a := b.get(done); a.err != nil || !a.TimedOut && a.ExitCode == 0 {
			r.t.Errorf("%q was answered %+v, %v", bomb, a.ExecResult, a.err)
		}
		b.only(1, "the fork bomb "+bomb) // the session's shell
		b.alone("echo again", "again\n", 0)
	}
	// In a session: its shell may fall to it, and says so.
	got := b.run(sos.ExecRequest{Command: "c() { c | c & }; c; sleep 60", Timeout: sos.Duration(2 * time.Second)})
	if !got.TimedOut && got.ExitCode == 0 {
		r.t.Errorf("the bomb in the session was answered %+v", got)
	}
	eventually(r.t, "the sandbox answers again", func() bool {
		res, err := b.c.Exec(deadline(r.t), b.id, sos.ExecRequest{Command: "echo again", Standalone: true, Timeout: sos.Duration(20 * time.Second)})
		return err == nil && res.Output == "again\n"
	})
	if !got.Exited {
		b.sh("echo the session too", "the session too", 0)
	}
}

// What takes too much memory is killed, and the answer says so.
func testMemory(r *rig) {
	b := r.use(sos.Limits{Memory: 96 << 20})
	b.sh("V=kept", "", 0)
	for _, alone := range []bool{true, false} {
		got := b.run(sos.ExecRequest{Command: "echo before; tail /dev/zero", Standalone: alone})
		if !got.OOMKilled || !strings.HasPrefix(got.Output, "before") || got.ExitCode != 137 || got.Exited || alone && got.Reason != sos.EndOOM {
			r.t.Errorf("alone %v: %+v", alone, got)
		}
	}
	got := b.run(sos.ExecRequest{Command: "kill -9 $$", Standalone: true})
	if got.OOMKilled || got.Reason != sos.EndSignal || got.ExitCode != 137 {
		r.t.Errorf("a plain kill gave %+v", got)
	}
	b.sh("echo $V", "kept", 0)
}

// The shell itself runs out of memory: its session ends, and says why.
func testMemoryOfShell(r *rig) {
	b := r.use(sos.Limits{Memory: 64 << 20})
	got := b.run(sos.ExecRequest{Command: "echo before; V=x; while :; do V=$V$V; done"})
	if !got.Exited || got.ExitCode != 137 || !got.OOMKilled || got.Reason != sos.EndOOM || !strings.HasPrefix(got.Output, "before") {
		got.Output = short(got.Output)
		r.t.Errorf("the shell out of memory gave %+v", got)
	}
	if _, err := b.c.Exec(deadline(r.t), b.id, sos.ExecRequest{Command: "true"}); sos.ErrorCode(err) != sos.CodeSessionExited {
		r.t.Errorf("afterwards: %v", err)
	}
	b.alone("echo alive", "alive\n", 0)
}

// What takes no hint is killed, wherever it hides, and costs nothing afterwards.
func testStubborn(r *rig) {
	b := r.use(sos.Limits{})
	b.sh("V=kept", "", 0)
	const spin = `trap "" TERM INT HUP QUIT; while :; do :; done`
	for _, command := range []string{
		spin,
		"setsid sh -c '" + spin + "' & " + spin,
		"(setsid sh -c '" + spin + "' &); (setsid sh -c '" + spin + "' > /dev/null 2>&1 < /dev/null &); sleep 600",
		`perl -e '$SIG{TERM}=$SIG{INT}="IGNORE"; for (1..20) { next if fork; setpgrp; last } while (1) {}'`,
	} {
		for _, alone := range []bool{true, false} {
			text := command
			if !alone {
				text = "( " + command + " )" // the shell itself is not to be deaf
			}
			got := b.run(sos.ExecRequest{Command: "echo begun; " + text, Standalone: alone, Timeout: sos.Duration(time.Second)})
			if !got.TimedOut || got.Reason != sos.EndTimeout || got.Exited || !strings.HasPrefix(got.Output, "begun") {
				r.t.Errorf("alone %v: %.70q gave %+v", alone, command, got)
			}
			b.only(1, command) // the session's shell
		}
	}
	b.sh("echo $V", "kept", 0)
	b.idle()
}

// idle demands that the sandbox uses no CPU.
func (b *box) idle() {
	b.t.Helper()
	file := filepath.Join("/sys/fs/cgroup/cpuacct/sos-"+b.srv.Instance, b.id, "cpuacct.usage")
	if _, err := os.Stat(file); err != nil { // version 2 is read by the driver's own tests
		return
	}
	eventually(b.t, "the sandbox is idle", func() bool {
		before, err := os.ReadFile(file)
		time.Sleep(300 * time.Millisecond) // the time that is measured
		after, err2 := os.ReadFile(file)
		return err == nil && err2 == nil && len(after) == len(before) && strings.TrimSpace(string(after))[:max(1, len(after)-9)] == strings.TrimSpace(string(before))[:max(1, len(before)-9)]
	})
}

// What writes beyond its disk limit is stopped early; afterwards all is well.
func testDisk(r *rig) {
	b := r.use(sos.Limits{Disk: 64 << 20})
	b.sh("V=kept", "", 0)
	for _, q := range []sos.ExecRequest{
		{Command: "cat /dev/zero > /root/big", Standalone: true},
		{Command: "cat /dev/zero > /root/big"},
		{Command: "i=0; while :; do i=$((i+1)); head -c 100000 /dev/zero > /root/f$i; done"},
	} {
		q.Timeout = sos.Duration(2 * time.Minute)
		got := b.run(q)
		if got.Reason != sos.EndDiskLimit || got.Exited {
			r.t.Errorf("%q gave %+v", q.Command, got)
		}
		n := usage(filepath.Join(r.data, "sandboxes", b.id))
		r.t.Logf("%d MiB were written", n>>20)
		if n > 8<<30 { // what is written until it is seen and ended, on a busy machine
			r.t.Errorf("%d MiB were written where 64 are allowed", n>>20)
		}
		b.sh("rm -rf /root/big /root/f*; echo $V", "kept", 0)
		b.alone("echo fine > /root/small; cat /root/small", "fine\n", 0)
	}
}

// usage is the bytes of the files below dir.
func usage(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil && syscall.Lstat(path, &st) == nil {
			n += st.Blocks * 512
		}
		return nil // what is gone meanwhile takes no space
	})
	return n
}
