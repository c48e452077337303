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

// writeString writes with bare system calls: package os would put every file, since
// those of cgroups can be polled, into the runtime's poller and take it out again.
func writeString(dir, file, s string) error {
	path := filepath.Join(dir, file)
	// No O_CREATE: a file that is not there is a controller that is not there.
	fd, err := open(path, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		_, err := unix.Write(fd, []byte(s)) // whole or not at all
		switch err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		}
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
}

// open opens a file or directory without the poller.
func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

func openFile(path string, flags int) (*os.File, error) {
	fd, err := open(path, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
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
		f, err := openFile(path, unix.O_WRONLY)
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

// rmdir is os.Remove for what is known to be a directory.
func rmdir(path string) error {
	if err := unix.Rmdir(path); err != nil {
		return &os.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
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
