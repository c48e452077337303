package control

import (
	"testing"

	"github.com/seaofsimulation/sos"
)

// The cost of the control plane itself: the guest is a fake in this process.

func BenchmarkSessionExec(b *testing.B) {
	benchmarkExec(b, sos.ExecRequest{Command: "echo x"})
}

func BenchmarkStandaloneExec(b *testing.B) {
	benchmarkExec(b, sos.ExecRequest{Command: "echo x", Standalone: true})
}

func benchmarkExec(b *testing.B, q sos.ExecRequest) {
	r := newRig(b)
	id := r.started(sos.SandboxSpec{})
	r.exec(id, "true")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Exec(b.Context(), id, q); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLifecycle(b *testing.B) {
	r := newRig(b)
	for b.Loop() {
		id := r.started(sos.SandboxSpec{})
		r.execReq(id, sos.ExecRequest{Command: "true", Standalone: true})
		if err := r.RemoveSandbox(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
}
