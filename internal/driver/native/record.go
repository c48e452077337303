package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver"
)

// record is what a state directory knows of its sandbox. It is written before
// the upper directory is made, so files never are without their id range.
type record struct {
	Version int    `json:"version"`
	IDBase  uint32 `json:"id_base"` // host id of the sandbox's id 0; 65,536 from there on
	Image   string `json:"image"`   // digest at the first start
	BootID  string `json:"boot_id"` // of the host's boot that the last run belongs to
}

const recordVersion = 1

func readRecord(path string) (record, error) {
	var r record
	if err := readJSON(path, &r); err != nil {
		return r, err
	}
	if r.Version != recordVersion || r.IDBase%rangeSize != 0 || r.IDBase < firstRange*rangeSize {
		return r, fmt.Errorf("%s is not a record that this version understands", path)
	}
	return r, nil
}

// recordOf is the record of a state directory. One that a power loss took is made
// again from the files: whoever owns their root, it is an id of the range.
func (d *Driver) recordOf(id string) (record, error) {
	rec, err := readRecord(d.dirs.record(id))
	if err == nil {
		return rec, nil
	}
	var st unix.Stat_t
	if serr := unix.Lstat(d.dirs.upper(id), &st); serr != nil || st.Uid < firstRange*rangeSize {
		return rec, err
	}
	d.log.Warn("record of a sandbox's ids is lost and was made again", "sandbox", id, "err", err)
	rec = record{Version: recordVersion, IDBase: st.Uid - st.Uid%rangeSize}
	return rec, writeJSON(d.dirs.record(id), rec)
}

// saveExit keeps how a run ended, for Wait after the run directory is gone.
func (d *Driver) saveExit(id string, e driver.Exit) error {
	if !exists(d.dirs.state(id)) {
		return nil
	}
	err := writeJSON(d.dirs.exit(id), e)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		// What ends sandboxes makes room: it must work on a full disk. No record
		// means unknown, as ever.
		d.log.Warn("the disk is full: how a sandbox ended is not kept", "sandbox", id, "err", err)
		return nil
	}
	return err
}

// savedExit is the end of the last run, not Known when there is no word of one.
func (d *Driver) savedExit(id string) driver.Exit {
	var e driver.Exit
	b, err := os.ReadFile(d.dirs.exit(id))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("record of the last end is unreadable", "sandbox", id, "err", err)
	}
	if err != nil {
		return driver.Exit{}
	}
	return e
}
