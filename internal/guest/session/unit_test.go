package session

import (
	"os/exec"
	"strings"
	"testing"
)

func TestScanner(t *testing.T) {
	const n = "0123456789abcde"
	for _, c := range []struct {
		text string
		code int
		f    string
	}{
		{"bash: ((: 0x" + n + ",137/0,hiBs: division by 0 (error", 137, "hiBs"},
		{"$ bash: ((: 0x" + n + ",0/0,hiBs : division by 0", 0, "hiBs"},
		{"0x" + n + ",1*5/0,ehB: x\nbash: ((: 0x" + n + ",0/0,ehB: y", 5, "ehB"},
		{"0x" + n + ",$?/0,$-))\n0x" + n + ",3/0,: z", 3, ""},
		{"0x" + n + ",256/0,hB: x", -1, ""},
		{"0x" + n + ",1234/0,hB: x", -1, ""},
		{"0x" + n + ",/0,hB: x", -1, ""},
		{"0x" + n + ",1/0,h-B: x", -1, ""},
		{"0x0123456789abcdf,1/0,hB: x", -1, ""},
		{strings.Repeat("0x0", 40000) + "x" + n + ",7/0,hB: x", 7, "hB"},
		{"0x" + n + ",7/0,hB: " + strings.Repeat("x", 1000), 7, "hB"},
		{"", -1, ""},
	} {
		for _, cut := range []int{1, 3, 64, 1 << 20} {
			s := newScanner()
			s.nonces = []string{"fffffffffffffff", n}
			for b := []byte(c.text); len(b) > 0; b = b[min(cut, len(b)):] {
				s.feed(b[:min(cut, len(b))])
			}
			if s.code != c.code || s.code >= 0 && s.flags != c.f {
				t.Errorf("%.60q in pieces of %d: %d %q", c.text, cut, s.code, s.flags)
			}
			if len(s.buf) > 64 || len(s.noise) > 2<<10 {
				t.Errorf("keeps %d and %d bytes", len(s.buf), len(s.noise))
			}
		}
	}
}

func FuzzScanner(f *testing.F) {
	const n = "0123456789abcde"
	f.Add([]byte("bash: ((: 0x"+n+",137/0,hiBs: division"), 3)
	f.Add([]byte("0x"+n+",1*5/0,e: 0x"+n+",0/0,e: "), 1)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		cut = max(1, cut&63)
		whole, pieces := newScanner(), newScanner()
		whole.nonces, pieces.nonces = []string{n}, []string{n}
		whole.feed(b)
		for p := b; len(p) > 0; p = p[min(cut, len(p)):] {
			pieces.feed(p[:min(cut, len(p))])
		}
		if whole.code != pieces.code || whole.code > 255 || len(whole.buf) > 64 {
			t.Errorf("%d in one piece, %d in pieces of %d", whole.code, pieces.code, cut)
		}
		whole.complaint()
	})
}

func FuzzQuote(f *testing.F) {
	f.Add(nasty)
	f.Add("'\\''")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			t.Skip()
		}
		out, err := exec.Command("bash", "--norc", "-c", "printf %s "+quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q became %q, %v", s, out, err)
		}
	})
}

func TestBlank(t *testing.T) {
	for s, want := range map[string]bool{"": true, "  \t\n": true, "# c": true, " # c\n\n#d \\\n": true, "\r": false, "\f": false, ":": false, "# c\n:": false, "\\\n": false} {
		if blank(s) != want {
			t.Errorf("%q", s)
		}
	}
}

func TestMayStrict(t *testing.T) {
	for s, want := range map[string]bool{
		"set -e": true, "set -u -e": true, "x; set -euo pipefail": true, "set -o errexit": true, "eval 'set -e'": true, "\\set -e": true, "builtin set -e": true,
		"source x": true, ". x": true, "a && . x": true, "{ . x; }": true, "then\n . x": true,
		"echo set": false, "set -u": false, "find . -name x": false, "ls .": false, "reset -e": false, "set -u; grep -e x": false, "echo a. b": false, "": false, "set ": false,
	} {
		if mayStrict(s) != want {
			t.Errorf("%q", s)
		}
	}
}
