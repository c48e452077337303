package servicetest

import (
	"slices"
	"strings"
	"sync"

	"github.com/seaofsimulation/sos"
)

func create(s *suite) {
	spec := sos.SandboxSpec{Image: s.Image, SetupCommands: []string{"cd /tmp", "echo a > b"}, Labels: map[string]string{"a": "b"},
		Env: map[string]string{"K": "v"}, Limits: sos.Limits{CPU: 0.5, Memory: 256 << 20, PIDs: 100}}
	sb := s.create(spec)
	if !sos.IsID(sb.ID, sos.SandboxIDPrefix) {
		s.Errorf("id %q", sb.ID)
	}
	if sb.Status != sos.StatusCreated || sb.Reconnected || sb.CreatedAt.IsZero() || sb.StartedAt != nil {
		s.Errorf("created %+v", sb)
	}
	got := s.get(sb.ID)
	if got.Image != s.Image || !slices.Equal(got.SetupCommands, spec.SetupCommands) || got.Memory != spec.Memory || got.CPU != spec.CPU ||
		got.PIDs != spec.PIDs || got.Env["K"] != "v" || got.Labels["a"] != "b" {
		s.Errorf("read %+v, created with %+v", got.SandboxSpec, spec)
	}
	if got.SessionCommandCount != 0 || got.LastStandaloneExitCode != nil {
		s.Errorf("fresh counters: %+v", got)
	}
}

func createBadInput(s *suite) {
	for name, spec := range map[string]sos.SandboxSpec{
		"upper-case name":   {Name: "A"},
		"name like an id":   {Name: sos.NewID(sos.SandboxIDPrefix, nil)},
		"name too long":     {Name: strings.Repeat("a", 64)},
		"name with a slash": {Name: "a/b"},
		"tiny memory":       {Limits: sos.Limits{Memory: 1}},
		"negative cpu":      {Limits: sos.Limits{CPU: -1}},
		"two pids":          {Limits: sos.Limits{PIDs: 2}},
		"relative workdir":  {Workdir: "tmp"},
		"env with =":        {Env: map[string]string{"a=b": "c"}},
	} {
		spec.Image = s.Image
		_, err := s.Service.CreateSandbox(s.ctx, spec)
		s.fails(name, err, sos.CodeInvalid, "")
	}
}

// unique gives a name that no other case uses.
func unique() string {
	return "t" + strings.TrimPrefix(sos.NewID(sos.SandboxIDPrefix, nil), sos.SandboxIDPrefix)
}

func createReconnects(s *suite) {
	spec := sos.SandboxSpec{Name: unique(), Limits: sos.Limits{Memory: 512 << 20}}
	first := s.create(spec)
	again := s.create(spec)
	if again.ID != first.ID || !again.Reconnected {
		s.Errorf("the same name gave %s, reconnected %v; want %s", again.ID, again.Reconnected, first.ID)
	}
	less := s.create(sos.SandboxSpec{Name: spec.Name})
	if less.ID != first.ID {
		s.Errorf("a request that names less gave %s", less.ID)
	}
	other := spec
	other.Image, other.Memory = s.Image, 1<<30
	_, err := s.Service.CreateSandbox(s.ctx, other)
	s.fails("another memory", err, sos.CodeConflict, "")
	if !strings.Contains(sos.ErrorMessage(err), "memory") {
		s.Errorf("the difference is not named: %v", err)
	}
}

func createRace(s *suite) {
	spec := sos.SandboxSpec{Name: unique(), Image: s.Image}
	s.create(sos.SandboxSpec{}) // its clean-up runs after the others'
	var mu sync.Mutex
	ids, fresh := map[string]bool{}, 0
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			sb, err := s.Service.CreateSandbox(s.ctx, spec)
			if err != nil {
				s.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[sb.ID] = true
			if !sb.Reconnected {
				fresh++
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || fresh != 1 {
		s.Errorf("%d sandboxes, %d fresh ones", len(ids), fresh)
	}
	for id := range ids {
		if err := s.Service.RemoveSandbox(s.ctx, id); err != nil {
			s.Error(err)
		}
	}
}

func nameReuse(s *suite) {
	spec := sos.SandboxSpec{Name: unique()}
	last := ""
	for range 10 {
		sb := s.create(spec)
		if sb.Reconnected || sb.ID == last {
			s.Fatalf("the removed sandbox is back: %+v", sb)
		}
		last = sb.ID
		if err := s.Service.RemoveSandbox(s.ctx, spec.Name); err != nil {
			s.Fatal(err)
		}
	}
}

func references(s *suite) {
	name := unique()
	sb := s.create(sos.SandboxSpec{Name: name})
	for _, ref := range []string{sb.ID, name, sb.ID[:len(sb.ID)-3]} {
		got, err := s.Service.GetSandbox(s.ctx, ref)
		if err != nil || got.ID != sb.ID {
			s.Errorf("%s gave %q, %v", ref, got.ID, err)
		}
	}
	s.create(sos.SandboxSpec{})
	_, err := s.Service.GetSandbox(s.ctx, name[:5])
	s.fails("the beginning of a name", err, sos.CodeNotFound, "Sandbox "+name[:5]+" not found")
}

func list(s *suite) {
	label := map[string]string{"case": unique()}
	var want []string
	for range 3 {
		want = append(want, s.create(sos.SandboxSpec{Labels: label}).ID)
	}
	s.start(want[1])
	ids := func(f sos.SandboxFilter) (ids []string) {
		l, err := s.Service.ListSandboxes(s.ctx, f)
		if err != nil {
			s.Fatal(err)
		}
		for _, sb := range l {
			ids = append(ids, sb.ID)
		}
		return ids
	}
	if got := ids(sos.SandboxFilter{Labels: label}); !slices.Equal(got, want) {
		s.Errorf("listed %v, created %v", got, want)
	}
	if got := ids(sos.SandboxFilter{Labels: label, Status: []sos.Status{sos.StatusStarted}}); !slices.Equal(got, want[1:2]) {
		s.Errorf("started: %v, want %v", got, want[1:2])
	}
	if got := ids(sos.SandboxFilter{Labels: map[string]string{"case": "none"}}); len(got) != 0 {
		s.Errorf("no label matches, but %v", got)
	}
	all := ids(sos.SandboxFilter{})
	for _, id := range want {
		if !slices.Contains(all, id) {
			s.Errorf("%s is not in the whole list", id)
		}
	}
}
