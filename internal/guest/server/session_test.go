package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

func open(t *testing.T, r *rig, name string) int {
	t.Helper()
	pid, err := r.OpenSession(r.ctx(60), guest.SessionSpec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestSession(t *testing.T) {
	r := newRig(t)
	pid := open(t, r, "default")
	if again := open(t, r, "default"); again != pid {
		t.Errorf("opened twice: %d, %d", pid, again)
	}
	r.session("default", "X=5; cd /usr")
	if rec := r.session("default", "echo $X $PWD; echo err >&2; (exit 4)"); rec.text() != "5 /usr\nerr\n" || rec.code() != 4 || rec.started.IsZero() {
		t.Errorf("%q %+v", rec.text(), rec.exit)
	}
	if rec := r.session("default", "cat; echo $A", func(c *guest.SessionCommand) {
		c.Stdin, c.Env = []byte("in\n"), map[string]string{"A": "b c"}
	}); rec.text() != "in\nb c\n" {
		t.Errorf("%q", rec.text())
	}
	rec := r.session("default", "echo x; sleep 601", func(c *guest.SessionCommand) { c.Timeout = 200 * time.Millisecond })
	if rec.exit.Reason != sos.EndTimeout || rec.text() != "x\n" || rec.exit.ShellEnded {
		t.Errorf("%q %+v", rec.text(), rec.exit)
	}
	if rec := r.session("default", "echo $X"); rec.text() != "5\n" {
		t.Errorf("the session did not survive: %q", rec.text())
	}
	// Late output belongs to the command that made it.
	file := t.TempDir() + "/go"
	late := r.session("default", "(while [ ! -e "+file+" ]; do sleep 0.02; done; echo LATE) &")
	if !late.exit.Survivors || late.text() != "" {
		t.Errorf("%q %+v", late.text(), late.exit)
	}
	two := r.session("default", "touch "+file+"; sleep 0.3; echo two")
	late.waitDrained(t)
	if two.text() != "two\n" || late.text() != "LATE\n" {
		t.Errorf("%q and %q", two.text(), late.text())
	}
	big := r.session("default", "head -c 20000000 /dev/zero | tr '\\0' '$'")
	if len(big.text()) != 20_000_000 || strings.Trim(big.text(), "$") != "" {
		t.Errorf("%d bytes", len(big.text()))
	}
}

// TestSessionQueue: commands of one session run one by one in order; others do not
// wait.
func TestSessionQueue(t *testing.T) {
	r := newRig(t)
	open(t, r, "a")
	open(t, r, "b")
	file := t.TempDir() + "/go"
	var recs []*record
	run := func(session, id, text string) *record {
		t.Helper()
		if err := r.RunSession(r.ctx(20), guest.SessionCommand{ID: id, Session: session, Text: text}); err != nil {
			t.Fatal(err)
		}
		return r.sink.get(id)
	}
	blocker := run("a", "block", "while [ ! -e "+file+" ]; do sleep 0.02; done")
	for i := range 20 {
		recs = append(recs, run("a", fmt.Sprint("q", i), "N=$((N+1)); echo $N; false"))
	}
	if err := r.Cancel(r.ctx(20), "q3", sos.EndCancelled, 0); err != nil {
		t.Fatal(err)
	}
	recs[3].wait(t)
	if recs[3].exit.Reason != sos.EndCancelled || recs[3].exit.ExitCode != nil || !recs[3].started.IsZero() {
		t.Errorf("cancelled in the queue: %+v", recs[3].exit)
	}
	if rec := r.session("b", "echo other"); rec.text() != "other\n" {
		t.Errorf("%q", rec.text())
	}
	r.run("touch " + file)
	blocker.wait(t)
	n := 0
	for i, rec := range recs {
		if i == 3 {
			continue
		}
		rec.wait(t)
		if n++; rec.text() != fmt.Sprintf("%d\n", n) || rec.code() != 1 {
			t.Errorf("%d: %q %+v", i, rec.text(), rec.exit)
		}
	}
	// Interrupt ends what runs, not what waits.
	long := run("a", "long", "echo x; sleep 611")
	after := run("a", "after", "echo after")
	waitText(t, long, r, "x\n")
	if err := r.Interrupt(r.ctx(20), "a"); err != nil {
		t.Fatal(err)
	}
	long.wait(t)
	after.wait(t)
	if long.exit.Reason != sos.EndCancelled || after.text() != "after\n" {
		t.Errorf("%+v %q", long.exit, after.text())
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { r.OpenSession(r.ctx(60), guest.SessionSpec{Name: "same"}) })
	}
	wg.Wait()
	if rec := r.session("same", "pgrep -fc 'bash --norc'"); rec.text() != "3\n" {
		t.Errorf("shells: %q", rec.text())
	}
}

// TestSessionEnds: what waited for a shell that ended never runs in another.
func TestSessionEnds(t *testing.T) {
	r := newRig(t)
	if err := r.RunSession(r.ctx(20), guest.SessionCommand{ID: "none", Session: "none", Text: "true"}); sos.ErrorCode(err) != sos.CodeSessionExited {
		t.Errorf("no such session: %v", err)
	}
	open(t, r, "default")
	ctx := r.ctx(20)
	for id, text := range map[string]string{"first": "sleep 0.3; exit 7"} {
		if err := r.RunSession(ctx, guest.SessionCommand{ID: id, Session: "default", Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.RunSession(ctx, guest.SessionCommand{ID: "second", Session: "default", Text: "touch /tmp/never-$$"}); err != nil {
		t.Fatal(err)
	}
	first, second := r.sink.get("first"), r.sink.get("second")
	first.wait(t)
	second.wait(t)
	if first.code() != 7 || !first.exit.ShellEnded || first.exit.Reason != sos.EndExit {
		t.Errorf("%+v", first.exit)
	}
	if second.exit.Reason != sos.EndNotRun || !second.exit.ShellEnded || second.exit.ExitCode != nil {
		t.Errorf("%+v", second.exit)
	}
	select {
	case e := <-r.sink.ends:
		if e.ExitCode == nil || *e.ExitCode != 7 {
			t.Errorf("session: %+v", e)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody said that the session ended")
	}
	if err := r.RunSession(r.ctx(20), guest.SessionCommand{ID: "third", Session: "default", Text: "true"}); sos.ErrorCode(err) != sos.CodeSessionExited {
		t.Errorf("gone session: %v", err)
	}
	// A host that connects later is told too.
	r.connect(newSink(t))
	select {
	case <-r.sink.ends:
	case <-time.After(20 * time.Second):
		t.Fatal("a new host was not told that the session ended")
	}
	open(t, r, "default")
	if rec := r.session("default", "echo new"); rec.text() != "new\n" {
		t.Errorf("%q", rec.text())
	}
	if err := r.CloseSession(r.ctx(20), "default"); err != nil {
		t.Fatal(err)
	}
	if err := r.CloseSession(r.ctx(20), "default"); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	r.waitGone("--norc")
}
