package native

import (
	"path/filepath"
	"strings"

	"github.com/seaofsimulation/sos"
)

// Names on the host, all of one instance:
//
//	<data>/sandboxes/<id>/      0700, root's
//	  state                     id range, image (JSON; written before u)
//	  exit                      how the last run ended (JSON)
//	  u  w                      upper and work directory of the overlay root
//	<data>/trash/               state directories on their way out
//	<data>/bin/                 guest and spawner, by content hash
//	<data>/base/                lowest layer of every sandbox
//	<run>/<id>/                 what lives as long as the sandbox runs
//	sos-<instance>/<id>         cgroups
//	/run/sos/ids/<range>        claims of id ranges, of all instances of the host
type layout struct {
	data, run string
}

func (l layout) sandboxes() string       { return filepath.Join(l.data, "sandboxes") }
func (l layout) trash() string           { return filepath.Join(l.data, "trash") }
func (l layout) bin() string             { return filepath.Join(l.data, "bin") }
func (l layout) base() string            { return filepath.Join(l.data, "base") }
func (l layout) state(id string) string  { return filepath.Join(l.sandboxes(), id) }
func (l layout) upper(id string) string  { return filepath.Join(l.state(id), "u") }
func (l layout) work(id string) string   { return filepath.Join(l.state(id), "w") }
func (l layout) record(id string) string { return filepath.Join(l.state(id), "state") }
func (l layout) exit(id string) string   { return filepath.Join(l.state(id), "exit") }
func (l layout) runOf(id string) string  { return filepath.Join(l.run, id) }
func (l layout) socket(id string) string { return filepath.Join(l.runOf(id), "g.sock") }

// isID says whether id may become a name on the host.
func isID(id string) bool { return sos.IsID(id, sos.SandboxIDPrefix) }

// DefaultRunDir is the run directory of an instance.
func DefaultRunDir(instance string) string {
	return filepath.Join("/run/sos", strings.ToLower(instance))
}
