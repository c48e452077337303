package client

import (
	"context"
	"math"
	"net"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

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
