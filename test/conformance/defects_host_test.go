package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seaofsimulation/sos/internal/app"
	"github.com/seaofsimulation/sos/internal/config"
)

// Defects of the first system's server towards its host and its users.

// D34: no limits and no init: a fork bomb met the host, zombies gathered.
func TestD34Limits(t *testing.T) {
	a := server(t)
	id := a.createWith(map[string]any{"pids": 64, "memory": "256Mi", "cpu": 1})
	a.start(id, 200, "")
	r := a.alone(id, `perl -e 'while (@p < 500) { my $p = fork; last unless defined $p; if (!$p) { sleep 300; exit } push @p, $p } print @p < 64 ? "refused" : "forked @p"; kill 9, @p'`)
	a.is(r, "refused", 0, false)
	r = a.exec(id, "head -c 600000000 /dev/zero | tail | wc -c", "timeout", 120)
	if *r.ExitCode != 137 || !strings.Contains(r.body, `"oom_killed":true`) {
		t.Errorf("600 MB in 256 MiB: %q", r.body)
	}
	fresh := a.started()
	a.is(a.exec(fresh, "(sleep 0.1 &); sleep 0.5; ps -eo stat= | grep -c ^Z"), "0", 1, false)
	a.is(a.alone(fresh, "grep CapEff /proc/self/status | grep -c 1ffffffffff"), "0\n", 1, false)
}

// D35: it listened on every address and asked nobody.
func TestD35LoopbackOnly(t *testing.T) {
	a := server(t)
	if addr := address(t, a.base); !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Errorf("listens on %s", addr)
	}
	cfg := config.Default()
	dir := t.TempDir()
	cfg.Port, cfg.DataDir, cfg.RunDir, cfg.Listen = 0, filepath.Join(dir, "d"), filepath.Join(dir, "r"), []string{"0.0.0.0:0"}
	cfg.LogTo = &strings.Builder{}
	x, err := app.New(t.Context(), cfg)
	if err == nil || !strings.Contains(fmt.Sprintf("%+v", err), "0.0.0.0:0") {
		t.Errorf("0.0.0.0: %v", err)
	}
	if x != nil {
		_ = x.Close()
	}
	if _, err := app.Down(context.Background(), cfg, true); err != nil {
		t.Log("down:", err) // there may be nothing to end
	}
}

// D36: set-up commands were joined by && into one line.
func TestD36SetupCommandsStandAlone(t *testing.T) {
	a := server(t)
	id := a.started("mkdir /srv/x", "cd /srv/x # not the end of all", "sleep 300 & echo $! > pid", "false; true", "cat > h <<E\nhi\nE", "V=1", "echo $V > v")
	a.is(a.exec(id, "cd /srv/x; cat h v; kill -0 $(cat pid) && echo alive"), "hi\n1\nalive", 0, false)
	a.is(a.exec(id, "echo \"<$V>\""), "<>", 0, false) // the session is another shell
	if r := a.row(id); r.LastStandaloneExitCode == nil || *r.LastStandaloneExitCode != 0 || !strings.Contains(r.SetupCommands, "mkdir /srv/x && cd /srv/x") {
		t.Errorf("row %+v", r)
	}
	bad := a.create("echo before", "echo oops >&2", "exit 3", "echo never")
	a.error(a.call("POST", "/sandboxes/"+bad+"/start", ""), 400, "Setup commands failed: before\noops\n")
}

// D37: the cause of an error was dropped, or shown as the language's own debug form.
func TestD37ErrorsSayWhy(t *testing.T) {
	a := server(t)
	for image, why := range map[string]string{
		"localhost:1/no-such-image:latest": "connection refused",
		"":                                 "image",
		"UPPER CASE/!!":                    "UPPER CASE/!!",
	} {
		id := a.createFrom(image)
		r := a.call("POST", "/sandboxes/"+id+"/start", "")
		if r.status != 400 || !strings.HasPrefix(r.body, "Failed to pull image: ") || !strings.Contains(r.body, why) || strings.Contains(r.body, "Some(") {
			t.Errorf("%q: %d %q", image, r.status, r.body)
		}
	}
}

// D38: the list had no order.
func TestD38ListInOrder(t *testing.T) {
	a := server(t)
	var ids []string
	for range 12 {
		ids = append(ids, a.create())
	}
	var all []row
	if err := json.Unmarshal([]byte(a.call("GET", "/sandboxes", "").body), &all); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range all {
		for _, id := range ids {
			if r.ID == id {
				got = append(got, id)
			}
		}
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		t.Errorf("%v, want %v", got, ids)
	}
}

// Different sandboxes work at the same time and nothing is mixed up.
func TestSandboxesInParallel(t *testing.T) {
	a := server(t)
	var ids []string
	for range 6 {
		ids = append(ids, a.started())
	}
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range 10 {
				text := fmt.Sprintf("%d-%d", i, k)
				a.is(a.exec(id, "echo "+text), text, 0, false)
			}
		}()
	}
	wg.Wait()
}
