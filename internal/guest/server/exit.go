package server

import (
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// await waits for the end of a standalone command, ending it at its time or when
// asked to. oomBefore is the kernel's counter before it started.
func (p *process) await(timeout, grace time.Duration, oomBefore int64) sos.Exit {
	var deadline <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		deadline = t.C
	}
	var why sos.EndReason
	signalled := false
	for waiting := true; waiting && !signalled; {
		select {
		case <-p.child.done:
			waiting = false
		case <-deadline:
			why, deadline = sos.EndTimeout, nil
			signalled = p.terminate(grace)
		case k := <-p.kills:
			why = k.reason
			signalled = p.terminate(k.grace)
		}
	}
	select {
	case <-p.child.done:
	default:
		if !p.lastWait() {
			return sos.Exit{Reason: why, Message: "it does not end, not even killed"}
		}
	}
	e := p.g.exitOf(p.child.status, oomBefore, signalled)
	if signalled {
		e.Reason = why
	}
	return e
}

// lastWait is the short time that a killed process may take. A zombie is as good as
// reaped.
func (p *process) lastWait() bool {
	if s, ok := readStat(p.child.pid); !ok || s.dead() {
		<-p.child.done
		return true
	}
	select {
	case <-p.child.done:
		return true
	case <-time.After(50 * time.Millisecond):
		return false
	}
}

// exitOf makes an end of what the kernel says. ours: we have sent signals.
func (g *Guest) exitOf(ws syscall.WaitStatus, oomBefore int64, ours bool) sos.Exit {
	code := ws.ExitStatus()
	e := sos.Exit{Reason: sos.EndExit, OOMKilled: oomKills(g.cfg.OOM) > oomBefore}
	if ws.Signaled() {
		code = 128 + int(ws.Signal())
		e.Signal = signalName(ws.Signal())
		e.Reason = sos.EndSignal
		if ws.Signal() == syscall.SIGKILL && e.OOMKilled && !ours {
			e.Reason = sos.EndOOM
		}
	}
	e.ExitCode = &code
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		e.Reason = sos.EndSandboxStopped
	}
	return e
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return "SIGRTMIN+" + strconv.Itoa(int(sig)-34)
}
