// Package drivertest is the suite that every driver passes. What control relies
// on is here as a case; what is not here, control must not rely on.
//
// Files and processes are proved from inside, through the guest's own client,
// with commands that any POSIX shell understands.
package drivertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// Deadline bounds every call of a case: far above what any of them takes, so
// that only a hang meets it.
const Deadline = 60 * time.Second

// Env is what the suite needs to know of the driver that it tests.
type Env struct {
	// Spec starts a sandbox whose image has a shell, echo, cat and sleep.
	Spec driver.Spec
	// Broken is a spec with which Start fails, or nil: the cases of failed starts
	// are then left to the driver's own tests.
	Broken *driver.Spec
	// KillGuest ends the guest of a running sandbox as by SIGKILL from the host.
	KillGuest func(t testing.TB, d driver.Driver, id string)
	// Reopen gives a new driver for what d left, as after a restart of the server;
	// nil where a driver has no life beyond its process.
	Reopen func(t testing.TB, d driver.Driver) driver.Driver
}

// Run runs every case on a driver of its own.
func Run(t *testing.T, newDriver func(t *testing.T) driver.Driver, env Env) {
	cases := []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"Info", testInfo},
		{"StartDialStop", testStartDialStop},
		{"StartTwiceIsOne", testStartTwice},
		{"StartKeepsFiles", testStartKeepsFiles},
		{"StartSeesItsOwnFilesOnly", testOwnFiles},
		{"StartFailureLeavesNothing", testStartFailure},
		{"StartFailureKeepsFiles", testStartFailureKeepsFiles},
		{"StartCancelled", testStartCancelled},
		{"BadIDs", testBadIDs},
		{"UnknownIDs", testUnknown},
		{"StopTwiceIsOnce", testStopTwice},
		{"StopEndsEverything", testStopEndsEverything},
		{"RemoveRunning", testRemoveRunning},
		{"RemoveStopped", testRemoveStopped},
		{"RemoveForgetsFiles", testRemoveForgets},
		{"ListFindsAll", testList},
		{"WaitOfManyEndsWithStop", testWaitMany},
		{"WaitAfterTheEnd", testWaitAfter},
		{"WaitEndsWithContext", testWaitContext},
		{"WaitSeesNextRun", testWaitNextRun},
		{"GuestKilled", testGuestKilled},
		{"DialMany", testDialMany},
		{"FreezeThaw", testFreeze},
		{"StopFrozen", testStopFrozen},
		{"Stats", testStats},
		{"ConcurrentOnOneID", testConcurrentOne},
		{"ConcurrentOnManyIDs", testConcurrentMany},
		{"ReopenAdopts", testReopen},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*Deadline)
			defer cancel()
			c.run(t, &suite{d: newDriver(t), env: env, ctx: ctx, shells: map[string]*Shell{}})
		})
	}
}

// suite is one case's driver with helpers that fail the test.
type suite struct {
	d   driver.Driver
	env Env
	ctx context.Context

	mu     sync.Mutex
	shells map[string]*Shell
}

func newID() string { return sos.NewID(sos.SandboxIDPrefix, nil) }

// many is the number of sandboxes that the concurrent cases use.
func many() int { return testutil.Scale(8) }

// connect gives a shell of id. The one before is closed: a guest serves the
// newest host, and an old one that redials would take the sandbox away again.
func (s *suite) connect(t *testing.T, id string) *Shell {
	t.Helper()
	s.mu.Lock()
	old := s.shells[id]
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
	sh := Connect(t, s.d, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shells[id] = sh
	return sh
}

func (s *suite) start(t *testing.T, id string) {
	t.Helper()
	if err := s.d.Start(s.ctx, id, s.env.Spec); err != nil {
		t.Fatalf("start %s: %v", id, err)
	}
}

func (s *suite) stop(t *testing.T, id string) {
	t.Helper()
	if err := s.d.Stop(s.ctx, id); err != nil {
		t.Fatalf("stop %s: %v", id, err)
	}
}

func (s *suite) remove(t *testing.T, id string) {
	t.Helper()
	if err := s.d.Remove(s.ctx, id); err != nil {
		t.Fatalf("remove %s: %v", id, err)
	}
}

func (s *suite) list(t *testing.T) map[string]driver.Status {
	t.Helper()
	l, err := s.d.List(s.ctx)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	m := make(map[string]driver.Status, len(l))
	for _, st := range l {
		if _, twice := m[st.ID]; twice {
			t.Errorf("list names %s twice", st.ID)
		}
		m[st.ID] = st
	}
	return m
}

// status is List's entry of id; the zero Status when there is none.
func (s *suite) status(t *testing.T, id string) driver.Status {
	t.Helper()
	return s.list(t)[id]
}

// want checks the entry of id.
func (s *suite) want(t *testing.T, id string, running, data bool) {
	t.Helper()
	st := s.status(t, id)
	if st.Running != running || st.HasData != data {
		t.Errorf("list: %s is running %v, has data %v; want %v, %v", id, st.Running, st.HasData, running, data)
	}
}

// refused checks that Dial says that the sandbox does not run.
func (s *suite) refused(t *testing.T, id string) {
	t.Helper()
	c, err := s.d.Dial(s.ctx, id)
	if err == nil {
		c.Close()
	}
	if sos.ErrorCode(err) != sos.CodeNotStarted {
		t.Errorf("dial %s: %v; want code %s", id, err, sos.CodeNotStarted)
	}
}

func (s *suite) wait(t *testing.T, id string) driver.Exit {
	t.Helper()
	e, err := s.d.Wait(s.ctx, id)
	if err != nil {
		t.Fatalf("wait %s: %v", id, err)
	}
	return e
}
