package control

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The answer to a command is text, a view of the recorded bytes made in one piece
// from the beginning, so that no boundary between chunks can spoil a character
// or an escape sequence.

const esc = 0x1b

// cleanSession makes the text of a session command: without escape sequences and
// control characters other than tab, line feed and a lone carriage return (which
// progress bars live on), with CR LF as LF, and trimmed at its end.
func cleanSession(b []byte, cut bool) string {
	s := decode(b, cut)
	if strings.IndexFunc(s, isControl) >= 0 {
		s = strip(s)
	}
	if strings.Contains(s, "/dev/.sos/") {
		s = fileOfText.ReplaceAllString(s, "bash: ")
	}
	return strings.TrimRightFunc(s, unicode.IsSpace)
}

// fileOfText is how bash begins what it says of a text's syntax: with the file that
// the guest put the text into, of which the user knows nothing and whose name is
// another one in each session.
var fileOfText = regexp.MustCompile(`(?m)^bash: /dev/\.sos/[0-9a-z]+/cmd: line [0-9]+: `)

// isControl finds what strip has to look at.
func isControl(r rune) bool {
	return r < 0x20 && r != '\n' && r != '\t' || r >= 0x80 && r < 0xa0
}

// decode reads b as UTF-8. What is not UTF-8 becomes U+FFFD, one for each maximal
// part of a character, as browsers and Python have it. When b was cut by a limit
// an unfinished character at its end is left out.
func decode(b []byte, cut bool) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b) + 16)
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			out.Write(b[:n])
			b = b[n:]
			continue
		}
		n := badPrefix(b)
		if cut && n == len(b) && !utf8.FullRune(b) {
			break
		}
		out.WriteRune(utf8.RuneError)
		b = b[n:]
	}
	return out.String()
}

// badPrefix is the length of the longest beginning of b that could begin a
// character, at least 1.
func badPrefix(b []byte) int {
	for n := min(3, len(b)); n > 1; n-- {
		if !utf8.FullRune(b[:n]) {
			return n
		}
	}
	return 1
}

// strip removes escape sequences and control characters. A sequence that is not
// finished reaches at most to the end of its line, so that a stray introducer
// cannot hide the rest of the output.
func strip(s string) string {
	var out strings.Builder
	out.Grow(len(s))
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == esc:
			i = skipEscape(s, i+1)
		case c == '\r':
			end := i
			for end < len(s) && s[end] == '\r' {
				end++
			}
			if end < len(s) && s[end] != '\n' {
				out.WriteByte('\r')
			}
			i = end
		case c == '\n' || c == '\t' || c >= 0x20 && c < 0x80:
			out.WriteByte(c)
			i++
		case c < 0x20:
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if !isControl(r) {
				out.WriteString(s[i : i+n])
			}
			i += n
		}
	}
	return out.String()
}

// skipEscape gives the index after the sequence whose ESC is before i.
func skipEscape(s string, i int) int {
	if i == len(s) {
		return i
	}
	switch s[i] {
	case '[':
		return skipCSI(s, i+1)
	case ']', 'P', 'X', '^', '_': // OSC, DCS, SOS, PM, APC: a string follows
		return skipString(s, i+1)
	}
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x30 { // intermediate bytes
		i++
	}
	if i < len(s) && s[i] >= 0x30 && s[i] < 0x7f {
		i++
	}
	return i
}

// skipCSI passes over parameters and the final byte; a byte that belongs to
// neither ends the sequence and is text again.
func skipCSI(s string, i int) int {
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x40 {
		i++
	}
	if i < len(s) && s[i] >= 0x40 && s[i] < 0x7f {
		i++
	}
	return i
}

// skipString passes over a string that ends with BEL, ST, CAN or SUB, or before
// the end of the line.
func skipString(s string, i int) int {
	for ; i < len(s); i++ {
		switch s[i] {
		case 0x07, 0x18, 0x1a:
			return i + 1
		case '\n':
			return i
		case esc:
			if i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
			return i
		}
	}
	return i
}
