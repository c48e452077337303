package client

import (
	"context"
	"errors"
	"math"
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

// TestHostile: each breach ends the connection, and the client makes another.
func TestHostile(t *testing.T) {
	cases := map[string]func(g *script){
		"jump": func(g *script) {
			g.say(0, &wire.Output{ID: "p-1", Stream: sos.StreamOut, Offset: 5, Data: []byte("x")})
		},
		"drained first": func(g *script) { g.say(0, &wire.Drained{ID: "p-1"}) },
		"no reason":     func(g *script) { g.say(0, &wire.Exited{ID: "p-1"}) },
		"signal name": func(g *script) {
			g.say(0, &wire.Exited{ID: "p-1", Exit: sos.Exit{Reason: sos.EndSignal, Signal: "\x1b[2J"}})
		},
		"request":       func(g *script) { g.say(0, &wire.Ping{}) },
		"second hello":  func(g *script) { g.hello() },
		"unknown type":  func(g *script) { g.c.Write([]byte{0, 0, 0, 2, 99, 0}) },
		"huge frame":    func(g *script) { g.c.Write([]byte{0xff, 0xff, 0xff, 0xff, 66, 0}) },
		"cut fields":    func(g *script) { g.c.Write([]byte{0, 0, 0, 3, 68, 0, 9}) },
		"joined frames": func(g *script) { g.c.Write([]byte{0, 0, 0, 3, 128, 0, 9}) },
		"exit code 9999": func(g *script) {
			n := 9999
			g.say(0, &wire.Exited{ID: "p-1", Exit: sos.Exit{ExitCode: &n, Reason: sos.EndExit}})
		},
		"flood of junk": func(g *script) {
			var b []byte
			for range maxJunk + 10 {
				b = wire.Append(b, 0, &wire.Drained{ID: "unknown"})
			}
			g.c.Write(b)
		},
	}
	for name, breach := range cases {
		t.Run(name, func(t *testing.T) {
			e := newEvents()
			g, c, _ := newScript(t, e)
			g.accept()
			g.hello()
			begin(t, g, c)
			breach(g)
			g.accept() // it dials again, so it dropped the first
			g.hello(guest.ProcessInfo{ID: "p-1"})
			expect[*wire.Resume](g)
			e.wait(t, "resume p-1")
		})
	}
}

// TestIgnored: what nobody asked for changes nothing.
func TestIgnored(t *testing.T) {
	e := newEvents()
	g, c, _ := newScript(t, e)
	g.accept()
	g.hello()
	begin(t, g, c)
	g.say(77, &wire.Reply{})
	g.say(0, &wire.Pong{})
	g.say(0, &wire.Started{ID: "other"})
	g.say(0, &wire.Output{ID: "other", Stream: sos.StreamOut, Offset: 9, Data: []byte("x")})
	g.say(0, &wire.Exited{ID: "other", Exit: exit0()})
	g.say(0, &wire.Drained{ID: "other"})
	g.say(0, &wire.Output{ID: "p-1", Stream: sos.StreamOut})
	g.say(0, &wire.Started{ID: "p-1", At: time.Now()})
	g.say(0, &wire.Started{ID: "p-1", At: time.Now()})
	g.say(0, &wire.Exited{ID: "p-1", Exit: exit0()})
	g.say(0, &wire.Exited{ID: "p-1", Exit: exit0()})
	g.say(0, &wire.Drained{ID: "p-1"})
	g.say(0, &wire.Drained{ID: "p-1"})
	g.say(0, &wire.SessionEnded{Session: "s", Exit: exit0()})
	e.wait(t, "started p-1", "exited p-1", "drained p-1", "session s")
}

// TestClaims: times are clamped and texts cleaned.
func TestClaims(t *testing.T) {
	e := newEvents()
	g, c, _ := newScript(t, e)
	g.accept()
	g.hello()
	before := time.Now()
	begin(t, g, c)
	g.say(0, &wire.Started{ID: "p-1", At: time.Unix(0, math.MaxInt64)})
	g.say(0, &wire.Exited{ID: "p-1", At: time.Unix(1, 0), Exit: sos.Exit{Reason: sos.EndSpawnFailed, Message: "a\x1b[31m\xff\u202eb\r\nc"}})
	e.wait(t, "started p-1", "exited p-1")
	for _, at := range e.times {
		if at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("time %v", at)
		}
	}
	if e.times[1].Before(e.times[0]) {
		t.Errorf("ended %v, started %v", e.times[1], e.times[0])
	}
	if got := e.exits["p-1"].Message; got != "a [31m  b  c" {
		t.Errorf("message %q", got)
	}
}

// TestEnds of Run.
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
	full := 0
	for range 10 { // 160 MiB to a guest that does not read
		err := c.Start(ctx, guest.Command{ID: "p", Argv: []string{"x"}, Stdin: make([]byte, guest.MaxText)})
		if sos.ErrorCode(err) != sos.CodeUnavailable {
			t.Fatalf("%v", err)
		}
		if strings.Contains(err.Error(), "no more requests") {
			full++
		}
	}
	if full == 0 {
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

// FuzzGuest: whatever a guest sends, the client neither panics nor breaks the rules
// of its sink.
func FuzzGuest(f *testing.F) {
	var good []byte
	good = wire.Append(good, 0, &wire.HelloReply{Protocol: 1, Instance: "one", Processes: 1})
	good = wire.Append(good, 0, &wire.Held{ProcessInfo: guest.ProcessInfo{ID: "p-1"}})
	good = wire.Append(good, 0, &wire.Started{ID: "p-1", At: time.Now()})
	good = wire.Append(good, 0, &wire.Output{ID: "p-1", Stream: sos.StreamOut, Data: []byte("abc")})
	good = wire.Append(good, 0, &wire.Exited{ID: "p-1", Exit: exit0()})
	good = wire.Append(good, 0, &wire.Drained{ID: "p-1"})
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &strict{t: t, next: map[string]int64{}, state: map[string]int{}}
		dials := 0
		c := New(Config{Sink: s, Dial: func(context.Context) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, &sos.Error{Code: sos.CodeNotStarted}
			}
			host, inside := net.Pipe()
			go func() {
				r := wire.NewReader(inside, wire.MaxRequest)
				for {
					if _, err := r.Next(); err != nil {
						return
					}
				}
			}()
			go func() { inside.Write(data); inside.Close() }()
			return host, nil
		}})
		c.Run(quick(t))
	})
}

// strict is a sink that knows the rules.
type strict struct {
	t     *testing.T
	next  map[string]int64
	state map[string]int
}

func (s *strict) step(id string, from, to int, what string) {
	if s.state[id] > from {
		s.t.Errorf("%s of %q in state %d", what, id, s.state[id])
	}
	s.state[id] = to
}

func (s *strict) Resume(p guest.ProcessInfo) (map[sos.Stream]int64, bool) { return nil, true }
func (s *strict) Started(id string, _ time.Time)                          { s.step(id, 0, 1, "start") }
func (s *strict) Output(id string, k sos.Stream, offset int64, data []byte) {
	if s.state[id] == 3 || offset != s.next[id+string(k)] || len(data) == 0 {
		s.t.Errorf("output of %q at %d", id, offset)
	}
	s.next[id+string(k)] += int64(len(data))
}
func (s *strict) Exited(id string, e sos.Exit, _ time.Time) {
	s.step(id, 1, 2, "end")
	if e.Reason == "" {
		s.t.Error("end without a reason")
	}
}
func (s *strict) Drained(id string)             { s.step(id, 2, 3, "drained") }
func (s *strict) SessionEnded(string, sos.Exit) {}
