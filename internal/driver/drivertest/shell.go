package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/guest"
	"github.com/seaofsimulation/sos/internal/guest/client"
)

// Shell runs commands in one sandbox through the guest's client.
type Shell struct {
	Client *client.Client
	// Close ends the connection and waits for that.
	Close func()

	mu    sync.Mutex
	procs map[string]*proc
	seq   int
}

type proc struct {
	out     bytes.Buffer
	started sync.Once
	runs    chan struct{} // closed when it was started, or has ended
	exited  chan struct{}
	exit    sos.Exit
}

// Connect dials the guest of id and waits for its hello. The connection ends
// with the test, or with Close of what it returns.
func Connect(t testing.TB, d driver.Driver, id string) *Shell {
	t.Helper()
	s := &Shell{procs: map[string]*proc{}}
	s.Client = client.New(client.Config{
		Dial: func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id) },
		Sink: s,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Client.Run(ctx) }()
	s.Close = func() { cancel(); <-done }
	t.Cleanup(s.Close)
	rctx, rcancel := context.WithTimeout(ctx, Deadline)
	defer rcancel()
	if err := s.Client.Ready(rctx); err != nil {
		t.Fatalf("guest of %s does not answer: %v", id, err)
	}
	return s
}

// Begin starts a command under /bin/sh -c and returns its id when it runs.
func (s *Shell) Begin(t testing.TB, text string) string {
	t.Helper()
	s.mu.Lock()
	s.seq++
	id := fmt.Sprintf("p-drivertest%d-%d", time.Now().UnixNano(), s.seq)
	p := &proc{runs: make(chan struct{}), exited: make(chan struct{})}
	s.procs[id] = p
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	err := s.Client.Start(ctx, guest.Command{
		ID: id, Argv: []string{"/bin/sh", "-c", text}, Cwd: "/",
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
	})
	if err != nil {
		t.Fatalf("run %q: %v", text, err)
	}
	select {
	case <-p.runs:
	case <-ctx.Done():
		t.Fatalf("%q does not start", text)
	}
	return id
}

// Finish waits for the end of a command.
func (s *Shell) Finish(t testing.TB, id string) (out string, code int) {
	t.Helper()
	p := s.proc(id)
	select {
	case <-p.exited:
	case <-time.After(Deadline):
		t.Fatalf("process %s does not end", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.exit.ExitCode == nil {
		t.Fatalf("process %s has no exit code: %s %s", id, p.exit.Reason, p.exit.Message)
	}
	return p.out.String(), *p.exit.ExitCode
}

// Run is Begin and Finish.
func (s *Shell) Run(t testing.TB, text string) (out string, code int) {
	t.Helper()
	return s.Finish(t, s.Begin(t, text))
}

// Must runs a command that has to exit 0, and gives its output.
func (s *Shell) Must(t testing.TB, text string) string {
	t.Helper()
	out, code := s.Run(t, text)
	if code != 0 {
		t.Fatalf("%q exited %d: %s", text, code, out)
	}
	return out
}

// Ended says whether the command has ended by now.
func (s *Shell) Ended(id string) bool {
	select {
	case <-s.proc(id).exited:
		return true
	default:
		return false
	}
}

func (s *Shell) proc(id string) *proc {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[id]
}

// Resume is of guest.Sink: only what this Shell started is wanted.
func (s *Shell) Resume(p guest.ProcessInfo) (map[sos.Stream]int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pr := s.procs[p.ID]
	if pr == nil {
		return nil, false
	}
	return map[sos.Stream]int64{sos.StreamOut: int64(pr.out.Len())}, true
}

// Output is of guest.Sink.
func (s *Shell) Output(id string, _ sos.Stream, offset int64, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.procs[id]; p != nil {
		if skip := int64(p.out.Len()) - offset; skip >= 0 && skip < int64(len(data)) {
			p.out.Write(data[skip:])
		}
	}
}

// Exited is of guest.Sink.
func (s *Shell) Exited(id string, e sos.Exit, _ time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.procs[id]
	if p == nil {
		return
	}
	select {
	case <-p.exited:
	default:
		p.exit = e
		close(p.exited)
		p.started.Do(func() { close(p.runs) })
	}
}

// Started is of guest.Sink.
func (s *Shell) Started(id string, _ time.Time) {
	if p := s.proc(id); p != nil {
		p.started.Do(func() { close(p.runs) })
	}
}

// Drained and SessionEnded are of guest.Sink; the suite needs neither.
func (s *Shell) Drained(string)                {}
func (s *Shell) SessionEnded(string, sos.Exit) {}
