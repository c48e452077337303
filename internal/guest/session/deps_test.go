package session

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies: this package is linked into the guest, of which there is one
// per sandbox. What the vocabulary (package sos) brings cannot be helped here;
// nothing of it may be imported by the package itself.
func TestDependencies(t *testing.T) {
	deps := func(args ...string) map[string]bool {
		out, err := exec.Command("go", append([]string{"list"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		m := map[string]bool{}
		for _, p := range strings.Fields(strings.Trim(string(out), "[]\n")) {
			m[p] = true
		}
		return m
	}
	direct, all := deps("-f", "{{.Imports}}", "."), deps("-deps", ".")
	base := deps("-deps", "github.com/seaofsimulation/sos", "golang.org/x/sys/unix")
	for _, p := range []string{"fmt", "encoding/json", "regexp", "os/exec", "net", "os/user", "net/http", "log", "log/slog", "reflect"} {
		if direct[p] || all[p] && !base[p] {
			t.Errorf("imports %s", p)
		}
	}
	for _, p := range []string{"regexp", "os/exec", "net", "os/user", "net/http"} {
		if all[p] {
			t.Errorf("depends on %s", p)
		}
	}
	for p := range all {
		ours := "github.com/seaofsimulation/sos"
		if strings.Contains(p, ".") && !base[p] && p != ours+"/internal/guest" && p != ours+"/internal/guest/session" {
			t.Errorf("depends on %s", p)
		}
	}
}
