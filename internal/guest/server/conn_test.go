package server_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/wire"
)

// raw is a host that says what a test wants.
type raw struct {
	t *testing.T
	net.Conn
	r *wire.Reader
}

func (r *rig) raw(t *testing.T) *raw {
	t.Helper()
	c, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return &raw{t, c, wire.NewReader(c, wire.MaxAnswer)}
}

func (c *raw) say(call uint64, m wire.Message) {
	c.t.Helper()
	if _, err := c.Write(wire.Append(nil, call, m)); err != nil {
		c.t.Fatal(err)
	}
}

// until reads frames up to the first of a type.
func until[M wire.Message](c *raw) (uint64, M) {
	c.t.Helper()
	for {
		f, err := c.r.Next()
		if err != nil {
			c.t.Fatalf("waiting for a frame: %v", err)
		}
		m, err := wire.Decode(f)
		if err != nil {
			c.t.Fatal(err)
		}
		if got, ok := m.(M); ok {
			return f.Call, got
		}
	}
}

func (c *raw) hello(client string) *wire.HelloReply {
	c.t.Helper()
	c.say(0, &wire.Hello{Protocol: guest.Protocol, MinProtocol: guest.MinProtocol, Client: client})
	_, m := until[*wire.HelloReply](c)
	return m
}

func TestTakeover(t *testing.T) {
	r := newRig(t)
	r.disconnect()
	first, second := r.raw(t), r.raw(t)
	a := first.hello("a")
	b := second.hello("b")
	if a.Instance == "" || a.Instance != b.Instance || a.Protocol != guest.Protocol {
		t.Errorf("%+v %+v", a, b)
	}
	until[*wire.Superseded](first)
	if _, err := first.r.Next(); err != io.EOF {
		t.Errorf("the older connection: %v", err)
	}
	second.say(1, &wire.Ping{})
	if call, _ := until[*wire.Pong](second); call != 1 {
		t.Errorf("call %d", call)
	}
}

func TestOtherProtocol(t *testing.T) {
	r := newRig(t)
	c := r.raw(t)
	c.say(0, &wire.Hello{Protocol: guest.Protocol + 9, MinProtocol: guest.Protocol + 9})
	if _, m := until[*wire.Reply](c); m.Code != sos.CodeUnsupported {
		t.Errorf("%+v", m)
	}
	newer := r.raw(t)
	newer.say(0, &wire.Hello{Protocol: guest.Protocol + 9, MinProtocol: guest.Protocol, Client: "x"})
	if _, m := until[*wire.HelloReply](newer); m.Protocol != guest.Protocol {
		t.Errorf("%+v", m)
	}
}

// TestBadRequests end their connection and nothing else.
func TestBadRequests(t *testing.T) {
	r := newRig(t)
	for name, bytes := range map[string]string{
		"no hello":  string(wire.Append(nil, 1, &wire.Ping{})),
		"garbage":   "\xff\xff\xff\xff\xff\xff",
		"unknown":   "\x00\x00\x00\x02\x63\x00",
		"cut":       "\x00\x00\x00\x03\x02\x01\x09",
		"not ours":  string(wire.Append(nil, 0, &wire.Drained{ID: "x"})),
		"no length": "\x00\x00\x00\x00",
	} {
		c := r.raw(t)
		c.Write([]byte(bytes))
		if _, err := c.r.Next(); err == nil {
			t.Errorf("%s: answered", name)
		}
	}
	if rec := r.run("echo alive"); rec.text() != "alive\n" {
		t.Errorf("%q", rec.text())
	}
}

// TestCallsOnce: a repeated call is the same call, also when the process is long
// gone.
func TestCallsOnce(t *testing.T) {
	r := newRig(t)
	r.disconnect()
	file := t.TempDir() + "/log"
	start := &wire.Start{Command: guest.Command{ID: "p", Argv: []string{"/bin/sh", "-c", "echo x >> " + file}}}
	c := r.raw(t)
	c.hello("a")
	c.say(7, start)
	if call, m := until[*wire.Reply](c); call != 7 || m.Code != "" {
		t.Errorf("%d %+v", call, m)
	}
	until[*wire.Drained](c)
	for range 2 {
		c.say(7, start)
		if call, m := until[*wire.Reply](c); call != 7 || m.Code != "" {
			t.Errorf("%d %+v", call, m)
		}
	}
	c.say(0, &wire.Release{ID: "p"})
	c.say(8, &wire.Ping{})
	until[*wire.Pong](c)
	c = r.raw(t)
	if m := c.hello("a"); m.Processes != 0 {
		t.Errorf("%+v", m)
	}
	c.say(7, start)
	until[*wire.Reply](c)
	c = r.raw(t)
	c.hello("another client")
	c.say(7, start) // its id was used
	until[*wire.Reply](c)
	c.Close()
	r.connect(r.sink)
	if rec := r.run("cat " + file); rec.text() != "x\n" {
		t.Errorf("%q", rec.text())
	}
}

// TestUnwanted: a process that the host does not want (any more) is ended.
func TestUnwanted(t *testing.T) {
	r := newRig(t)
	rec := r.start("trap '' HUP; echo x; sleep 921 & sleep 922")
	waitText(t, rec, r, "x\n")
	r.disconnect()
	c := r.raw(t)
	c.hello("b")
	if _, h := until[*wire.Held](c); h.ID != rec.id || h.Ends[sos.StreamOut] != 2 || h.Exited {
		t.Errorf("%+v", h)
	}
	c.say(0, &wire.Release{ID: rec.id})
	c.say(1, &wire.Ping{})
	until[*wire.Pong](c)
	c.Close()
	r.connect(newSink(t))
	r.waitGone("sleep 92")
	if again := r.sink.get(rec.id); again.resumed != 0 || ended(again.ended) {
		t.Error("it came back")
	}
}
