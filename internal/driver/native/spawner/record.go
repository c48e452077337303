package spawner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seaofsimulation/sos/internal/driver/native/spawn"
)

// writeFile replaces a file in one step; readers see the old or the new one.
func writeFile(path string, b []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

func writeRecord(runDir string, r spawn.Record) error {
	if err := writeFile(filepath.Join(runDir, spawn.RecordFile), []byte(r.String())); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

func writeExit(runDir string, e spawn.Exit) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write the exit: %w", err)
	}
	if err := writeFile(filepath.Join(runDir, spawn.ExitFile), b); err != nil {
		return fmt.Errorf("write the exit: %w", err)
	}
	return nil
}

// readExit gives nil when nobody saw the end.
func readExit(runDir string) (*spawn.Exit, error) {
	b, err := os.ReadFile(filepath.Join(runDir, spawn.ExitFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the exit: %w", err)
	}
	var e spawn.Exit
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("read the exit: %w", err)
	}
	return &e, nil
}
