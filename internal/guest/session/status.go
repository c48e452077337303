package session

import "bytes"

// keep is how much of the status channel is held back: enough for a report that
// was cut by a read.
const keep = 64

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
	s.buf = append(s.buf, p...)
	b := s.buf
	for s.code < 0 {
		i := bytes.Index(b, []byte("0x"))
		if i < 0 {
			b = b[max(0, len(b)-1):] // the 0 of a cut 0x
			break
		}
		if b = b[i:]; s.match(b[2:]) {
			b = b[2:]
			continue
		}
		if len(b) < keep {
			break // may be the beginning of one
		}
		b = b[2:]
	}
	s.buf = append(s.buf[:0], b...)
}

// match reads a report after its 0x. It says whether b holds a whole one.
func (s *scanner) match(b []byte) bool {
	for _, n := range s.nonces {
		rest, ok := bytes.CutPrefix(b, []byte(n+","))
		if !ok {
			continue
		}
		inner := bytes.HasPrefix(rest, []byte("1*"))
		if inner {
			rest = rest[2:]
		}
		v, d := 0, 0
		for d < len(rest) && d < 3 && rest[d] >= '0' && rest[d] <= '9' {
			v, d = v*10+int(rest[d]-'0'), d+1
		}
		rest, ok = bytes.CutPrefix(rest[d:], []byte("/0,"))
		if d == 0 || v > 255 || !ok {
			continue
		}
		f := 0
		for f < len(rest) && (rest[f] >= 'a' && rest[f] <= 'z' || rest[f] >= 'A' && rest[f] <= 'Z' || rest[f] >= '0' && rest[f] <= '9') {
			f++
		}
		if end := bytes.TrimPrefix(rest[f:], []byte(" ")); len(end) == 0 || end[0] != ':' {
			continue
		}
		s.take(v, inner, string(rest[:f]))
		return true
	}
	return false
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
