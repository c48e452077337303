package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuPeriod is the time in microseconds over which a cpu limit is kept.
const cpuPeriod = 100000

func duration(ns int64) time.Duration { return time.Duration(ns) }

func write(dir, file string, n int64) error {
	return writeString(dir, file, strconv.FormatInt(n, 10))
}

func writeString(dir, file, s string) error {
	// No O_CREATE: a file that is not there is a controller that is not there.
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(s)
	return errors.Join(err, f.Close())
}

func readString(dir, file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	return string(bytes.TrimSpace(b)), err
}

func readInt(dir, file string) (int64, error) {
	s, err := readString(dir, file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", file, dir, err)
	}
	return n, nil
}

// readKey reads "key value" from a flat-keyed file.
func readKey(dir, file, key string) (int64, error) {
	s, err := readString(dir, file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(s) {
		if v, ok := strings.CutPrefix(line, key+" "); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s of %s has no %s", file, dir, key)
}

// list gives the names of the directories below dirs, each once.
func list(dirs []string) ([]string, error) {
	var names []string
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// openAll opens files for writing; none is left open when one fails.
func openAll(paths iter.Seq[string]) ([]*os.File, error) {
	var files []*os.File
	for path := range paths {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// until asks again, more and more rarely, until done or the end of ctx.
func until(ctx context.Context, done func() (bool, error)) error {
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// removeAll removes directories, children first, and waits while they are busy.
func removeAll(ctx context.Context, dirs []string, rmdir func(string) error) error {
	for _, dir := range slices.Backward(dirs) {
		err := until(ctx, func() (bool, error) {
			err := rmdir(dir)
			switch {
			case err == nil, errors.Is(err, fs.ErrNotExist):
				return true, nil
			case errors.Is(err, unix.EBUSY):
				return false, nil
			}
			return false, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}
