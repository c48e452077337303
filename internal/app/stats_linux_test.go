package app

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// What the control plane counts is in GET /metrics, and moves.
func TestMetricsMove(t *testing.T) {
	a := start(t, testConfig(t))
	ready(t, a)
	scrape := func(want ...string) {
		t.Helper()
		resp, err := http.Get(a.URL() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp.Status, err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), "\nsos_"+w+"\n") {
				t.Errorf("no sos_%s in\n%s", w, text)
			}
		}
		if strings.Contains(string(text), "sb-") {
			t.Error("an id is in the metrics")
		}
	}
	scrape("start_seconds_count 0", "process_seconds_count 0", "output_dropped_total 0", "sandboxes_running 0")

	svc, ctx := a.Service(), t.Context()
	f, err := os.Open(testutil.Image(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := svc.ImportImage(ctx, f, "debian:bookworm", nil); err != nil {
		t.Fatal(err)
	}
	sb, err := svc.CreateSandbox(ctx, sos.SandboxSpec{Image: "debian:bookworm"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.StartSandbox(ctx, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Exec(ctx, sb.ID, sos.ExecRequest{Command: "true", Standalone: true}); err != nil {
		t.Fatal(err)
	}
	scrape(`starts_total{outcome="ok"} 1`, "start_seconds_count 1", `start_seconds_bucket{le="+Inf"} 1`, `sandboxes{status="started"} 1`,
		"sandboxes_running 1", `processes_ended_total{reason="exit"} 1`, "process_seconds_count 1")
	if err := svc.RemoveImage(ctx, "debian:bookworm"); sos.ErrorCode(err) != sos.CodeConflict || !strings.Contains(err.Error(), sb.ID) {
		t.Errorf("remove an image that %s needs: %v", sb.ID, err)
	}
}
