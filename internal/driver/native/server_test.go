package native

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/drivertest"
	"github.com/seaofsimulation/sos/internal/testutil"
)

// serverEnv makes this test binary a server that starts, stops and removes
// sandboxes until it is killed.
const serverEnv = "SOS_NATIVE_TEST_SERVER"

type serverConfig struct {
	DataDir, RunDir, Instance, Guest, Spawner, Layer string
}

func serve(text string) int {
	var c serverConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return 1
	}
	ctx := context.Background()
	d, err := Open(ctx, Config{DataDir: c.DataDir, RunDir: c.RunDir, Instance: c.Instance, GuestPath: c.Guest, SpawnerPath: c.Spawner})
	if err != nil || d.unavailable() != nil {
		fmt.Println(err, d.unavailable())
		return 1
	}
	spec := driver.Spec{Image: driver.Image{Digest: "sha256:test", Layers: []string{c.Layer}}, Limits: sos.DefaultLimits}
	for range 3 {
		go func() {
			for {
				id := newID()
				for _, err := range []error{d.Start(ctx, id, spec), d.Stop(ctx, id), d.Start(ctx, id, spec), d.Remove(ctx, id)} {
					if err != nil {
						fmt.Println(id, err)
						os.Exit(1)
					}
				}
			}
		}()
	}
	select {}
}

// A server that is killed at any moment: the next one finds every sandbox in a
// state that it can go on from, and nothing else is left.
func TestServerKilledAnywhere(t *testing.T) {
	cfg := newConfig(t)
	text, err := json.Marshal(serverConfig{cfg.DataDir, cfg.RunDir, cfg.Instance, shared.guest, shared.spawner, shared.layer})
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := range testutil.Scale(10) {
		server := exec.Command(exe)
		server.Env = append(os.Environ(), serverEnv+"="+string(text))
		server.Stdout, server.Stderr = t.Output(), t.Output()
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		// The moment is what varies: from before it is open to deep in its work.
		time.Sleep(time.Duration(20+i*67%400) * time.Millisecond)
		server.Process.Kill()
		if err := server.Wait(); server.ProcessState.ExitCode() >= 0 {
			t.Fatalf("the server ended by itself: %v", err)
		}
		d := open(t, cfg)
		l, err := d.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range l {
			if !s.Running {
				start(t, d, s.ID)
			}
			sh := drivertest.Connect(t, d, s.ID)
			sh.Must(t, "echo usable > /file")
			sh.Close()
			if err := d.Remove(t.Context(), s.ID); err != nil {
				t.Error(err)
			}
		}
		nothing(t, d)
		d.Close()
	}
}
