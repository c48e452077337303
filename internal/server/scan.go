package server

import (
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds how deep a body may nest.
const maxDepth = 128

// scanner reads one JSON value out of a body and tells where it is wrong in the
// words that clients of the first system may read: what was found, what was
// expected, line and column. encoding/json knows neither duplicate fields nor
// columns, and ends at text after the value; the wire ignores such text.
type scanner struct {
	buf []byte
	pos int
}

// syntax is the error for text that is no JSON; at is the offset it points to.
func (s *scanner) syntax(at int, what string) error {
	return &failure{status: http.StatusBadRequest, text: "Failed to parse the request body as JSON: " + what + s.where(at)}
}

// data is the error for JSON of the wrong shape.
func (s *scanner) data(path, what string) error {
	if path != "" {
		path += ": "
	}
	return &failure{status: http.StatusUnprocessableEntity,
		text: "Failed to deserialize the JSON body into the target type: " + path + what + s.where(s.pos)}
}

func (s *scanner) where(at int) string {
	line, column := 1, 0
	for _, c := range s.buf[:min(at, len(s.buf))] {
		if c == '\n' {
			line, column = line+1, 0
		} else {
			column++
		}
	}
	return fmt.Sprintf(" at line %d column %d", line, column)
}

// space skips white space and gives the next byte, 0 at the end.
func (s *scanner) space() byte {
	for s.pos < len(s.buf) {
		switch c := s.buf[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// eof says whether all is read, and is the condition that tells a NUL byte from
// the end.
func (s *scanner) eof() bool { return s.pos >= len(s.buf) }

// str reads a string; the next byte is its quote.
func (s *scanner) str() (string, error) {
	s.pos++
	start := s.pos
	for s.pos < len(s.buf) {
		switch c := s.buf[s.pos]; {
		case c == '"':
			raw := s.buf[start:s.pos]
			if !utf8.Valid(raw) {
				return "", s.syntax(s.pos, "invalid unicode code point")
			}
			s.pos++
			return string(raw), nil
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			return "", s.syntax(s.pos+1, `control character (\u0000-\u001F) found while parsing a string`)
		}
		s.pos++
	}
	return "", s.syntax(s.pos, "EOF while parsing a string")
}

// escaped goes on with a string whose first escape is at the current position.
func (s *scanner) escaped(start int) (string, error) {
	out := append(make([]byte, 0, s.pos-start+64), s.buf[start:s.pos]...)
	for s.pos < len(s.buf) {
		c := s.buf[s.pos]
		s.pos++
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return "", s.syntax(s.pos, "invalid unicode code point")
			}
			return string(out), nil
		case c < 0x20:
			return "", s.syntax(s.pos, `control character (\u0000-\u001F) found while parsing a string`)
		case c != '\\':
			out = append(out, c)
		default:
			r, err := s.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		}
	}
	return "", s.syntax(s.pos, "EOF while parsing a string")
}

var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape reads what follows a backslash.
func (s *scanner) escape() (rune, error) {
	if s.eof() {
		return 0, s.syntax(s.pos, "EOF while parsing a string")
	}
	c := s.buf[s.pos]
	s.pos++
	if c != 'u' {
		r, ok := escapes[c]
		if !ok {
			return 0, s.syntax(s.pos, "invalid escape")
		}
		return r, nil
	}
	r, err := s.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if s.pos+1 < len(s.buf) && s.buf[s.pos] == '\\' && s.buf[s.pos+1] == 'u' {
		s.pos += 2
		low, err := s.hex()
		if err != nil {
			return 0, err
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, nil
		}
	}
	return 0, s.syntax(s.pos, "lone leading surrogate in hex escape")
}

func (s *scanner) hex() (rune, error) {
	if s.pos+4 > len(s.buf) {
		s.pos = len(s.buf)
		return 0, s.syntax(s.pos, "EOF while parsing a string")
	}
	n, err := strconv.ParseUint(string(s.buf[s.pos:s.pos+4]), 16, 16)
	if err != nil {
		return 0, s.syntax(s.pos+4, "invalid escape")
	}
	s.pos += 4
	return rune(n), nil
}
