package journal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seaofsimulation/sos"
)

func TestNotes(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	r := create(t, j)
	other, err := j.Create("sb-1", "p-2")
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"began", "SJ" + strings.Repeat("\xff", 300), "ended"} {
		if err := r.Note([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := r.Append(sos.StreamOut, int64(i), []byte{'0' + byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := r.Note([]byte("after the end")); err != nil {
		t.Fatal(err)
	}
	if err := other.Note([]byte("other")); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{"p-1": []byte("after the end"), "p-2": []byte("other")}
	for range 2 { // alive, and by the next server
		got, err := j.Notes("sb-1")
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Fatal(d, err)
		}
		if out := read(t, j, sos.StreamOut, 0); out != "012" {
			t.Fatalf("output %q", out)
		}
		if es, err := j.Entries("sb-1", "p-1"); err != nil || len(es) != 3 {
			t.Fatalf("entries %v %v", es, err)
		}
		j.Close()
		j = open(t, dir, Options{})
	}
	if none, err := j.Notes("sb-2"); err != nil || len(none) != 0 {
		t.Fatalf("notes of an unknown sandbox: %v %v", none, err)
	}
	for _, bad := range [][]byte{nil, make([]byte, maxNote+1)} {
		if err := r.Note(bad); sos.ErrorCode(err) != sos.CodeTooLarge {
			t.Fatalf("a note of %d bytes: %v", len(bad), err)
		}
	}
}
