package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// script is a guest that does what a test says. It is given one connection after
// the other.
type script struct {
	t     *testing.T
	conns chan net.Conn
	c     net.Conn
	r     *wire.Reader
}

// link gives a script and the client that is connected to it.
func newScript(t *testing.T, s guest.Sink) (*script, *Client, chan error) {
	t.Helper()
	g := &script{t: t, conns: make(chan net.Conn)}
	c := New(Config{Sink: s, Dial: func(ctx context.Context) (net.Conn, error) {
		host, inside := net.Pipe()
		select {
		case g.conns <- inside:
			return host, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	over := make(chan struct{})
	go func() { defer close(over); done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if g.c != nil {
			g.c.Close()
		}
		<-over
	})
	return g, c, done
}

// accept takes the next connection and reads its hello.
func (g *script) accept() {
	g.t.Helper()
	if g.c != nil {
		g.c.Close()
	}
	select {
	case g.c = <-g.conns:
	case <-time.After(20 * time.Second):
		g.t.Fatal("the client does not dial")
	}
	g.c.SetDeadline(time.Now().Add(20 * time.Second))
	g.r = wire.NewReader(g.c, wire.MaxRequest)
	if _, m := g.next(); m.Type() != wire.TypeHello {
		g.t.Fatalf("first frame: %#v", m)
	}
}

func (g *script) next() (uint64, wire.Message) {
	g.t.Helper()
	f, err := g.r.Next()
	if err != nil {
		g.t.Fatalf("guest reads: %v", err)
	}
	m, err := wire.Decode(f)
	if err != nil {
		g.t.Fatalf("guest decodes: %v", err)
	}
	return f.Call, m
}

// say writes a frame; the client may have gone already.
func (g *script) say(call uint64, m wire.Message) { g.c.Write(wire.Append(nil, call, m)) }

// hello greets with processes that it holds.
func (g *script) hello(held ...guest.ProcessInfo) {
	g.say(0, &wire.HelloReply{Protocol: 1, Build: "x", Instance: "one", Processes: len(held)})
	for _, p := range held {
		g.say(0, &wire.Held{ProcessInfo: p})
	}
}

// expect reads the next frame and fails unless it is of the type.
func expect[M wire.Message](g *script) (uint64, M) {
	g.t.Helper()
	call, m := g.next()
	got, ok := m.(M)
	if !ok {
		g.t.Fatalf("the host says %#v", m)
	}
	return call, got
}

// events is a sink that writes down what it is told.
type events struct {
	mu      sync.Mutex
	list    []string
	exits   map[string]sos.Exit
	times   []time.Time
	offsets map[sos.Stream]int64
	keep    bool
}

func newEvents() *events { return &events{exits: map[string]sos.Exit{}, keep: true} }

func (e *events) add(s string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, s)
}

func (e *events) Resume(p guest.ProcessInfo) (map[sos.Stream]int64, bool) {
	e.add("resume " + p.ID)
	return e.offsets, e.keep
}
func (e *events) Started(id string, at time.Time) {
	e.times = append(e.times, at)
	e.add("started " + id)
}
func (e *events) Output(id string, s sos.Stream, offset int64, data []byte) {
	e.add("output " + id + " " + string(s) + " " + string(data))
}
func (e *events) Exited(id string, x sos.Exit, at time.Time) {
	e.times = append(e.times, at)
	e.exits[id] = x
	e.add("exited " + id)
}
func (e *events) Drained(id string)                 { e.add("drained " + id) }
func (e *events) SessionEnded(s string, _ sos.Exit) { e.add("session " + s) }

func (e *events) wait(t *testing.T, want ...string) {
	t.Helper()
	var got string
	for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		got = strings.Join(e.list, "\n")
		e.mu.Unlock()
		if got == strings.Join(want, "\n") {
			return
		}
	}
	t.Fatalf("events:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
}

func quick(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// begin starts p-1 on a connected script.
func begin(t *testing.T, g *script, c *Client) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Start(quick(t), guest.Command{ID: "p-1", Argv: []string{"x"}}) }()
	call, m := expect[*wire.Start](g)
	if m.ID != "p-1" {
		t.Fatalf("%+v", m)
	}
	g.say(call, &wire.Reply{})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func exit0() sos.Exit {
	code := 0
	return sos.Exit{ExitCode: &code, Reason: sos.EndExit}
}

func TestLife(t *testing.T) {
	e := newEvents()
	g, c, _ := newScript(t, e)
	g.accept()
	g.hello()
	begin(t, g, c)
	g.say(0, &wire.Started{ID: "p-1", At: time.Now()})
	g.say(0, &wire.Output{ID: "p-1", Stream: sos.StreamOut, Data: []byte("a")})
	if _, a := expect[*wire.Ack](g); a.Offset != 1 || a.ID != "p-1" {
		t.Errorf("%+v", a)
	}
	g.say(0, &wire.Output{ID: "p-1", Stream: sos.StreamOut, Offset: 1, Data: []byte("b")})
	expect[*wire.Ack](g)
	g.say(0, &wire.Exited{ID: "p-1", Exit: exit0(), At: time.Now()})
	g.say(0, &wire.Drained{ID: "p-1"})
	if _, r := expect[*wire.Release](g); r.ID != "p-1" {
		t.Errorf("%+v", r)
	}
	e.wait(t, "started p-1", "output p-1 out a", "output p-1 out b", "exited p-1", "drained p-1")
}

// TestReconnect: output is resumed where the sink is, overlaps are cut, and an end
// is told once.
func TestReconnect(t *testing.T) {
	e := newEvents()
	g, c, _ := newScript(t, e)
	g.accept()
	g.hello()
	begin(t, g, c)
	g.say(0, &wire.Started{ID: "p-1", At: time.Now()})
	g.say(0, &wire.Output{ID: "p-1", Stream: sos.StreamOut, Data: []byte("abc")})
	expect[*wire.Ack](g)
	g.say(0, &wire.Exited{ID: "p-1", Exit: exit0(), At: time.Now()})
	e.wait(t, "started p-1", "output p-1 out abc", "exited p-1")
	e.offsets = map[sos.Stream]int64{sos.StreamOut: 3}
	g.accept()
	g.hello(guest.ProcessInfo{ID: "p-1", Exited: true, Started: time.Now()})
	if _, r := expect[*wire.Resume](g); r.Offsets[sos.StreamOut] != 3 {
		t.Errorf("%+v", r)
	}
	g.say(0, &wire.Started{ID: "p-1", At: time.Now()})
	g.say(0, &wire.Output{ID: "p-1", Stream: sos.StreamOut, Offset: 1, Data: []byte("bcde")})
	g.say(0, &wire.Output{ID: "p-1", Stream: sos.StreamOut, Offset: 0, Data: []byte("abcde")})
	g.say(0, &wire.Exited{ID: "p-1", Exit: exit0(), At: time.Now()})
	g.say(0, &wire.Drained{ID: "p-1"})
	e.wait(t, "started p-1", "output p-1 out abc", "exited p-1", "resume p-1", "output p-1 out de", "drained p-1")
}

// TestReleaseLost: an end whose release did not arrive is not told twice.
func TestReleaseLost(t *testing.T) {
	e := newEvents()
	g, c, _ := newScript(t, e)
	g.accept()
	g.hello()
	begin(t, g, c)
	g.say(0, &wire.Exited{ID: "p-1", Exit: exit0()})
	g.say(0, &wire.Drained{ID: "p-1"})
	e.wait(t, "exited p-1", "drained p-1")
	g.accept()
	g.hello(guest.ProcessInfo{ID: "p-1", Exited: true})
	if _, r := expect[*wire.Release](g); r.ID != "p-1" {
		t.Errorf("%+v", r)
	}
	e.wait(t, "exited p-1", "drained p-1")
}

// TestRetry: a call whose answer was lost is made again with its id; one that the
// guest turns out to hold is not.
func TestRetry(t *testing.T) {
	g, c, _ := newScript(t, newEvents())
	g.accept()
	g.hello()
	if err := c.Ready(quick(t)); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	go func() { errs <- c.Ping(quick(t)) }()
	first, _ := expect[*wire.Ping](g)
	go func() { errs <- c.Start(quick(t), guest.Command{ID: "p-1", Argv: []string{"x"}}) }()
	expect[*wire.Start](g)
	g.accept()
	g.hello(guest.ProcessInfo{ID: "p-1"})
	expect[*wire.Resume](g)
	if again, _ := expect[*wire.Ping](g); again != first {
		t.Errorf("call %d became %d", first, again)
	}
	g.say(first, &wire.Pong{})
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestRunEnds is when Run returns.
func TestRunEnds(t *testing.T) {
	t.Run("another instance", func(t *testing.T) {
		g, c, done := newScript(t, newEvents())
		g.accept()
		g.hello()
		begin(t, g, c)
		g.accept()
		g.say(0, &wire.HelloReply{Protocol: 1, Instance: "two"})
		if err := <-done; sos.ErrorCode(err) != sos.CodeSandboxLost {
			t.Errorf("%v", err)
		}
		if err := c.Ping(quick(t)); sos.ErrorCode(err) != sos.CodeSandboxLost {
			t.Errorf("call afterwards: %v", err)
		}
	})
	t.Run("other protocol", func(t *testing.T) {
		g, c, done := newScript(t, newEvents())
		g.accept()
		g.say(0, &wire.HelloReply{Protocol: guest.Protocol + 1, Instance: "one"})
		if err := <-done; sos.ErrorCode(err) != sos.CodeUnsupported {
			t.Errorf("%v", err)
		}
		if err := c.Ready(quick(t)); sos.ErrorCode(err) != sos.CodeUnsupported {
			t.Errorf("ready: %v", err)
		}
	})
	t.Run("breaches for ever", func(t *testing.T) {
		g, _, done := newScript(t, newEvents())
		for range maxFaults {
			g.accept()
			g.say(0, &wire.Pong{})
		}
		if err := <-done; sos.ErrorCode(err) != sos.CodeSandboxLost {
			t.Errorf("%v", err)
		}
	})
	t.Run("dial says stopped", func(t *testing.T) {
		stopped := &sos.Error{Code: sos.CodeNotStarted, Message: "stopped"}
		c := New(Config{Sink: newEvents(), Dial: func(context.Context) (net.Conn, error) { return nil, stopped }})
		call := make(chan error, 1)
		go func() { call <- c.Ping(quick(t)) }()
		if err := c.Run(quick(t)); !errors.Is(err, stopped) {
			t.Errorf("%v", err)
		}
		if err := <-call; sos.ErrorCode(err) != sos.CodeNotStarted {
			t.Errorf("call: %v", err)
		}
	})
	t.Run("claims many processes", func(t *testing.T) {
		g, _, _ := newScript(t, newEvents())
		g.accept()
		g.say(0, &wire.HelloReply{Protocol: 1, Instance: "one", Processes: maxHeld + 1})
		g.accept()
		g.hello()
	})
}

// TestSilence: a guest that reads or answers nothing makes no call hang.
func TestSilence(t *testing.T) {
	g, c, _ := newScript(t, newEvents())
	g.accept()
	g.hello()
	if err := c.Ready(quick(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := c.Ping(ctx); sos.ErrorCode(err) != sos.CodeUnavailable {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Ping(gone); sos.ErrorCode(err) != sos.CodeCanceled {
		t.Errorf("%v", err)
	}
	full := false
	for range 16 { // at most twice the queue is taken: what waits and what is being written
		if full {
			break
		}
		err := c.Start(ctx, guest.Command{ID: "p", Argv: []string{"x"}, Stdin: make([]byte, guest.MaxText)})
		if sos.ErrorCode(err) != sos.CodeUnavailable {
			t.Fatalf("%v", err)
		}
		full = strings.Contains(err.Error(), "no more requests")
	}
	if !full {
		t.Error("the queue has no end")
	}
}

func TestRequestLimits(t *testing.T) {
	c := New(Config{Sink: newEvents()})
	for name, err := range map[string]error{
		"no id":      c.Start(quick(t), guest.Command{}),
		"long id":    c.Start(quick(t), guest.Command{ID: strings.Repeat("x", 200)}),
		"long stdin": c.Start(quick(t), guest.Command{ID: "p", Stdin: make([]byte, guest.MaxText+1)}),
		"long text":  c.RunSession(quick(t), guest.SessionCommand{ID: "p", Session: "s", Text: strings.Repeat("x", guest.MaxText+1)}),
		"many args":  c.Start(quick(t), guest.Command{ID: "p", Argv: make([]string, wire.MaxList+1)}),
	} {
		if code := sos.ErrorCode(err); code != sos.CodeInvalid && code != sos.CodeTooLarge {
			t.Errorf("%s: %v", name, err)
		}
	}
}
