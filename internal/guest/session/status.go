package session

import "bytes"

// scanner looks for reports on the status channel. A report is part of an error
// message that bash prints itself when it evaluates the status line:
//
//	bash: ((: 0xNONCE,137/0,hiBs: division by 0 …
//
// Everything else there is noise: prompts, traces, what the user's prompt
// commands print. Nonces that are not of this command are noise too.
type scanner struct {
	nonces []string
	buf    []byte
	inner  int // -1, or the status that the text itself reported (set -e)
	code   int // -1, or the status
	flags  string
	noise  []byte // the first bytes that bash printed, for messages
}

func newScanner() scanner { return scanner{inner: -1, code: -1} }

// nonce makes 60 random bits that a report has to show.
func (s *scanner) nonce() string {
	n := random(15)
	s.nonces = append(s.nonces, n)
	return n
}

// feed takes what was read from the channel.
func (s *scanner) feed(p []byte) {
	if room := 2<<10 - len(s.noise); room > 0 {
		s.noise = append(s.noise, p[:min(room, len(p))]...)
	}
	if s.code >= 0 {
		return // the report is there; nothing that follows matters
	}
	s.buf = append(s.buf, p...)
	b := s.buf
	for s.code < 0 {
		i := bytes.Index(b, []byte("0x"))
		if i < 0 {
			b = b[max(0, len(b)-1):] // may be the 0 of a cut 0x
			break
		}
		if b = b[i:]; s.match(b[2:]) == partial {
			break
		}
		b = b[2:]
	}
	if s.code >= 0 {
		b = nil
	}
	s.buf = append(s.buf[:0], b...)
}

type verdict int

const (
	no      verdict = iota
	partial         // what follows may make it a report
	yes
)

// match reads a report after its 0x.
func (s *scanner) match(b []byte) verdict {
	best := no
	for _, n := range s.nonces {
		best = max(best, s.report(b, n+","))
	}
	return best
}

// maxFlags is more than $- can be long.
const maxFlags = 32

func (s *scanner) report(b []byte, head string) verdict {
	rest, v := expect(b, head)
	if v != yes {
		return v
	}
	inner := false
	if next, v := expect(rest, "1*"); v == yes {
		rest, inner = next, true
	} else if v == partial {
		return partial
	}
	code, d := 0, 0
	for d < len(rest) && d < 3 && rest[d] >= '0' && rest[d] <= '9' {
		code, d = code*10+int(rest[d]-'0'), d+1
	}
	if d == len(rest) {
		return partial
	}
	if d == 0 || code > 255 {
		return no
	}
	if rest, v = expect(rest[d:], "/0,"); v != yes {
		return v
	}
	f := 0
	for f < len(rest) && f < maxFlags && flag(rest[f]) {
		f++
	}
	end := bytes.TrimPrefix(rest[f:], []byte(" "))
	if len(end) == 0 {
		return partial
	}
	if end[0] != ':' {
		return no
	}
	s.take(code, inner, string(rest[:f]))
	return yes
}

// flag: a character that $- can have.
func flag(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// expect takes want from the front of b.
func expect(b []byte, want string) (rest []byte, v verdict) {
	switch {
	case len(b) >= len(want) && string(b[:len(want)]) == want:
		return b[len(want):], yes
	case len(b) < len(want) && want[:len(b)] == string(b):
		return nil, partial
	}
	return nil, no
}

// take: a report of the text itself goes before that of the status line, which
// comes after it.
func (s *scanner) take(v int, inner bool, flags string) {
	if inner {
		s.inner = v
		return
	}
	if s.code, s.flags = v, flags; s.inner >= 0 {
		s.code = s.inner
	}
}

// complaint is the first message of bash among the noise, or "".
func (s *scanner) complaint() string {
	for line := range bytes.Lines(s.noise) {
		i := bytes.Index(line, []byte("bash: "))
		if i < 0 || bytes.Contains(line, []byte("((: 0x")) || bytes.Contains(line, []byte("near unexpected token `)'")) ||
			bytes.HasPrefix(line[i:], []byte("bash: ` )'")) {
			continue
		}
		line = bytes.TrimRight(line[i+len("bash: "):], "\n")
		return string(line[:min(len(line), 300)])
	}
	return ""
}
