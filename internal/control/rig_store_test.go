package control

import (
	"database/sql"
	"path/filepath"

	"github.com/seaofsimulation/sos/internal/driver/fake"
)

var planHang = fake.Plan{Hang: true}

// forgetProcesses deletes the records of a sandbox's processes behind the
// server's back, as if it had died before it wrote them.
func (r *rig) forgetProcesses(id string) {
	r.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(r.dir, "sos.db"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("DELETE FROM processes WHERE sandbox = ?", id); err != nil {
		r.t.Fatal(err)
	}
}
