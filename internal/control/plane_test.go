package control

import (
	"testing"

	"github.com/seaofsimulation/sos"
)

func TestFirstSteps(t *testing.T) {
	r := newRig(t)
	id := r.create(sos.SandboxSpec{SetupCommands: []string{"cd /tmp", "echo here > mark"}})
	if s := r.look(id); s.Status != sos.StatusCreated {
		t.Fatalf("status %s", s.Status)
	}
	r.start(id)
	if s := r.look(id); s.Status != sos.StatusStarted || s.LastStandaloneExitCode == nil || *s.LastStandaloneExitCode != 0 {
		t.Fatalf("after start: %+v", s)
	}
	if got := r.exec(id, "cat /tmp/mark"); got.Output != "here" || got.ExitCode != 0 {
		t.Errorf("got %+v", got)
	}
	if got := r.exec(id, "pwd"); got.Output != "/" {
		t.Errorf("the session is in %q: the set-up's cd came through", got.Output)
	}
	if got := r.execReq(id, sos.ExecRequest{Command: "echo hi", Standalone: true}); got.Output != "hi\n" {
		t.Errorf("got %+v", got)
	}
	if _, err := r.StopSandbox(t.Context(), id, sos.StopRequest{}); err != nil {
		t.Fatal(err)
	}
	if s := r.look(id); s.Status != sos.StatusStopped || s.Reason != sos.ReasonUser {
		t.Errorf("after stop: %+v", s)
	}
	r.start(id)
	if got := r.exec(id, "cat /tmp/mark"); got.Output != "here" {
		t.Errorf("files after a stop: %+v", got)
	}
	if err := r.RemoveSandbox(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	_, err := r.GetSandbox(t.Context(), id)
	wantCode(t, err, sos.CodeNotFound)
	if list, _ := r.fake.List(t.Context()); len(list) != 0 {
		t.Errorf("the driver still has %v", list)
	}
}
