package sos

import (
	"bytes"
	"strings"
	"testing"
)

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID(SandboxIDPrefix, nil)
		if !IsID(id, SandboxIDPrefix) || IsID(id, ProcessIDPrefix) || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
	if got := NewID("p-", bytes.NewReader(make([]byte, 10))); got != "p-aaaaaaaaaaaaaaaa" {
		t.Fatalf("from zeros: %q", got)
	}
}

func TestIsIDPrefix(t *testing.T) {
	for s, want := range map[string]bool{
		"sb-a": true, "sb-abcdefghijklmnop": true, "sb-": false, "sb": false, "a": false, "": false,
		"sb-abcdefghijklmnopq": false, "sb-A": false, "sb-1": false, "sb-a/": false, "p-a": false,
	} {
		if IsIDPrefix(s, SandboxIDPrefix) != want {
			t.Errorf("%q: want %v", s, want)
		}
	}
}

func TestCheckName(t *testing.T) {
	for _, ok := range []string{"a", "agent-1", "0", strings.Repeat("x", 63), "sb-short", "sb"} {
		if err := CheckName(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "-a", "a-", "A", "a_b", "a.b", "ä", "a b", strings.Repeat("x", 64), "sb-abcdefghijklmnop", "p-abcdefghijklmnop", "../x", "a\x00"} {
		err := CheckName(bad)
		if ErrorCode(err) != CodeInvalid || err.(*Error).Fix == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
