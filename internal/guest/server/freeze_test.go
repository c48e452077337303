package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

// freezer gives a rig whose processes can be frozen, on version 1 or 2.
func freezer(t *testing.T) (r *rig, set func(frozen bool)) {
	t.Helper()
	base, tasks, state, words := "/sys/fs/cgroup/freezer", "tasks", "freezer.state", [2]string{"THAWED", "FROZEN"}
	if _, err := os.Stat(base); err != nil {
		base, tasks, state, words = "/sys/fs/cgroup", "cgroup.procs", "cgroup.freeze", [2]string{"0", "1"}
	}
	dir, err := os.MkdirTemp(base, "sos-guest-test-")
	if err != nil {
		t.Fatal(err)
	}
	set = func(frozen bool) {
		t.Helper()
		word := words[0]
		if frozen {
			word = words[1]
		}
		file := filepath.Join(dir, state)
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			if err := os.WriteFile(file, []byte(word), 0); err != nil {
				t.Fatal(err)
			}
			if b, _ := os.ReadFile(file); strings.TrimSpace(string(b)) == word {
				return
			}
			if time.Since(begun) > 20*time.Second {
				t.Fatalf("does not become %s", word)
			}
		}
	}
	t.Cleanup(func() {
		set(false)
		for begun := time.Now(); os.Remove(dir) != nil; time.Sleep(5 * time.Millisecond) {
			if time.Since(begun) > 20*time.Second {
				t.Errorf("%s stays", dir)
				return
			}
		}
	})
	join, err := os.OpenFile(filepath.Join(dir, tasks), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer join.Close()
	return newRig(t, rigOptions{extra: []*os.File{join}, conf: ";join=4"}), set
}

// TestFrozen: the guest answers while the processes are frozen, ends are told in
// time, and what was killed is gone once it is thawed.
func TestFrozen(t *testing.T) {
	r, set := freezer(t)
	timed := r.start("echo x; (trap '' TERM; sleep 951; sleep 952) & sleep 953", timeout(400*time.Millisecond, 100*time.Millisecond))
	held := r.start("trap '' TERM; echo x; sleep 954 & while :; do sleep 955; done")
	waitText(t, timed, r, "x\n")
	waitText(t, held, r, "x\n")
	set(true)
	if err := r.Ping(r.ctx(20)); err != nil {
		t.Errorf("ping: %v", err)
	}
	timed.wait(t)
	if timed.exit.Reason != sos.EndTimeout || timed.exit.ExitCode != nil || timed.text() != "x\n" {
		t.Errorf("%+v", timed.exit)
	}
	// Long patience, then none: the second request kills, and thawing shows it.
	for range 2 {
		if err := r.Cancel(r.ctx(20), held.id, sos.EndCancelled, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	set(false)
	held.wait(t)
	if held.exit.Reason != sos.EndCancelled {
		t.Errorf("%+v", held.exit)
	}
	timed.waitDrained(t)
	held.waitDrained(t)
	r.waitGone("sleep 95")
}

// TestStartWhileFrozen: such a start waits, and nothing else waits for it.
func TestStartWhileFrozen(t *testing.T) {
	r, set := freezer(t)
	set(true)
	rec := r.start("echo x")
	if err := r.Ping(r.ctx(5)); err != nil {
		t.Errorf("ping: %v", err)
	}
	if err := r.Start(r.ctx(5), guest.Command{ID: "other", Argv: []string{"true"}}); err != nil {
		t.Errorf("start: %v", err)
	}
	time.AfterFunc(time.Second, func() { set(false) })
	rec.wait(t)
	r.sink.get("other").wait(t)
	if rec.text() != "x\n" {
		t.Errorf("%q %+v", rec.text(), rec.exit)
	}
}
