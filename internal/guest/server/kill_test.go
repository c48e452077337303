package server

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/sysprog"
)

// On a machine so busy that one round takes all the time that there is, the
// command was stopped and never killed. What it started must go as well.
func TestSlowRoundsLeaveNothing(t *testing.T) {
	r := newReaper()
	prog := sysprog.New()
	prog.Call("setsid", unix.SYS_SETSID)
	prog.Exec("/bin/bash", []string{"bash", "-c", "sleep 600 & sleep 600 & wait"}, []string{"PATH=/usr/bin:/bin"})
	c, err := r.fork(prog, sysprog.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { // the reaper of this one child: the test has others
		if pid, errno := peek(unix.P_PID, c.pid, 0); errno == 0 {
			r.collect(pid)
		}
	}()
	slow := false
	p := &process{g: &Guest{reap: r}, child: c}
	p.tree = newTree(c.pid, func() bool {
		if slow {
			time.Sleep(killTime)
		}
		return r.owns(c.pid, c)
	}, func(int) bool { return false })
	var started []stat
	for end := time.Now().Add(10 * time.Second); len(started) < 2; time.Sleep(time.Millisecond) {
		if started = p.others(); time.Now().After(end) {
			t.Fatal("the command has not started anything")
		}
	}
	slow = true
	p.killTree()
	select {
	case <-c.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the command still stands there")
	}
	if c.status.Signal() != unix.SIGKILL {
		t.Errorf("the command ended with %v", c.status)
	}
	for _, s := range started {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			if now, ok := readStat(s.pid); !ok || now.ident != s.ident || now.dead() {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("process %d is left", s.pid)
			}
		}
	}
}
