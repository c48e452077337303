package session

import (
	"maps"
	"slices"
	"strings"

	"github.com/seaofsimulation/sos/internal/guest"
)

// What one variable and all of a command's may take: execve refuses a longer
// string, and control lines are read in small pieces.
const (
	maxVariable = 128<<10 - 1
	maxEnv      = 1 << 20
)

// plain: no quoting needed anywhere.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '-' || c == '.' || c == '/'
}

// quote makes one word of bash of any bytes but NUL: $'…' with octal escapes, so
// that neither quotes, newlines nor invalid UTF-8 can end it.
func quote(s string) string {
	b := make([]byte, 0, len(s)+8)
	b = append(b, "$'"...)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		}
	}
	return string(append(b, '\''))
}

// identifier: a name that bash takes in front of "=".
func identifier(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// check says why a command cannot be given to bash, or "".
func check(c guest.SessionCommand) string {
	switch {
	case strings.IndexByte(c.Text, 0) >= 0:
		return "the command has a NUL byte, which bash cannot take"
	case len(c.Text) > guest.MaxText:
		return "the command is longer than 7 MiB"
	case len(c.Stdin) > guest.MaxText:
		return "the standard input is longer than 7 MiB"
	case strings.IndexByte(c.Cwd, 0) >= 0:
		return "cwd has a NUL byte"
	}
	total := 0
	for k, v := range c.Env {
		total += len(k) + len(v) + 2
		switch {
		case !identifier(k):
			return "env: " + quote(k) + " is not a name of a variable"
		case k == "POSIXLY_CORRECT":
			return "env: POSIXLY_CORRECT would switch the session to posix mode for good; put it in front of the program in the text"
		case strings.IndexByte(v, 0) >= 0:
			return "env: the value of " + k + " has a NUL byte"
		case len(k)+len(v)+2 > maxVariable:
			return "env: " + k + " is longer than 128 KiB"
		}
	}
	if total > maxEnv {
		return "env: all variables together are longer than 1 MiB"
	}
	return ""
}

// assignments gives the variables in front of the command that reads the text,
// and a probe: a subshell that fails when one of them is readonly. Without it
// bash says so and runs the text all the same, with the old value.
func assignments(env map[string]string) (probe, words string) {
	for _, k := range slices.Sorted(maps.Keys(env)) {
		probe += k + "= "
		words += k + "=" + quote(env[k]) + " "
	}
	if probe == "" {
		return "", ""
	}
	return "( " + probe + ") && ", words
}

// cdWord is the argument of cd: "-" and what CDPATH would look up are paths here.
func cdWord(cwd string) string {
	if !strings.HasPrefix(cwd, "/") {
		cwd = "./" + cwd
	}
	return quote(cwd)
}

// blank: only blanks, newlines and comments.
func blank(s string) bool {
	for line := range strings.Lines(s) {
		line = strings.TrimLeft(strings.TrimSuffix(line, "\n"), " \t")
		if line != "" && line[0] != '#' {
			return false
		}
	}
	return true
}
