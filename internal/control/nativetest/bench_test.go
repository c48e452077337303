package nativetest

import (
	"testing"

	"github.com/seaofsimulation/sos"
)

func BenchmarkPlane(b *testing.B) {
	h := newHost(b)
	create := func(b *testing.B) string {
		s, err := h.CreateSandbox(b.Context(), sos.SandboxSpec{Image: debian})
		if err == nil {
			_, err = h.StartSandbox(b.Context(), s.ID)
		}
		if err != nil {
			b.Fatal(err)
		}
		return s.ID
	}
	exec := func(b *testing.B, id string, q sos.ExecRequest) {
		if _, err := h.Exec(b.Context(), id, q); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("create-exec-remove", func(b *testing.B) {
		for b.Loop() {
			id := create(b)
			exec(b, id, sos.ExecRequest{Command: "true", Standalone: true})
			if err := h.RemoveSandbox(b.Context(), id); err != nil {
				b.Fatal(err)
			}
		}
	})
	id := create(b)
	for name, q := range map[string]sos.ExecRequest{
		"standalone true": {Command: "/bin/true", Standalone: true},
		"session echo":    {Command: "echo x"},
		"session silent":  {Command: ":"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				exec(b, id, q)
			}
		})
	}
	b.Run("output", func(b *testing.B) {
		b.SetBytes(200 << 20)
		for b.Loop() {
			exec(b, id, sos.ExecRequest{Command: "head -c 200M /dev/zero", Standalone: true})
		}
	})
}
