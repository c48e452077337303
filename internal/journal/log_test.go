package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seaofsimulation/sos"
)

// Whatever a killed server left of its last write, the next one goes on from the
// whole entries before it; the guest sends the rest again.
func TestTornLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		j := open(t, dir, Options{})
		want := map[string]string{}
		ids := []string{"p-1", "p-2"}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			id := rapid.SampledFrom(ids).Draw(rt, "process")
			times := rapid.SampledFrom([]int{1, 1, 1, 700}).Draw(rt, "times") // the last leaves the log soon
			piece := strings.Repeat(rapid.StringN(1, 50, -1).Draw(rt, "piece"), times)
			r, err := j.Create("sb-1", id)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Append(sos.StreamOut, int64(len(want[id])), []byte(piece)); err != nil {
				t.Fatal(err)
			}
			want[id] += piece
		}
		j.Close()
		tear(rt, filepath.Join(dir, "sb-1", "log"))
		j = open(t, dir, Options{})
		for _, id := range ids {
			r, err := j.Create("sb-1", id)
			if err != nil {
				t.Fatal(err)
			}
			have := r.Offsets()[sos.StreamOut]
			if have > int64(len(want[id])) {
				rt.Fatalf("%s has %d bytes, wrote %d", id, have, len(want[id]))
			}
			if err := r.Append(sos.StreamOut, have, []byte(want[id][have:]+"!")); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if _, err := j.Read(t.Context(), "sb-1", id, sos.StreamOut, 0, false, &b); err != nil || b.String() != want[id]+"!" {
				rt.Fatalf("%s reads %d bytes, want %d (%v)", id, b.Len(), len(want[id])+1, err)
			}
			head, total, err := j.Head("sb-1", id, sos.StreamOut, 1<<20)
			if err != nil || string(head) != want[id]+"!" || total != int64(len(want[id]))+1 {
				rt.Fatalf("%s: head of %d, total %d, %v", id, len(head), total, err)
			}
			whole(rt, j, id, total)
		}
	})
}

// whole checks that the entries of a process tell of each byte once.
func whole(rt *rapid.T, j *Journal, id string, total int64) {
	es, err := j.Entries("sb-1", id)
	if err != nil {
		rt.Fatal(err)
	}
	var end int64
	for _, e := range es {
		if e.Offset != end {
			rt.Fatalf("entry at %d, want %d: %v", e.Offset, end, es)
		}
		end += e.Length
	}
	if end != total {
		rt.Fatalf("entries end at %d, want %d", end, total)
	}
}

// tear cuts off some of the last 100 bytes, or adds half an entry.
func tear(rt *rapid.T, path string) {
	fi, err := os.Stat(path)
	if err != nil {
		rt.Fatal(err)
	}
	if rapid.Bool().Draw(rt, "half an entry") {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write(Entry{Process: "p-1", Stream: sos.StreamOut, Offset: 1 << 30, Length: 5}.append(nil)); err != nil {
			rt.Fatal(err)
		}
		return
	}
	n := fi.Size() - rapid.Int64Range(0, min(100, fi.Size())).Draw(rt, "cut")
	if err := os.Truncate(path, n); err != nil {
		rt.Fatal(err)
	}
}

// A process that writes much leaves the log, whatever it wrote before, and a copy
// that was interrupted there is made again.
func TestLongOutputLeavesTheLog(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	r := create(t, j)
	var want []byte
	for i := range 400 { // more pieces than the log takes
		b := bytes.Repeat([]byte{byte(i)}, 100+i)
		if err := errors.Join(r.Append(sos.StreamStdout, int64(len(want)), b), r.Append(sos.StreamStderr, int64(i), []byte{'e'})); err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
		if got := read(t, j, sos.StreamStdout, 0); got != string(want) {
			t.Fatalf("after %d pieces: %d bytes, want %d", i, len(got), len(want))
		}
	}
	j.Close()
	own := filepath.Join(dir, "sb-1", "p-1.stdout")
	if fi, err := os.Stat(own); err != nil || fi.Size() != int64(len(want)) {
		t.Fatalf("the stream's file: %v %v", fi, err)
	}
	j = open(t, dir, Options{})
	if have := create(t, j).Offsets()[sos.StreamOut]; have != 0 {
		t.Fatalf("a stream that was never written has %d bytes", have)
	}
	if have := create(t, j).Offsets()[sos.StreamStdout]; have != int64(len(want)) {
		t.Fatalf("have %d of %d", have, len(want))
	}
}

// The server is killed while it copies short output to a file: the log still has
// it, and nothing was told of the file yet.
func TestInterruptedCopyIsMadeAgain(t *testing.T) {
	for _, copied := range []int64{0, 3, 10} {
		dir := t.TempDir()
		j := open(t, dir, Options{})
		if err := create(t, j).Append(sos.StreamOut, 0, []byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		j.Close()
		if err := os.WriteFile(filepath.Join(dir, "sb-1", "p-1.out"), []byte("0123456789")[:copied], 0o600); err != nil {
			t.Fatal(err)
		}
		j = open(t, dir, Options{})
		r := create(t, j)
		if err := r.Append(sos.StreamOut, 10, []byte("ab")); err != nil {
			t.Fatal(err)
		}
		if got := read(t, j, sos.StreamOut, 0); got != "0123456789ab" {
			t.Fatalf("%d bytes copied: read %q", copied, got)
		}
	}
}

func TestLimitOfASandbox(t *testing.T) {
	dir := t.TempDir()
	for i, id := range []string{"p-1", "p-2", "p-3"} { // each by a server of its own
		j := open(t, dir, Options{MaxSandbox: 100})
		r, err := j.Create("sb-1", id)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Append(sos.StreamOut, 0, bytes.Repeat([]byte("x"), 60)); err != nil {
			t.Fatal(err)
		}
		if got, want := r.Output()[0].Bytes, []int64{60, 40, 0}[i]; got != want || r.Output()[0].Seen != 60 {
			t.Fatalf("%s keeps %+v, want %d of 60", id, r.Output(), want)
		}
		j.Close()
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add(Entry{Time: time.Unix(1, 2), Process: "p-1", Stream: sos.StreamStderr, Offset: 3, Length: 4, Skipped: true, where: skipped}.append(nil))
	f.Add(append([]byte("SJ"), strings.Repeat("\xff", 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, size := parseEntry(b)
		if size == 0 {
			return
		}
		again := e.append(nil)
		if e2, n := parseEntry(again); n != size || e2 != e || n != len(again) {
			t.Fatalf("%+v became %+v", e, e2)
		}
	})
}
