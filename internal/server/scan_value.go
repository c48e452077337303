package server

import (
	"strconv"
	"strings"
)

// value reads any value, checks it, and describes it in the words of the
// messages: null, sequence, string "x", boolean and so on.
func (s *scanner) value(depth int) (kind string, err error) {
	if depth > maxDepth {
		return "", s.syntax(s.pos, "recursion limit exceeded")
	}
	switch c := s.space(); {
	case s.eof():
		return "", s.syntax(s.pos, "EOF while parsing a value")
	case c == '"':
		v, err := s.str()
		return "string " + quoteShort(v), err
	case c == '{':
		return "map", s.object(depth, func(string) error { return s.skip(depth + 1) })
	case c == '[':
		return "sequence", s.array(depth, func(int) error { return s.skip(depth + 1) })
	case c == 'n':
		return "null", s.word("null")
	case c == 't':
		return "boolean `true`", s.word("true")
	case c == 'f':
		return "boolean `false`", s.word("false")
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	return "", s.syntax(s.pos+1, "expected value")
}

func (s *scanner) skip(depth int) error {
	_, err := s.value(depth)
	return err
}

// raw reads any value and gives its text.
func (s *scanner) raw() ([]byte, error) {
	s.space()
	start := s.pos
	if err := s.skip(0); err != nil {
		return nil, err
	}
	return s.buf[start:s.pos], nil
}

func (s *scanner) word(w string) error {
	for i := range len(w) {
		if s.eof() {
			return s.syntax(s.pos, "EOF while parsing a value")
		}
		if s.buf[s.pos] != w[i] {
			return s.syntax(s.pos+1, "expected ident")
		}
		s.pos++
	}
	return nil
}

// number checks a number by JSON's grammar.
func (s *scanner) number() (kind string, err error) {
	start := s.pos
	if s.buf[s.pos] == '-' {
		s.pos++
	}
	lead := s.pos
	n := s.digits()
	if n == 0 || n > 1 && s.buf[lead] == '0' {
		return "", s.syntax(min(s.pos+1, len(s.buf)), "invalid number")
	}
	kind = "integer"
	if !s.eof() && s.buf[s.pos] == '.' {
		s.pos++
		if kind = "floating point"; s.digits() == 0 {
			return "", s.syntax(min(s.pos+1, len(s.buf)), "invalid number")
		}
	}
	if !s.eof() && (s.buf[s.pos] == 'e' || s.buf[s.pos] == 'E') {
		s.pos++
		if !s.eof() && (s.buf[s.pos] == '+' || s.buf[s.pos] == '-') {
			s.pos++
		}
		if kind = "floating point"; s.digits() == 0 {
			return "", s.syntax(min(s.pos+1, len(s.buf)), "invalid number")
		}
	}
	return kind + " `" + string(s.buf[start:min(s.pos, start+40)]) + "`", nil
}

func (s *scanner) digits() (n int) {
	for !s.eof() && s.buf[s.pos] >= '0' && s.buf[s.pos] <= '9' {
		s.pos++
		n++
	}
	return n
}

// object calls field for each name of an object, which must read its value; the
// next byte is the brace.
func (s *scanner) object(depth int, field func(name string) error) error {
	s.pos++
	for first := true; ; first = false {
		c := s.space()
		switch {
		case s.eof():
			return s.syntax(s.pos, "EOF while parsing an object")
		case c == '}':
			s.pos++
			return nil
		case !first && c != ',':
			return s.syntax(s.pos+1, "expected `,` or `}`")
		case !first:
			s.pos++
			c = s.space()
		}
		switch {
		case s.eof():
			return s.syntax(s.pos, "EOF while parsing a value")
		case c == '}':
			return s.syntax(s.pos+1, "trailing comma")
		case c != '"':
			return s.syntax(s.pos+1, "key must be a string")
		}
		name, err := s.str()
		if err != nil {
			return err
		}
		switch c := s.space(); {
		case s.eof():
			return s.syntax(s.pos, "EOF while parsing an object")
		case c != ':':
			return s.syntax(s.pos+1, "expected `:`")
		}
		s.pos++
		if err := field(name); err != nil {
			return err
		}
	}
}

// array calls element for each element, which must read it; the next byte is
// the bracket.
func (s *scanner) array(depth int, element func(i int) error) error {
	s.pos++
	for i := 0; ; i++ {
		c := s.space()
		switch {
		case s.eof():
			return s.syntax(s.pos, "EOF while parsing a list")
		case c == ']':
			s.pos++
			return nil
		case i > 0 && c != ',':
			return s.syntax(s.pos+1, "expected `,` or `]`")
		case i > 0:
			s.pos++
			if s.space() == ']' {
				return s.syntax(s.pos+1, "trailing comma")
			}
		}
		if err := element(i); err != nil {
			return err
		}
	}
}

// quoteShort quotes the beginning of a string for a message.
func quoteShort(v string) string {
	const most = 60
	if len(v) > most {
		v = strings.ToValidUTF8(v[:most], "") + "…"
	}
	return strconv.Quote(v)
}
