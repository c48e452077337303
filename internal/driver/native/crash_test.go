package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/drivertest"
	"github.com/seaofsimulation/sos/internal/driver/native/cgroup"
	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
	"github.com/seaofsimulation/sos/internal/testutil"
)

func ids(n int) []string {
	l := make([]string, n)
	for i := range l {
		l[i] = newID()
	}
	return l
}

func killSpawner(t *testing.T, d *Driver) {
	t.Helper()
	pid := spawnerPid(t, d)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the spawner is dead", func() bool {
		_, state, err := procStat(pid)
		return err != nil || state == 'Z'
	})
}

// wantKilled checks that the end of a guest that was killed is known truly.
func wantKilled(t *testing.T, id string, e driver.Exit, err error) {
	t.Helper()
	if err != nil || !e.Known || e.Signal != int(unix.SIGKILL) || e.Stopped {
		t.Errorf("the end of the guest of %s is %+v, %v", id, e, err)
	}
}

// A spawner and a server that die with sandboxes alive: the next ones take all of
// them over, and still learn how their guests end.
func TestSpawnerAndServerKilled(t *testing.T) {
	cfg := newConfig(t)
	d := open(t, cfg)
	all := ids(testutil.Scale(10))
	start(t, d, all...)
	pids := map[string]int{}
	for _, id := range all {
		pids[id] = guestPid(t, d, id)
		sh := drivertest.Connect(t, d, id)
		sh.Must(t, "echo "+id+" > /name")
		sh.Close()
	}
	killSpawner(t, d)
	if err := d.Close(); err != nil { // a server's death does no more than this
		t.Fatal(err)
	}
	d = open(t, cfg)
	for _, id := range all {
		if pid := guestPid(t, d, id); pid != pids[id] {
			t.Errorf("the guest of %s is %d now; it was %d", id, pid, pids[id])
		}
		if out := drivertest.Connect(t, d, id).Must(t, "cat /name"); out != id+"\n" {
			t.Errorf("%s answers %q", id, out)
		}
	}
	var wg sync.WaitGroup
	for _, id := range all {
		wg.Go(func() {
			e, err := d.Wait(t.Context(), id)
			wantKilled(t, id, e, err)
		})
		killGuest(t, d, id)
	}
	wg.Wait()
	start(t, d, all...)
}

// Waits that are under way go on through the death of the spawner.
func TestWaitOutlivesSpawner(t *testing.T) {
	d := open(t, newConfig(t))
	id := newID()
	start(t, d, id)
	type end struct {
		e   driver.Exit
		err error
	}
	ends := make(chan end)
	go func() { e, err := d.Wait(t.Context(), id); ends <- end{e, err} }()
	for range 3 {
		killSpawner(t, d)
		sh := drivertest.Connect(t, d, id)
		sh.Must(t, "true")
		sh.Close()           // one host at a time: the next would be fought over the guest
		start(t, d, newID()) // brings the next spawner
	}
	killGuest(t, d, id)
	got := <-ends
	wantKilled(t, id, got.e, got.err)
}

// Everything dies at once, as by the OOM killer: nothing of it runs on, and the
// files are there.
func TestEverythingKilled(t *testing.T) {
	cfg := newConfig(t)
	d := open(t, cfg)
	id := newID()
	start(t, d, id)
	drivertest.Connect(t, d, id).Must(t, "echo kept > /kept")
	killSpawner(t, d)
	killGuest(t, d, id)
	d.Close()
	d = open(t, cfg)
	l, err := d.List(t.Context())
	if err != nil || len(l) != 1 || l[0].Running || !l[0].HasData {
		t.Fatalf("list gives %+v, %v", l, err)
	}
	start(t, d, id)
	if out := drivertest.Connect(t, d, id).Must(t, "cat /kept"); out != "kept\n" {
		t.Errorf("the file holds %q", out)
	}
}

// Two servers with two data directories: what happens to one is nothing to the
// other.
func TestTwoInstances(t *testing.T) {
	cfgA, cfgB := newConfig(t), newConfig(t)
	a, b := open(t, cfgA), open(t, cfgB)
	inA, inB := ids(3), ids(3)
	start(t, a, inA...)
	start(t, b, inB...)
	pids := map[string]int{}
	for _, id := range inB {
		pids[id] = guestPid(t, b, id)
	}
	killSpawner(t, a)
	killGuest(t, a, inA[0])
	a.Close()
	a = open(t, cfgA)
	if e := down2(t, a, cfgA); !slices.Equal(e.Sandboxes, sorted(inA[1:])) || !e.Spawner || e.Kept != 3 {
		t.Errorf("down did %+v; want the end of %v", e, inA[1:])
	}
	noTrace(t, cfgA)
	for _, id := range inB {
		if pid := guestPid(t, b, id); pid != pids[id] {
			t.Errorf("the guest of the other instance's %s is %d now; it was %d", id, pid, pids[id])
		}
		drivertest.Connect(t, b, id).Must(t, "echo untouched")
	}
}

func down2(t *testing.T, d *Driver, cfg Config) Ended {
	d.Close()
	return down(t, cfg)
}

func sorted(l []string) []string {
	l = slices.Clone(l)
	slices.Sort(l)
	return l
}

// What an interrupted start, a killed spawner or a reboot leaves is swept at
// Open, and only what is this instance's.
func TestLeftoversAreSwept(t *testing.T) {
	cfg, other := newConfig(t), newConfig(t)
	d := open(t, cfg)
	groups := d.groups
	d.Close()

	stray := strayProcess(t, groups, newID())
	h, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := h.Tree(groupName(other.Instance))
	if err != nil {
		t.Fatal(err)
	}
	neighbour := strayProcess(t, theirs, newID())

	half := newID() // a start that came as far as its directory
	if err := os.Mkdir(filepath.Join(cfg.DataDir, "sandboxes", half), 0o700); err != nil {
		t.Fatal(err)
	}
	// Records that name living processes which are no guests: of another boot, and
	// with another start time.
	innocent := exec.Command("sleep", "1000")
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { innocent.Process.Kill(); innocent.Wait() }()
	begun, _, err := procStat(innocent.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []spawn.Record{
		{Pid: innocent.Process.Pid, StartTime: begun, BootID: "00000000-0000-0000-0000-000000000000"},
		{Pid: innocent.Process.Pid, StartTime: begun + 1, BootID: boot},
	} {
		r.Cgroup, r.IDBase = newID(), idBase(firstRange)
		dir := filepath.Join(cfg.RunDir, r.Cgroup)
		if err := os.Mkdir(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, spawn.RecordFile), []byte(r.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	d = open(t, cfg)
	if err := stray.Wait(); err == nil {
		t.Error("a process in a cgroup without a sandbox was left alive")
	}
	if l, err := groups.List(); err != nil || len(l) != 0 {
		t.Errorf("cgroups %v are left, %v", l, err)
	}
	if runs, err := idsIn(cfg.RunDir); err != nil || len(runs) != 0 {
		t.Errorf("run directories %v are left, %v", runs, err)
	}
	if exists(d.dirs.state(half)) {
		t.Error("a half-made state directory is left")
	}
	for what, p := range map[string]*exec.Cmd{"another instance": neighbour, "nobody": innocent} {
		if _, state, err := procStat(p.Process.Pid); err != nil || state == 'Z' {
			t.Errorf("a process of %s was killed", what)
		}
	}
	neighbour.Process.Kill()
	neighbour.Wait()
}

// strayProcess is a process in a sandbox's cgroup that no record names.
func strayProcess(t *testing.T, tree cgroup.Tree, id string) *exec.Cmd {
	t.Helper()
	g, err := tree.Create(id, cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := g.UserJoin()
	if err != nil {
		t.Fatal(err)
	}
	p := exec.Command("sleep", "1000")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, err := fmt.Fprint(f, p.Process.Pid); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return p
}
