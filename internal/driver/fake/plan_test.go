package fake_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver/drivertest"
	"github.com/seaofsimulation/sos/internal/driver/fake"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/client"
)

const id = "sb-aaaaaaaaaaaaaaaa"

func start(t *testing.T, d *fake.Driver) {
	t.Helper()
	if err := d.Start(t.Context(), id, spec("sha256:any")); err != nil {
		t.Fatal(err)
	}
}

func TestPlannedStartFailure(t *testing.T) {
	d := open(t)
	want := sos.Errorf(sos.CodeUnavailable, "no room")
	d.Plan("", fake.Plan{StartErr: want})
	if err := d.Start(t.Context(), id, spec("x")); !errors.Is(err, want) {
		t.Fatalf("start gives %v", err)
	}
	if l, _ := d.List(t.Context()); len(l) != 0 {
		t.Errorf("a failed start left %v", l)
	}
	d.Plan(id, fake.Plan{}) // its own plan goes before the general one
	start(t, d)
	if n := d.Starts(id); n != 1 {
		t.Errorf("%d starts; want 1", n)
	}
}

func TestPlannedDelayEndsWithContext(t *testing.T) {
	d := open(t)
	d.Plan(id, fake.Plan{StartDelay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := d.Start(ctx, id, spec("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("start gives %v", err)
	}
}

func TestPlannedDialFailure(t *testing.T) {
	d := open(t)
	start(t, d)
	want := errors.New("no route")
	d.Plan(id, fake.Plan{DialErr: want})
	if _, err := d.Dial(t.Context(), id); !errors.Is(err, want) {
		t.Fatalf("dial gives %v", err)
	}
}

func TestHangingGuestAnswersNothing(t *testing.T) {
	d := open(t)
	start(t, d)
	sh := drivertest.Connect(t, d, id)
	d.Plan(id, fake.Plan{Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := sh.Client.Ping(ctx); err == nil {
		t.Fatal("a guest that hangs answers a ping")
	}
	d.Plan(id, fake.Plan{})
	sh.Must(t, "echo again")
}

func TestDisconnectLosesNothing(t *testing.T) {
	d := open(t)
	start(t, d)
	sh := drivertest.Connect(t, d, id)
	p := sh.Begin(t, "echo one; sleep 0.1; echo two; spam 600000; sleep 0.1; echo three")
	for range 5 {
		d.Disconnect(id)
		sh.Must(t, "true") // connected again
	}
	out, code := sh.Finish(t, p)
	if len(out) != len("one\ntwo\nthree\n")+600000 || code != 0 || out[:8] != "one\ntwo\n" || out[len(out)-6:] != "three\n" {
		t.Errorf("%d bytes and status %d over five connections", len(out), code)
	}
}

func TestScriptedGuestCrash(t *testing.T) {
	d := open(t)
	start(t, d)
	// Whether the start is still answered is a race that no one needs to win.
	_ = drivertest.Connect(t, d, id).Client.Start(t.Context(), guest.Command{ID: "p-1", Argv: []string{"crash"}})
	e, err := d.Wait(t.Context(), id)
	if err != nil || e.Code != 2 || e.Stopped || e.Message == "" {
		t.Errorf("the end is %+v, %v", e, err)
	}
}

// ends is a sink that keeps what sessions tell.
type ends struct {
	drivertest.Shell
	mu     sync.Mutex
	out    map[string]string
	exits  map[string]sos.Exit
	ended  map[string]sos.Exit
	change chan struct{}
}

func (e *ends) Resume(guest.ProcessInfo) (map[sos.Stream]int64, bool) { return nil, true }
func (e *ends) Output(id string, _ sos.Stream, _ int64, data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out[id] += string(data)
}

func (e *ends) Exited(id string, x sos.Exit, _ time.Time) { e.tell(e.exits, id, x) }
func (e *ends) SessionEnded(name string, x sos.Exit)      { e.tell(e.ended, name, x) }

func (e *ends) tell(m map[string]sos.Exit, key string, x sos.Exit) {
	e.mu.Lock()
	m[key] = x
	e.mu.Unlock()
	e.change <- struct{}{}
}

func (e *ends) await(t *testing.T, m map[string]sos.Exit, key string) sos.Exit {
	t.Helper()
	for {
		e.mu.Lock()
		x, ok := m[key]
		e.mu.Unlock()
		if ok {
			return x
		}
		select {
		case <-e.change:
		case <-time.After(drivertest.Deadline):
			t.Fatalf("no end of %s", key)
		}
	}
}

func session(t *testing.T, d *fake.Driver) (*client.Client, *ends) {
	t.Helper()
	e := &ends{out: map[string]string{}, exits: map[string]sos.Exit{}, ended: map[string]sos.Exit{}, change: make(chan struct{}, 100)}
	c := client.New(client.Config{Sink: e, Dial: func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id) }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if _, err := c.OpenSession(ctx, guest.SessionSpec{Name: "default", Cwd: "/"}); err != nil {
		t.Fatal(err)
	}
	return c, e
}

func TestSessionKeepsItsState(t *testing.T) {
	d := open(t)
	start(t, d)
	c, e := session(t, d)
	for _, cmd := range []guest.SessionCommand{
		{ID: "p-1", Text: "X=5; cd /srv"},
		{ID: "p-2", Text: "echo $X $Y; pwd", Env: map[string]string{"Y": "only here"}},
		{ID: "p-3", Text: "echo $Y; fail"},
		{ID: "p-4", Text: "exit 3"},
		{ID: "p-5", Text: "echo too late"},
	} {
		cmd.Session = "default"
		if err := c.RunSession(t.Context(), cmd); err != nil && cmd.ID != "p-5" {
			t.Fatalf("%s: %v", cmd.ID, err)
		}
	}
	if x := e.await(t, e.exits, "p-4"); x.ExitCode == nil || *x.ExitCode != 3 || !x.ShellEnded {
		t.Errorf("exit 3 ends with %+v", x)
	}
	if x := e.await(t, e.ended, "default"); x.ExitCode == nil || *x.ExitCode != 3 {
		t.Errorf("the session ends with %+v", x)
	}
	if x := e.await(t, e.exits, "p-3"); *x.ExitCode != 1 {
		t.Errorf("fail ends with %+v", x)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.out["p-2"] != "5 only here\n/srv\n" || e.out["p-3"] != "\nfail: as asked for\n" {
		t.Errorf("output %q and %q", e.out["p-2"], e.out["p-3"])
	}
	if e.out["p-5"] != "" {
		t.Errorf("a command ran after the shell's exit: %q", e.out["p-5"])
	}
	err := c.RunSession(t.Context(), guest.SessionCommand{ID: "p-6", Session: "default", Text: "true"})
	if sos.ErrorCode(err) != sos.CodeSessionExited {
		t.Errorf("a command of a session that is gone: %v", err)
	}
}

func TestTimeoutInterruptAndShutdown(t *testing.T) {
	d := open(t)
	start(t, d)
	c, e := session(t, d)
	run := func(id, text string, timeout time.Duration) {
		t.Helper()
		if err := c.RunSession(t.Context(), guest.SessionCommand{ID: id, Session: "default", Text: text, Timeout: timeout}); err != nil {
			t.Fatal(err)
		}
	}
	run("p-1", "hang", time.Millisecond)
	if x := e.await(t, e.exits, "p-1"); x.Reason != sos.EndTimeout {
		t.Errorf("a timeout ends with %+v", x)
	}
	run("p-2", "echo begun; hang", 0)
	for { // interrupt what runs, not what waits
		if err := c.Interrupt(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		_, ok := e.exits["p-2"]
		e.mu.Unlock()
		if ok {
			break
		}
	}
	if x := e.await(t, e.exits, "p-2"); x.Reason != sos.EndCancelled {
		t.Errorf("an interrupt ends with %+v", x)
	}
	run("p-3", "oom", 0)
	if x := e.await(t, e.exits, "p-3"); x.Reason != sos.EndOOM || !x.OOMKilled {
		t.Errorf("oom ends with %+v", x)
	}
	run("p-4", "hang", 0)
	run("p-5", "echo never", 0)
	if err := c.Shutdown(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"p-4", "p-5"} {
		if x := e.await(t, e.exits, id); x.Reason != sos.EndSandboxStopped {
			t.Errorf("%s ends with %+v", id, x)
		}
	}
}
