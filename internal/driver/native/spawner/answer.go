package spawner

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// answer carries out one call. The descriptor, if any, is the caller's to close.
func (s *Spawner) answer(ctx context.Context, req spawn.Request) (reply spawn.Reply, pidfd int) {
	pidfd = -1
	var err error
	switch req.Op {
	case spawn.OpHello:
		reply.Hello = s.hello()
	case spawn.OpCreate:
		reply.Created, pidfd, err = s.callCreate(ctx, req.Create)
	case spawn.OpList:
		reply.Guests = s.list()
	case spawn.OpWait:
		reply.Exit, err = s.wait(ctx, req.ID)
	case spawn.OpKill:
		reply.Exit, err = s.kill(s.life, req.ID)
	case spawn.OpRemove:
		err = s.remove(s.life, req.ID)
	case spawn.OpForget:
		err = s.forget(s.life, req.ID)
	case spawn.OpQuit:
		s.drain() // the spawner ends when this was answered
	default:
		err = &spawn.Error{Code: spawn.CodeInvalid, Message: "unknown call " + req.Op}
	}
	if err != nil {
		var e *spawn.Error
		if !errors.As(err, &e) {
			e = &spawn.Error{Code: spawn.CodeFailed, Message: err.Error()}
		}
		reply.Error = e
	}
	return reply, pidfd
}

// callCreate lets a create go on when its client is gone, and counts it so that
// quit waits for it.
func (s *Spawner) callCreate(ctx context.Context, req *spawn.Create) (*spawn.Created, int, error) {
	if req == nil {
		return nil, -1, &spawn.Error{Code: spawn.CodeInvalid, Message: "create: no request"}
	}
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil, -1, &spawn.Error{Code: spawn.CodeClosing, Message: "the spawner is ending"}
	}
	s.creating.Add(1)
	s.mu.Unlock()
	defer s.creating.Done()
	g, existed, err := s.create(s.life, *req)
	if err != nil {
		return nil, -1, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.pidfd < 0 {
		return nil, -1, &spawn.Error{Code: spawn.CodeFailed, Step: "start the guest",
			Message: "the guest ended at once: " + lastLine(g.exit.Log)}
	}
	pidfd, err := unix.FcntlInt(uintptr(g.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, -1, stepError("duplicate the pidfd", err)
	}
	return &spawn.Created{Pid: g.record.Pid, Existed: existed}, pidfd, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func (s *Spawner) list() []spawn.Guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []spawn.Guest{}
	for _, g := range s.guests {
		all = append(all, g.info())
	}
	slices.SortFunc(all, func(a, b spawn.Guest) int { return strings.Compare(a.ID, b.ID) })
	return all
}

func (s *Spawner) wait(ctx context.Context, id string) (*spawn.Exit, error) {
	g := s.lookup(id)
	if g == nil {
		return nil, &spawn.Error{Code: spawn.CodeNotFound, Message: "no sandbox " + id}
	}
	select {
	case <-g.done:
		return &g.exit, nil
	case <-ctx.Done():
		return nil, &spawn.Error{Code: spawn.CodeClosing, Message: "the spawner is ending"}
	}
}

// kill ends a sandbox and returns when nothing of it runs, with its end. Nil where
// there is none to tell of.
func (s *Spawner) kill(ctx context.Context, id string) (*spawn.Exit, error) {
	release, err := s.acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	g := s.lookup(id)
	if g == nil {
		return nil, nil
	}
	if err := s.killGuest(ctx, g); err != nil {
		return nil, stepError("kill "+id, err)
	}
	return &g.exit, nil
}

// alonePatience is how long the end of a guest may take to take all others along.
const alonePatience = 250 * time.Millisecond

// killGuest ends what runs. The end of the guest, the first process of its pid
// namespace, ends all others in the kernel, and none can be made any more; freezing
// them first, as killing a group does, costs more than all of that. It is for what
// is left where that does not come about.
func (s *Spawner) killGuest(ctx context.Context, g *guest) error {
	if !g.running() {
		return nil
	}
	g.killed.Store(true)
	s.mu.Lock()
	if g.pidfd >= 0 {
		_ = unix.PidfdSendSignal(g.pidfd, unix.SIGKILL, nil, 0) // gone already is fine
	}
	s.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	_ = g.group.Thaw(bounded) // what is frozen does not die; with no group there is nothing
	alone := time.NewTimer(alonePatience)
	defer alone.Stop()
	select {
	case <-g.done:
		return nil
	case <-alone.C:
	}
	if err := g.group.Kill(bounded); err != nil {
		return err
	}
	select {
	case <-g.done:
		return nil
	case <-bounded.Done():
		return bounded.Err()
	}
}

// remove is kill and forget in one.
func (s *Spawner) remove(ctx context.Context, id string) error {
	if _, err := s.kill(ctx, id); err != nil {
		return err
	}
	return s.forget(ctx, id)
}

// forget removes what is left of a sandbox that does not run.
func (s *Spawner) forget(ctx context.Context, id string) error {
	release, err := s.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	g := s.lookup(id)
	if g == nil {
		return nil
	}
	if g.running() {
		return &spawn.Error{Code: spawn.CodeInvalid, Message: "sandbox " + id + " runs"}
	}
	if err := os.RemoveAll(g.runDir); err != nil {
		return stepError("remove the run directory of "+id, err)
	}
	s.mu.Lock()
	delete(s.guests, id)
	s.mu.Unlock()
	return nil
}
