package control

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCleanSession(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "hi\n", "hi"},
		{"leading space stays", "  a  \n\n\n", "  a"},
		{"leading lines stay", "\n\nb", "\n\nb"},
		{"tab", "a\tb\n", "a\tb"},
		{"file of the text", "one\nbash: /dev/.sos/0f3a/cmd: line 12: syntax error near unexpected token `fi'\nbash: /dev/.sos/0f3a/cmd: line 12: `fi'\n", "one\nbash: syntax error near unexpected token `fi'\nbash: `fi'"},
		{"not quite that file", "x bash: /dev/.sos/0f3a/cmd: line 1: y\nbash: /dev/.sos/0f3a/cmd: y", "x bash: /dev/.sos/0f3a/cmd: line 1: y\nbash: /dev/.sos/0f3a/cmd: y"},
		{"crlf", "a\r\nb\r\r\n", "a\nb"},
		{"progress", "10%\r20%\n", "10%\r20%"},
		{"cr at the end", "a\r", "a"},
		{"backspace, nul, bel", "a\bb\x00\x07c", "abc"},
		{"colour", "\x1b[31mred\x1b[0m\n", "red"},
		{"colours with colons", "\x1b[38:2::1:2:3mx\x1b[m", "x"},
		{"private mode", "\x1b[?2004hx\x1b[?2004l", "x"},
		{"osc bel", "\x1b]0;title\x07x", "x"},
		{"osc st", "\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"},
		{"dcs", "\x1bPq#0\x1b\\x", "x"},
		{"charset", "\x1b(Bx", "x"},
		{"save cursor", "\x1b7x\x1b8", "x"},
		{"unfinished osc hides one line only", "\x1b]0;abc\nrest", "\nrest"},
		{"unfinished csi", "x\x1b[31", "x"},
		{"csi broken by text", "\x1b[31é", "é"},
		{"lone esc at the end", "x\x1b", "x"},
		{"esc before text of another script", "\x1bé", "é"},
		{"accents", "h\xc3\xa9llo \xe2\x9c\x93", "héllo ✓"},
		{"invalid bytes", "\xff\xfe", "\ufffd\ufffd"},
		{"invalid part of a character", "\xe2\x82x", "\ufffdx"},
		{"c1", "a\xc2\x9bb", "ab"},
		{"no-break space stays inside", "a\u00a0b", "a\u00a0b"},
		{"marker look-alike stays", "#PS1-TR0N-F1GHTS-4-TH3-U23R2#:0:", "#PS1-TR0N-F1GHTS-4-TH3-U23R2#:0:"},
	} {
		if got := cleanSession([]byte(c.in), false); got != c.want {
			t.Errorf("%s: %q became %q, want %q", c.name, c.in, got, c.want)
		}
	}
}

func TestDecode(t *testing.T) {
	if got := decode([]byte("\xffa\x00b"), false); got != "\ufffda\x00b" {
		t.Errorf("got %q", got)
	}
	if got := decode([]byte("a\xe2\x82"), true); got != "a" {
		t.Errorf("a character cut by the limit: got %q, want it left out", got)
	}
	if got := decode([]byte("a\xe2\x82"), false); got != "a\ufffd" {
		t.Errorf("a character cut by the program: got %q", got)
	}
	if got := decode([]byte("\xf0\x9f\x98"), false); got != "\ufffd" {
		t.Errorf("three bytes of four: got %q, want one mark", got)
	}
	if got := decode([]byte("\xc0\xaf\xed\xa0\x80"), false); strings.Count(got, "\ufffd") != 5 {
		t.Errorf("overlong and surrogate: got %q, want a mark for each byte", got)
	}
}

func FuzzCleanSession(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m\r\n\xff"))
	f.Add([]byte("\x1b]0;t\x07\x1bP\x1b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := cleanSession(b, false)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		if strings.IndexFunc(got, func(r rune) bool { return isControl(r) && r != '\r' }) >= 0 {
			t.Fatalf("%q keeps a control character", got)
		}
		if again := cleanSession([]byte(got), false); again != got {
			t.Fatalf("cleaning twice differs: %q, %q", got, again)
		}
	})
}
