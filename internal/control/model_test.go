package control

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// model is what one sandbox must look like.
type model struct {
	id      string
	status  sos.Status
	written bool // it has the file that "write" makes
	ran     bool // it was started successfully before
	session int  // session commands
}

// TestModel lets random sequences of operations, crashes and losses run against
// the plane and compares with a model of a few lines.
func TestModel(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxSandboxes = 100 })
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > testutil.Scale(30) {
			return // rapid's own count is for cheaper checks
		}
		m := &model{status: sos.StatusCreated}
		m.id = r.create(sos.SandboxSpec{})
		removed := false
		must := func(err error) {
			rt.Helper()
			if err != nil {
				rt.Fatalf("%s: %v", m.status, err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"start": func(rt *rapid.T) {
				_, err := r.StartSandbox(t.Context(), m.id)
				switch {
				case removed:
					wantCode(t, err, sos.CodeNotFound)
				case m.status.Running():
					wantCode(t, err, sos.CodeAlreadyStarted)
				default:
					must(err)
					m.status, m.ran = sos.StatusStarted, true
				}
			},
			"stop": func(rt *rapid.T) {
				_, err := r.StopSandbox(t.Context(), m.id, sos.StopRequest{})
				if removed {
					wantCode(t, err, sos.CodeNotFound)
					return
				}
				must(err)
				if m.status.Running() {
					m.status = sos.StatusStopped
				}
			},
			"write": func(rt *rapid.T) {
				if m.status != sos.StatusStarted || removed {
					return
				}
				_, err := r.Exec(t.Context(), m.id, sos.ExecRequest{Command: "cd /root; echo data > f"})
				must(err)
				m.written = true
				m.session++
			},
			"read": func(rt *rapid.T) {
				res, err := r.Exec(t.Context(), m.id, sos.ExecRequest{Command: "cat /root/f", Standalone: true})
				switch {
				case removed:
					wantCode(t, err, sos.CodeNotFound)
				case !m.status.Running():
					wantCode(t, err, sos.CodeNotStarted)
				default:
					must(err)
					if (res.Output == "data\n") != m.written {
						rt.Fatalf("read %q, written %v", res.Output, m.written)
					}
				}
			},
			"exit": func(rt *rapid.T) {
				res, err := r.Exec(t.Context(), m.id, sos.ExecRequest{Command: "exit 3"})
				switch {
				case removed:
					wantCode(t, err, sos.CodeNotFound)
				case m.status == sos.StatusStarted:
					must(err)
					if !res.Exited || res.ExitCode != 3 {
						rt.Fatalf("exit gave %+v", res)
					}
					m.status = sos.StatusExited
					m.session++
				case m.status == sos.StatusExited:
					wantCode(t, err, sos.CodeSessionExited)
				default:
					wantCode(t, err, sos.CodeNotStarted)
				}
			},
			"lose": func(rt *rapid.T) {
				if !m.status.Running() || removed {
					return
				}
				r.fake.Crash(m.id, driver.Exit{Known: true, Signal: 9})
				eventually(t, "the loss is seen", func() bool { return r.look(m.id).Status == sos.StatusFailed })
				m.status = sos.StatusFailed
			},
			"crash": func(rt *rapid.T) {
				r.restart(func(c *Config) { c.MaxSandboxes = 100 })
			},
			"remove": func(rt *rapid.T) {
				if rapid.IntRange(0, 4).Draw(rt, "really") > 0 {
					return
				}
				err := r.RemoveSandbox(t.Context(), m.id)
				if removed {
					wantCode(t, err, sos.CodeNotFound)
					return
				}
				must(err)
				removed = true
			},
			"": func(rt *rapid.T) {
				s, err := r.GetSandbox(t.Context(), m.id)
				if removed {
					wantCode(t, err, sos.CodeNotFound)
					return
				}
				must(err)
				if s.Status != m.status || s.SessionCommandCount != m.session {
					rt.Fatalf("is %s (%s) with %d commands, want %s with %d", s.Status, s.Reason, s.SessionCommandCount, m.status, m.session)
				}
				held, _ := r.admission.counts()
				if want := boolInt(m.status.Running()); held != want {
					rt.Fatalf("%d places are taken, want %d", held, want)
				}
				list, _ := r.fake.List(t.Context())
				if len(list) != boolInt(m.ran) || len(list) == 1 && list[0].Running != m.status.Running() {
					rt.Fatalf("the driver has %v for %s", list, m.status)
				}
			},
		})
		if !removed {
			must(r.RemoveSandbox(t.Context(), m.id))
		}
	})
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestNothingIsLeftRunning: when the server has ended no goroutine of it goes on.
func TestNothingIsLeftRunning(t *testing.T) {
	before := stacks()
	r := newRig(t)
	a, b := r.started(sos.SandboxSpec{SetupCommands: []string{"true"}}), r.started(sos.SandboxSpec{})
	r.exec(a, "true")
	r.execReq(b, sos.ExecRequest{Command: "true", Standalone: true})
	go r.Exec(t.Context(), b, sos.ExecRequest{Command: "sleep 600"})
	if err := r.RemoveSandbox(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	r.shutdown()
	eventually(t, "no goroutine of this package is left", func() bool { return stacks() <= before })
}
