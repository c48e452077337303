package spawner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// adopt finds the guests of an earlier spawner by their records, and then removes
// every group of this instance that none of them owns.
func (s *Spawner) adopt(ctx context.Context) error {
	entries, err := os.ReadDir(s.cfg.RunDir)
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	owned := map[string]bool{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		g, err := s.adoptOne(ctx, e.Name())
		if err != nil {
			s.cfg.Log.Error("adopt", "sandbox", e.Name(), "err", err)
			continue
		}
		if g == nil {
			continue
		}
		s.put(g)
		if g.running() {
			owned[g.record.Cgroup] = true
			s.cfg.Log.Info("adopted", "sandbox", g.id, "pid", g.record.Pid)
		}
	}
	groups, err := s.tree.List()
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	for _, name := range groups {
		if owned[name] {
			continue
		}
		if err := s.sweep(ctx, name); err != nil {
			s.cfg.Log.Error("remove a stray cgroup", "sandbox", name, "err", err)
		}
	}
	return nil
}

// adoptOne gives the guest of one run directory; nil when there never was one.
func (s *Spawner) adoptOne(ctx context.Context, id string) (*guest, error) {
	dir := filepath.Join(s.cfg.RunDir, id)
	b, err := os.ReadFile(filepath.Join(dir, spawn.RecordFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a create that was cut off: its group is swept
	}
	if err != nil {
		return nil, err
	}
	r, err := spawn.ParseRecord(string(b))
	if err != nil {
		return nil, err
	}
	exit, err := readExit(dir)
	if err != nil {
		return nil, err
	}
	if exit != nil {
		return ended(id, dir, r, *exit), nil
	}
	pidfd := s.find(r)
	if pidfd < 0 {
		// Nobody saw the end. That is said, and never made up.
		lost := spawn.Exit{}
		return ended(id, dir, r, lost), writeExit(dir, lost)
	}
	g := &guest{id: id, runDir: dir, record: r, group: s.tree.Open(r.Cgroup), foreign: true,
		pidfd: pidfd, done: make(chan struct{})}
	if g.log, err = pumpLog(dir); err != nil {
		s.cfg.Log.Warn("the log of an adopted guest is lost", "sandbox", id, "err", err)
	}
	return g, s.watch(ctx, g)
}

// find opens the process of a record, or gives -1. The descriptor comes first and
// the start time is compared after: from then on no other process can take its
// place.
func (s *Spawner) find(r spawn.Record) int {
	if r.BootID != s.host.bootID {
		return -1
	}
	pidfd, err := unix.PidfdOpen(r.Pid, 0)
	if err != nil {
		return -1
	}
	st, err := readStat(r.Pid)
	if err != nil || st.start != r.StartTime {
		_ = unix.Close(pidfd)
		return -1
	}
	return pidfd
}
