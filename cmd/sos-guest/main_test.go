package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDependencies: the guest is in every sandbox, so it must stay small, and a
// second waiter for children (os/exec) would steal the reaper's statuses.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	for _, bad := range []string{"encoding/json", "net", "net/http", "os/exec", "os/signal", "os/user", "regexp", "log", "log/slog", "text/template"} {
		if slices.Contains(deps, bad) {
			t.Errorf("the guest depends on %s", bad)
		}
	}
	for _, d := range deps {
		if strings.Contains(strings.SplitN(d, "/", 2)[0], ".") && !strings.HasPrefix(d, "github.com/seaofsimulation/sos") &&
			!strings.HasPrefix(d, "golang.org/x/sys/") {
			t.Errorf("the guest depends on %s", d)
		}
	}
}
