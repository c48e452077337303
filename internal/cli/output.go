package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// stickyWriter remembers the first error, so that commands need not look at each
// write and the end of the program can tell what happened.
type stickyWriter struct {
	w   io.Writer
	err error
}

func (s *stickyWriter) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

// format is how a command prints its result.
type format struct {
	a           *cli
	quiet, json bool
}

func (a *cli) format(cmd *cobra.Command) *format {
	f := &format{a: a}
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print the bare result only")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return f
}

// say prints a line for people.
func (f *format) say(format string, args ...any) {
	if !f.quiet && !f.json {
		fmt.Fprintf(f.a.Out, format+"\n", args...)
	}
}

// ok prints a line for people with a check mark before it, which is left out where
// stdout is no terminal: then `cut -d' ' -f5` of "Sandbox created with ID: …" is
// the id, as documented.
func (f *format) ok(format string, args ...any) {
	if f.a.OutTTY {
		format = "✓ " + format
	}
	f.say(format, args...)
}

// result prints v with --json, or text with --quiet (nothing when it is empty).
func (f *format) result(v any, text string) error {
	if f.json {
		return writeJSON(f.a.Out, v)
	}
	if f.quiet && text != "" {
		fmt.Fprintln(f.a.Out, text)
	}
	return nil
}

// note tells people something beside the result.
func (f *format) note(format string, args ...any) {
	if !f.quiet {
		fmt.Fprintf(f.a.Err, format+"\n", args...)
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// quoted lists strings as ["a", "b"].
func quoted(list []string) string {
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = strconv.Quote(s)
	}
	return "[" + strings.Join(q, ", ") + "]"
}

// plain makes text safe for one cell of a table: it came from others, and control
// characters would move the cursor or break the row.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
