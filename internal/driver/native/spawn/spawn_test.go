package spawn

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// serve answers every request with fn on one connection.
func serve(t *testing.T, fn func(c *net.UnixConn, r Request)) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, MaxMessage+1)
		for {
			var r Request
			if _, err := Receive(c, buf, &r); err != nil {
				return
			}
			fn(c, r)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := Dial(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); l.Close(); <-done })
	return c
}

func valid() Create {
	return Create{ID: "sb-x", RunDir: "/run/x", StateDir: "/s/x", GuestPath: "/g", Layers: []string{"/l"}, IDBase: 1 << 20}
}

func TestCreateCarriesDescriptor(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := serve(t, func(c *net.UnixConn, req Request) {
		if req.Create == nil || req.Create.IDBase != 1<<20 {
			t.Errorf("request %+v", req)
		}
		_ = Send(c, Reply{Seq: req.Seq, Created: &Created{Pid: 42}}, int(w.Fd()))
		w.Close()
	})
	got, err := c.Create(context.Background(), valid())
	if err != nil || got.Pid != 42 {
		t.Fatalf("%+v, %v", got, err)
	}
	if flags, err := unix.FcntlInt(uintptr(got.Pidfd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Fatalf("flags %x, %v", flags, err)
	}
	if _, err := unix.Write(got.Pidfd, []byte("x")); err != nil {
		t.Fatal(err)
	}
	unix.Close(got.Pidfd)
}

func TestAnswersOutOfOrderAndErrors(t *testing.T) {
	var held *Request
	c := serve(t, func(c *net.UnixConn, r Request) {
		if r.Op == OpWait {
			held = &r
			return
		}
		_ = Send(c, Reply{Seq: r.Seq, Error: &Error{Step: "kill", Errno: int(unix.EPERM), Message: "kill: no"}}, -1)
		_ = Send(c, Reply{Seq: held.Seq, Exit: &Exit{Known: true, Status: 3}}, -1)
	})
	got := make(chan Exit, 1)
	go func() {
		e, _ := c.Wait(context.Background(), "sb-x")
		got <- e
	}()
	for { // until the wait is on its way: its number is the first
		c.mu.Lock()
		n := c.seq
		c.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	err := c.Kill(context.Background(), "sb-x")
	var e *Error
	if !errors.As(err, &e) || e.Step != "kill" || !errors.Is(err, unix.EPERM) {
		t.Fatalf("error %v", err)
	}
	if e := <-got; !e.Known || e.Status != 3 {
		t.Fatalf("exit %+v", e)
	}
}

func TestEndOfContextAndConnection(t *testing.T) {
	c := serve(t, func(c *net.UnixConn, r Request) {
		if r.Op == OpQuit {
			c.Close()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Wait(ctx, "sb-x"); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if err := c.Quit(context.Background()); !errors.Is(err, ErrDisconnected) {
		t.Fatalf("error %v", err)
	}
	<-c.Done()
	if _, err := c.Hello(context.Background()); !errors.Is(err, ErrDisconnected) {
		t.Fatalf("error %v", err)
	}
}

func TestValidate(t *testing.T) {
	ok := valid()
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Create){
		"id":        func(c *Create) { c.ID = "../x" },
		"id dot":    func(c *Create) { c.ID = "." },
		"cgroup":    func(c *Create) { c.Cgroup = "a/b" },
		"run":       func(c *Create) { c.RunDir = "run" },
		"run up":    func(c *Create) { c.RunDir = "/run/../x" },
		"layers":    func(c *Create) { c.Layers = nil },
		"many":      func(c *Create) { c.Layers = make([]string, MaxLayers+1) },
		"relative":  func(c *Create) { c.Layers = []string{"l"} },
		"base":      func(c *Create) { c.IDBase = 0 },
		"base high": func(c *Create) { c.IDBase = 1<<32 - IDs },
		"host":      func(c *Create) { c.Hostname = strings.Repeat("h", 65) },
		"limit":     func(c *Create) { c.Limits.Memory = -1 },
	} {
		c := valid()
		change(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRecord(t *testing.T) {
	want := Record{Pid: 77, StartTime: 123456, BootID: "b-1", Cgroup: "sb-x", IDBase: 1 << 20}
	got, err := ParseRecord(want.String())
	if err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, s := range []string{"", "1 2 b c 5", "x 2 b c 5", "7 x b c 5", "7 2 b ../c 5", "7 2 b c -5", "7 2 b c 5 6"} {
		if r, err := ParseRecord(s); err == nil {
			t.Errorf("%q gives %+v", s, r)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("77 1 b sb-x 65536\n")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRecord(s)
		if err != nil {
			return
		}
		if again, err := ParseRecord(r.String()); err != nil || again != r {
			t.Fatalf("%q: %+v, %v", s, again, err)
		}
	})
}
