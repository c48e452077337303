package server_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

func TestShutdown(t *testing.T) {
	r := newRig(t)
	if _, err := r.OpenSession(r.ctx(60), guest.SessionSpec{Name: "default"}); err != nil {
		t.Fatal(err)
	}
	gentle := r.start("trap 'echo bye; exit 3' TERM; echo x; while :; do :; done")
	stubborn := r.start("trap '' TERM; echo x; (setsid bash -c 'trap \"\" TERM; sleep 901; sleep 902' &); while :; do sleep 903; done")
	survivor := r.run("sleep 904 & echo x; exit 6")
	running := r.sink.get("s-1")
	waiting := r.sink.get("s-2")
	for _, id := range []string{"s-1", "s-2"} {
		if err := r.RunSession(r.ctx(20), guest.SessionCommand{ID: id, Session: "default", Text: "echo in; sleep 905"}); err != nil {
			t.Fatal(err)
		}
	}
	waitText(t, gentle, r, "x\n")
	waitText(t, stubborn, r, "x\n")
	waitText(t, running, r, "in\n")
	begun := time.Now()
	if err := r.Shutdown(r.ctx(60), 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 300*time.Millisecond || took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	for name, rec := range map[string]*record{"gentle": gentle, "stubborn": stubborn, "running": running, "waiting": waiting} {
		if !ended(rec.drained) {
			t.Errorf("%s is not drained when shutdown returns", name)
			continue
		}
		if rec.exit.Reason != sos.EndSandboxStopped {
			t.Errorf("%s: %+v", name, rec.exit)
		}
	}
	if gentle.text() != "x\nbye\n" || gentle.code() != 3 {
		t.Errorf("%q %+v", gentle.text(), gentle.exit)
	}
	if survivor.code() != 6 || survivor.exit.Reason != sos.EndExit || !ended(survivor.drained) {
		t.Errorf("%+v", survivor.exit)
	}
	if pids := insidePids(t, r); len(pids) != 1 {
		t.Errorf("still there: %v", pids)
	}
	for name, err := range map[string]error{
		"start":   r.Start(r.ctx(20), guest.Command{ID: "late", Argv: []string{"true"}}),
		"session": r.RunSession(r.ctx(20), guest.SessionCommand{ID: "late2", Session: "default", Text: "true"}),
	} {
		if sos.ErrorCode(err) != sos.CodeSandboxStopped {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
	if err := r.Ping(r.ctx(20)); err != nil {
		t.Error(err)
	}
	if err := r.Shutdown(r.ctx(60), time.Second); err != nil {
		t.Errorf("again: %v", err)
	}
}

// insidePids are the processes of the guest's pid namespace, seen from the host.
func insidePids(t *testing.T, r *rig) (list []string) {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if other, err := os.Readlink(d + "/ns/pid"); err == nil && other == ns {
			list = append(list, d)
		}
	}
	return list
}

func TestShutdownOfNothing(t *testing.T) {
	r := newRig(t)
	if _, err := r.OpenSession(r.ctx(60), guest.SessionSpec{Name: "default"}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := r.Shutdown(r.ctx(60), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("an idle shell held it for %v", took)
	}
}

// cgroupRig is a guest whose processes go into a memory cgroup of their own.
func cgroupRig(t *testing.T, limit string) *rig {
	t.Helper()
	base, files := "/sys/fs/cgroup/memory", [3]string{"memory.limit_in_bytes", "tasks", "memory.oom_control"}
	if _, err := os.Stat(base); err != nil {
		base, files = "/sys/fs/cgroup", [3]string{"memory.max", "cgroup.procs", "memory.events"}
	}
	dir, err := os.MkdirTemp(base, "sos-guest-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the guest was killed before: it may take a moment to be empty
		for begun := time.Now(); os.Remove(dir) != nil; time.Sleep(5 * time.Millisecond) {
			if time.Since(begun) > 20*time.Second {
				t.Errorf("%s stays", dir)
				return
			}
		}
	})
	if err := os.WriteFile(filepath.Join(dir, files[0]), []byte(limit), 0); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "memory.memsw.limit_in_bytes"), []byte(limit), 0)
	os.WriteFile(filepath.Join(dir, "memory.swap.max"), []byte("0"), 0)
	join, err := os.OpenFile(filepath.Join(dir, files[1]), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer join.Close()
	events, err := os.Open(filepath.Join(dir, files[2]))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	return newRig(t, rigOptions{extra: []*os.File{join, events}, conf: ";join=4;oom=5"})
}

// TestOOM: a kill for memory is told from other kills, each time.
func TestOOM(t *testing.T) {
	r := cgroupRig(t, "50000000")
	for range 2 {
		rec := r.run("", argv("tail", "/dev/zero"))
		if rec.exit.Reason != sos.EndOOM || !rec.exit.OOMKilled || rec.code() != 137 || rec.exit.Signal != "SIGKILL" {
			t.Errorf("%+v", rec.exit)
		}
		rec = r.run("kill -9 $$")
		if rec.exit.Reason != sos.EndSignal || rec.exit.OOMKilled {
			t.Errorf("plain kill: %+v", rec.exit)
		}
		rec = r.run("tail /dev/zero 2>/dev/null || echo survived")
		if rec.exit.Reason != sos.EndExit || !rec.exit.OOMKilled || rec.code() != 0 || !strings.Contains(rec.text(), "survived") {
			t.Errorf("survived: %+v", rec.exit)
		}
		rec = r.run("trap '' TERM; sleep 5", timeout(100*time.Millisecond, 50*time.Millisecond))
		if rec.exit.Reason != sos.EndTimeout || rec.exit.OOMKilled {
			t.Errorf("timeout: %+v", rec.exit)
		}
	}
	if rec := r.run("cat /proc/self/cgroup"); !strings.Contains(rec.text(), "sos-guest-test-") {
		t.Errorf("not in the cgroup:\n%s", rec.text())
	}
	// The session's shell is there too, and its commands are watched.
	if _, err := r.OpenSession(r.ctx(60), guest.SessionSpec{Name: "default"}); err != nil {
		t.Fatal(err)
	}
	rec := r.session("default", "tail /dev/zero; echo $?")
	if !rec.exit.OOMKilled || !strings.Contains(rec.text(), "137\n") || rec.exit.Reason != sos.EndExit {
		t.Errorf("session: %q %+v", rec.text(), rec.exit)
	}
}

// TestInherited: what was open by mistake is closed before any command runs.
func TestInherited(t *testing.T) {
	leak, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	r := newRig(t, rigOptions{leak: leak})
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.cmd.Process.Pid))
	if err != nil || len(links) == 0 {
		t.Fatal(err, links)
	}
	for _, l := range links {
		if to, _ := os.Readlink(l); to == "/etc/passwd" {
			t.Errorf("%s is open", l)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(status, []byte("SigIgn:\t0000000000000000")) {
		t.Errorf("signals:\n%s", status)
	}
}

// session runs a session command to its end.
func (r *rig) session(name, text string, change ...func(*guest.SessionCommand)) *record {
	r.t.Helper()
	cmd := guest.SessionCommand{ID: fmt.Sprintf("p-%d", lastID.Add(1)), Session: name, Text: text}
	for _, f := range change {
		f(&cmd)
	}
	rec := r.sink.get(cmd.ID)
	if err := r.RunSession(r.ctx(60), cmd); err != nil {
		r.t.Fatalf("session command %q: %v", text, err)
	}
	rec.wait(r.t)
	return rec
}
