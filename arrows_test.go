package sos_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/seaofsimulation/sos"

// arrows says what each room may import of this module (directly) and what must
// not be among all that it needs. A room that is not named here fails the test:
// its place has to be decided first.
var arrows = []struct {
	room  string   // the package and those below it
	may   []string // rooms; "x/..." with those below
	never []string // packages of others, also indirectly
}{
	{room: "", may: nil, never: []string{"*third*"}},
	{room: "client", may: []string{""}, never: []string{"*third*"}},
	{room: "servicetest", may: []string{""}},
	{room: "cmd/sos", may: []string{"internal/cli"}},
	{room: "cmd/sos-guest", may: []string{"internal/guest/server", "internal/guest/session", "internal/guest/wire", "internal/guest", "internal/sysprog", ""},
		never: []string{"net/http", "encoding/json", "os/exec", "github.com/*"}},
	{room: "cmd/sos-spawner", may: []string{"internal/driver/native/spawner"}, never: []string{"net/http", "os/exec", "database/sql"}},
	{room: "internal/cli", may: []string{"", "client", "internal/app", "internal/config"}},
	{room: "internal/config", may: []string{""}},
	{room: "internal/app", may: []string{"", "internal/config", "internal/server", "internal/control", "internal/store",
		"internal/journal", "internal/image", "internal/driver", "internal/driver/native"}},
	{room: "internal/server", may: []string{""}},
	{room: "internal/control", may: []string{"", "internal/driver", "internal/guest", "internal/guest/client",
		"internal/journal", "internal/store", "internal/image"}, never: []string{}},
	{room: "internal/store", may: []string{""}, never: []string{"net/http"}},
	{room: "internal/journal", may: []string{""}, never: []string{"net/http", "database/sql"}},
	{room: "internal/image", may: []string{""}, never: []string{"database/sql"}},
	{room: "internal/sysprog", may: nil, never: []string{"net/http", "os/exec"}},
	{room: "internal/driver", may: []string{"", "internal/guest"}, never: []string{"net/http", "database/sql"}},
	{room: "internal/driver/drivertest", may: []string{"", "internal/driver", "internal/guest/...", "internal/testutil"}},
	{room: "internal/driver/fake", may: []string{"", "internal/driver", "internal/guest/..."}},
	{room: "internal/driver/native", may: []string{"", "internal/driver", "internal/driver/native/...", "internal/guest/embed", "internal/sysprog"},
		never: []string{"net/http", "database/sql"}},
	{room: "internal/guest", may: []string{"", "internal/guest/...", "internal/sysprog"}, never: []string{"net/http", "database/sql"}},
	{room: "internal/testutil", may: nil},
	{room: "test", may: []string{"*any*"}},
}

// direct: imports that a room itself must not have, though what it uses may.
var direct = map[string][]string{
	"internal/control": {"net/http", "database/sql", "syscall", "golang.org/x/sys/unix", "os/exec"},
	"internal/cli":     {"net/http", "database/sql"},
	"internal/server":  {"database/sql", "golang.org/x/sys/unix", "os/exec"},
}

type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func TestArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Standard,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		room := relative(p.ImportPath)
		i := roomOf(room)
		if i < 0 {
			t.Errorf("%s is in no room of the arrows", p.ImportPath)
			continue
		}
		a := arrows[i]
		seen[a.room] = true
		for _, imp := range p.Imports {
			if inModule(imp) && !allowed(relative(imp), a.may) && roomOf(relative(imp)) != i {
				t.Errorf("%s may not import %s", p.ImportPath, imp)
			}
			if slices.Contains(direct[a.room], imp) {
				t.Errorf("%s may not import %s", p.ImportPath, imp)
			}
		}
		for _, dep := range p.Deps {
			for _, never := range a.never {
				if matches(dep, never) {
					t.Errorf("%s must not need %s", p.ImportPath, dep)
				}
			}
		}
	}
	for _, a := range arrows {
		if !seen[a.room] {
			t.Errorf("there is no room %q any more", a.room)
		}
	}
}

func inModule(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func relative(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

// roomOf is the index of the room with the longest name that holds rel.
func roomOf(rel string) int {
	best, length := -1, -1
	for i, a := range arrows {
		if (rel == a.room || a.room != "" && strings.HasPrefix(rel, a.room+"/")) && len(a.room) > length {
			best, length = i, len(a.room)
		}
	}
	return best
}

func allowed(rel string, may []string) bool {
	for _, m := range may {
		below, tree := strings.CutSuffix(m, "/...")
		if m == "*any*" || rel == m || tree && (rel == below || strings.HasPrefix(rel, below+"/")) {
			return true
		}
	}
	return false
}

// matches: "*third*" is everything with a dot in its first element that is not
// ours, "x/*" everything below x.
func matches(dep, pattern string) bool {
	if pattern == "*third*" {
		first, _, _ := strings.Cut(dep, "/")
		return strings.Contains(first, ".") && !inModule(dep)
	}
	if below, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(dep, below+"/") && !inModule(dep)
	}
	return dep == pattern
}
