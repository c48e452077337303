package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/seaofsimulation/sos/internal/driver"
)

// List reads the state and run directories; it needs nobody's help, so it works
// on a host where nothing can be started any more.
func (d *Driver) List(ctx context.Context) ([]driver.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found := map[string]driver.Status{}
	states, err := idsIn(d.dirs.sandboxes())
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, id := range states {
		if exists(d.dirs.upper(id)) {
			found[id] = driver.Status{ID: id, HasData: true}
		}
	}
	runs, err := idsIn(d.dirs.run)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	for _, id := range runs {
		if d.runs(id) {
			st := found[id]
			st.ID, st.Running = id, true
			found[id] = st
		}
	}
	list := make([]driver.Status, 0, len(found))
	for _, st := range found {
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b driver.Status) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// idsIn gives the names in a directory that are ids of sandboxes; none when there
// is no such directory.
func idsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if isID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
