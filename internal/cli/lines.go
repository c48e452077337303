package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/chzyer/readline"
)

// errLineInterrupted is Ctrl-C at the prompt: the line is dropped.
var errLineInterrupted = errors.New("line interrupted")

// lineReader gives the lines of a session.
type lineReader interface {
	Line() (string, error)
	Close() error
}

// openLines reads from the terminal with editing and a history for each image, or
// plainly from anything else.
func (r *repl) openLines(image string) (lineReader, error) {
	in, isFile := r.In.(*os.File)
	if !isFile || !r.InTTY || !r.OutTTY {
		return &plainLines{bufio.NewReader(r.In)}, nil
	}
	stdin := readline.NewCancelableStdin(in)
	rl, err := readline.NewEx(&readline.Config{
		Prompt:            "sandbox:" + r.id[:min(8, len(r.id))] + "> ",
		HistoryFile:       r.historyFile(image),
		HistorySearchFold: true,
		Stdin:             stdin,
		Stdout:            r.Out,
		Stderr:            r.Err,
	})
	if err != nil {
		return nil, err
	}
	return &terminalLines{rl, stdin}, nil
}

// historyFile is the file for an image below the state directory, or "" (no
// history kept) where there can be none. Commands may hold secrets: 0600.
func (r *repl) historyFile(image string) string {
	dir := r.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home := r.Getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	dir = filepath.Join(dir, "sos", "history")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	name := strings.Map(func(c rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", c) {
			return c
		}
		return '_'
	}, image)
	path := filepath.Join(dir, "image-"+name[:min(len(name), 200)])
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return ""
	}
	file.Close()
	return path
}

type terminalLines struct {
	rl    *readline.Instance
	stdin *readline.CancelableStdin
}

func (t *terminalLines) Line() (string, error) {
	line, err := t.rl.Readline()
	if errors.Is(err, readline.ErrInterrupt) {
		return "", errLineInterrupted
	}
	return line, err
}

// Close gives the terminal its modes back. The input ends first: readline waits
// for its reader, which otherwise waits for a key.
func (t *terminalLines) Close() error {
	return errors.Join(t.stdin.Close(), t.rl.Close())
}

type plainLines struct{ r *bufio.Reader }

// Line gives a last line without a line end too, and then io.EOF.
func (p *plainLines) Line() (string, error) {
	line, err := p.r.ReadString('\n')
	if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
		return "", err
	}
	return line, nil
}

func (p *plainLines) Close() error { return nil }
