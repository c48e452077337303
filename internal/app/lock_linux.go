package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// lockDataDir makes the data directory, where it is not there, and takes it for
// this process. The kernel gives the lock back when the process ends, however it
// ends; the pid in the file is for people only.
func lockDataDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, dataDirError(dir, err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, dataDirError(dir, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid, _ := os.ReadFile(path)
		f.Close()
		return nil, &sos.Error{Code: sos.CodeConflict,
			Message: fmt.Sprintf("data directory %s is in use by the process with pid %s", dir, strings.TrimSpace(string(pid))),
			Fix:     "stop that server first (SIGTERM leaves its sandboxes running), or name another --data-dir"}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, dataDirError(dir, err)
	}
	return f, nil
}

func dataDirError(dir string, err error) error {
	return &sos.Error{Code: sos.CodeUnavailable, Cause: err,
		Message: fmt.Sprintf("data directory %s cannot be used", dir),
		Fix:     "name a directory on a local, writable filesystem with --data-dir"}
}

// instance is the name of this data directory on the host: it is part of every
// cgroup, socket and mount of its sandboxes, so that servers do not touch what
// belongs to others. It is made once.
func instance(dir string) (string, error) {
	path := filepath.Join(dir, "instance")
	data, err := os.ReadFile(path)
	if err == nil {
		name := strings.TrimSpace(string(data))
		if !validInstance(name) {
			return "", &sos.Error{Code: sos.CodeUnavailable,
				Message: fmt.Sprintf("%s does not hold an instance name", path),
				Fix:     "restore the file; with another name nothing that runs would be found again"}
		}
		return name, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", dataDirError(dir, err)
	}
	name := sos.NewID("", nil)[:instanceLen]
	if err := writeDurably(path, name+"\n"); err != nil {
		return "", dataDirError(dir, err)
	}
	return name, nil
}

const instanceLen = 8

func validInstance(s string) bool {
	if len(s) != instanceLen {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// writeDurably makes a file that is whole or absent after a crash.
func writeDurably(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already when all went well
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
