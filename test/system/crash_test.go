package system

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// load is what one sandbox does while its server dies.
type load struct {
	*box
	round   int
	texts   map[string]string // command → everything it prints
	codes   map[string]int
	answers map[string]<-chan answer
}

// begin sets variables, starts standalone commands and fills the session's queue.
func begin(b *box, round int) *load {
	l := &load{box: b, round: round, texts: map[string]string{}, codes: map[string]int{}, answers: map[string]<-chan answer{}}
	b.sh(fmt.Sprintf("V=var-%d; f() { echo fn $V; }; cd /var/tmp", round), "", 0)

	slow, text := "", ""
	for i := range 40 {
		text += fmt.Sprintf("line %d of %s\n", i, b.id)
	}
	slow = fmt.Sprintf("i=0; while [ $i -lt 40 ]; do echo line $i of %s; i=$((i+1)); sleep 0.05; done; exit %d", b.id, 40+round)
	l.send(slow, text, 40+round, true)
	// More than any buffer between the process and its journal holds.
	l.send(fmt.Sprintf("seq 1 700000; sleep 1; echo last; exit %d", 80+round), seq(700000)+"last\n", 80+round, true)
	b.runs(slow)

	first := fmt.Sprintf("for i in 1 2 3 4 5 6; do echo s$i $V; sleep 0.3; done; (exit %d)", 5+round)
	text = ""
	for i := range 6 {
		text += fmt.Sprintf("s%d var-%d\n", i+1, round)
	}
	l.send(first, text, 5+round, false)
	b.runs(first)
	l.send(fmt.Sprintf("f; Q=queued-%d; (exit 6)", round), fmt.Sprintf("fn var-%d\n", round), 6, false)
	l.queued(1)
	l.send(fmt.Sprintf("echo $Q $PWD %d", round), fmt.Sprintf("queued-%d /var/tmp %d\n", round, round), 0, false)
	l.queued(2)
	return l
}

func seq(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

func (l *load) send(command, text string, code int, alone bool) {
	l.texts[command], l.codes[command] = text, code
	l.answers[command] = l.background(sos.ExecRequest{Command: command, Standalone: alone})
}

// queued waits until so many commands wait in the session.
func (l *load) queued(n int) {
	l.t.Helper()
	eventually(l.t, "commands wait in the session", func() bool {
		all, err := l.c.ListSessions(deadline(l.t), l.id)
		return err == nil && len(all) == 1 && all[0].Queued >= n
	})
}

// verify demands the true end and every byte of each command.
func (l *load) verify() {
	l.t.Helper()
	for command, text := range l.texts {
		p := l.ended(command)
		if p.ExitCode == nil || *p.ExitCode != l.codes[command] || p.Reason != sos.EndExit || p.Status != sos.ProcessExited {
			l.t.Errorf("%s round %d: %.60q ended as %s %+v, want %d", l.id, l.round, command, p.Status, p.Exit, l.codes[command])
		}
		if h, n := l.digest(p.ID); h != sum(text) {
			l.t.Errorf("%s round %d: %.60q has %d bytes with other content; it printed %d", l.id, l.round, command, n, len(text))
		}
	}
	l.sh("f; echo $Q; pwd", fmt.Sprintf("fn var-%d\nqueued-%d\n/var/tmp", l.round, l.round), 0)
	l.trajectory()
}

// trajectory holds the session's record of this round to order, code and output.
func (l *load) trajectory() {
	l.t.Helper()
	tr, err := l.c.Trajectory(deadline(l.t), l.id)
	if err != nil {
		l.t.Errorf("trajectory: %v", err)
		return
	}
	const each = 5 // session commands of one round
	if len(tr.Entries) != (l.round+1)*each {
		l.t.Errorf("%s: the trajectory has %d entries after round %d", l.id, len(tr.Entries), l.round)
	}
	for i, e := range tr.Entries {
		if e.Index != i || !e.HasResult {
			l.t.Errorf("%s: entry %d of the trajectory is %+v", l.id, i, e)
		}
		if text, ok := l.texts[e.Process.Command]; ok && i >= l.round*each {
			if e.Output != strings.TrimRight(text, "\n") || e.Process.ExitCode == nil || *e.Process.ExitCode != l.codes[e.Process.Command] {
				l.t.Errorf("%s: entry %d of the trajectory is %+v", l.id, i, e)
			}
		}
	}
}

// TestKilled kills the server, the spawner, or both, while sandboxes work. The
// next ones take everything over, as if nothing had happened.
func TestKilled(t *testing.T) {
	r := newRig(t)
	boxes := make([]*box, 6)
	var wg sync.WaitGroup
	for i := range boxes {
		boxes[i] = r.created(sos.SandboxSpec{})
		wg.Go(func() {
			if _, err := r.c.StartSandbox(deadline(t), boxes[i].id); err != nil {
				t.Errorf("start: %v", err)
			}
		})
	}
	wg.Wait()
	kills := []struct {
		what string
		do   func()
	}{
		{"server", func() { r.kill(); r.boot() }},
		{"spawner", r.killSpawner},
		{"both", func() { r.killSpawner(); r.kill(); r.boot() }},
		{"server while it takes over", func() {
			r.kill()
			r.boot()
			r.kill()
			r.boot()
		}},
		{"both, the server first", func() { r.kill(); r.killSpawner(); r.boot() }},
	}
	round := 0
	for range testutil.Scale(1) {
		for _, k := range kills {
			loads := make([]*load, len(boxes))
			each(boxes, func(i int, b *box) { loads[i] = begin(b, round) })
			before := r.srv.Pid()
			k.do()
			survived := r.srv.Pid() == before
			each(boxes, func(i int, b *box) {
				loads[i].verify()
				for command, done := range loads[i].answers {
					a := b.get(done)
					if survived && (a.err != nil || a.ExitCode != loads[i].codes[command]) {
						t.Errorf("%s killed: %.60q was answered %+v, %v", k.what, command, short(a.Output), a.err)
					}
					if !survived && a.err == nil && a.ExitCode != loads[i].codes[command] {
						t.Errorf("%s killed: %.60q was answered %d", k.what, command, a.ExitCode)
					}
				}
			})
			extra := r.started(sos.SandboxSpec{}) // what was taken over can be added to
			extra.sh("echo new", "new", 0)
			extra.remove()
			if t.Failed() {
				t.Fatalf("after the death of: %s", k.what)
			}
			round++
		}
	}
	each(boxes, func(_ int, b *box) { b.remove() })
	r.clean()
}

// each works on all boxes at once.
func each(boxes []*box, f func(int, *box)) {
	var wg sync.WaitGroup
	for i, b := range boxes {
		wg.Go(func() { f(i, b) })
	}
	wg.Wait()
}

// TestSignals: SIGTERM leaves what runs to the next server, SIGINT stops it and
// keeps the files.
func TestSignals(t *testing.T) {
	r := newRig(t)
	b := r.started(sos.SandboxSpec{})
	b.sh("V=kept; echo data > /root/file", "", 0)
	command := "echo begun; sleep 2; echo over; exit 9"
	done := b.background(sos.ExecRequest{Command: command, Standalone: true})
	b.runs(command)
	if err := r.srv.Stop(syscall.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if a := b.get(done); a.err == nil && a.ExitCode != 9 {
		t.Errorf("the command under way was answered %+v", a)
	}
	r.boot()
	p := b.ended(command)
	if h, _ := b.digest(p.ID); h != sum("begun\nover\n") || p.ExitCode == nil || *p.ExitCode != 9 {
		t.Errorf("the command ended as %+v", p)
	}
	b.sh("echo $V", "kept", 0)

	hangs := "echo hangs; sleep 1000"
	done = b.background(sos.ExecRequest{Command: hangs})
	b.runs(hangs)
	if err := r.srv.Stop(syscall.SIGINT); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
	if a := b.get(done); a.err == nil && a.Reason != sos.EndSandboxStopped {
		t.Errorf("the command under way was answered %+v", a)
	}
	r.boot()
	if s := b.seen(); s.Status != sos.StatusStopped || s.Reason != sos.ReasonShutdown {
		t.Errorf("after SIGINT it is %s, %s", s.Status, s.Reason)
	}
	if p := b.ended(hangs); p.Reason != sos.EndSandboxStopped {
		t.Errorf("what ran ended as %+v", p.Exit)
	}
	if _, err := r.c.StartSandbox(deadline(t), b.id); err != nil {
		t.Fatal(err)
	}
	b.sh("cat /root/file; echo -$V-", "data\n--", 0)
	b.remove()
	r.clean()
}

// TestTwoServers: what happens to one data directory is nothing to the other.
func TestTwoServers(t *testing.T) {
	rigs := []*rig{newRig(t), newRig(t)}
	var boxes []*box
	for i, r := range rigs {
		b := r.started(sos.SandboxSpec{})
		b.sh(fmt.Sprintf("V=%d; sleep 1000 &", i), "", 0)
		boxes = append(boxes, b)
	}
	for i, r := range rigs {
		other := boxes[1-i]
		command := fmt.Sprintf("for i in $(seq 30); do echo $i; sleep 0.1; done; exit %d", 20+i)
		done := other.background(sos.ExecRequest{Command: command, Standalone: true})
		other.runs(command)
		r.killSpawner()
		r.kill()
		other.sh(fmt.Sprintf("echo $V; jobs -r | wc -l # %d", i), fmt.Sprintf("%d\n1", 1-i), 0)
		r.boot()
		boxes[i].sh("echo $V; jobs -r | wc -l", fmt.Sprintf("%d\n1", i), 0)
		if a := other.get(done); a.err != nil || a.ExitCode != 20+i || a.Output != seq(30) {
			t.Errorf("the other server's command was answered %+v, %v", a.ExecResult, a.err)
		}
	}
	// The end of one data directory is not the end of the other's sandboxes.
	boxes[0].remove()
	rigs[0].clean()
	boxes[1].sh("echo $V; jobs -r | wc -l # again", "1\n1", 0)
	if d := time.Since(*boxes[1].seen().StartedAt); d < 0 {
		t.Errorf("started %v in the future", -d)
	}
}
