package journal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seaofsimulation/sos"
)

func open(t testing.TB, dir string, opt Options) *Journal {
	t.Helper()
	j, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func create(t testing.TB, j *Journal) *Record {
	t.Helper()
	r, err := j.Create("sb-1", "p-1")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t testing.TB, j *Journal, s sos.Stream, offset int64) string {
	t.Helper()
	var b bytes.Buffer
	end, err := j.Read(t.Context(), "sb-1", "p-1", s, offset, false, &b)
	if err != nil || end != offset+int64(b.Len()) {
		t.Fatalf("read %s from %d: end %d, %d bytes, %v", s, offset, end, b.Len(), err)
	}
	return b.String()
}

func TestAppendReadAndReopen(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(100, 5).UTC()
	j := open(t, dir, Options{Now: func() time.Time { return now }})
	r := create(t, j)
	if r2 := create(t, j); r2 != r {
		t.Fatal("a second record of a living process")
	}
	steps := []struct {
		s    sos.Stream
		off  int64
		data string
		bad  bool
	}{
		{s: sos.StreamStdout, off: 0, data: "hello"},
		{s: sos.StreamStderr, off: 0, data: "\x00\xff"},
		{s: sos.StreamStdout, off: 2, data: "llo wor"}, // partly known
		{s: sos.StreamStdout, off: 0, data: "hello"},   // known
		{s: sos.StreamStdout, off: 20, data: "x", bad: true},
		{s: sos.StreamStdout, off: -1, data: "x", bad: true},
		{s: "nope", off: 0, data: "x", bad: true},
		{s: sos.StreamStdout, off: 9, data: "ld"},
		{s: sos.StreamStdout, off: 11, data: ""},
	}
	for _, st := range steps {
		if err := r.Append(st.s, st.off, []byte(st.data)); (err != nil) != st.bad {
			t.Fatalf("append %q at %d of %s: %v", st.data, st.off, st.s, err)
		}
	}
	wantOut := []sos.Output{{Stream: sos.StreamStdout, Bytes: 11, Seen: 11}, {Stream: sos.StreamStderr, Bytes: 2, Seen: 2}}
	wantOff := map[sos.Stream]int64{sos.StreamStdout: 11, sos.StreamStderr: 2}
	entry := func(s sos.Stream, offset, length int64) Entry {
		return Entry{Time: now, Process: "p-1", Stream: s, Offset: offset, Length: length}
	}
	wantIdx := []Entry{entry(sos.StreamStdout, 0, 5), entry(sos.StreamStderr, 0, 2), entry(sos.StreamStdout, 5, 4), entry(sos.StreamStdout, 9, 2)}
	for range 3 { // alive; then by servers that come after one another
		if d := cmp.Diff(wantOut, r.Output()); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(wantOff, r.Offsets()); d != "" {
			t.Fatal(d)
		}
		idx, err := j.Entries("sb-1", "p-1")
		if d := cmp.Diff(wantIdx, idx, cmpopts.IgnoreUnexported(Entry{})); d != "" || err != nil {
			t.Fatal(d, err)
		}
		if got := read(t, j, sos.StreamStdout, 0) + read(t, j, sos.StreamStdout, 9) + read(t, j, sos.StreamStdout, 99) + read(t, j, sos.StreamOut, 0); got != "hello worldld" {
			t.Fatalf("read %q", got)
		}
		data, total, err := j.Head("sb-1", "p-1", sos.StreamStdout, 4)
		if string(data) != "hell" || total != 11 || err != nil {
			t.Fatalf("head %q %d %v", data, total, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, dir, Options{})
		r = create(t, j)
	}
}

func TestLimitIsExplicitAndSurvives(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{MaxProcess: 10})
	r := create(t, j)
	for i, s := range []string{"0123", "4567", "89ab", "cdef"} {
		if err := r.Append(sos.StreamOut, int64(4*i), []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	want := []sos.Output{{Stream: sos.StreamOut, Bytes: 10, Seen: 16, Truncated: true}}
	for range 2 {
		if d := cmp.Diff(want, r.Output()); d != "" {
			t.Fatal(d)
		}
		if got := read(t, j, sos.StreamOut, 0); got != "0123456789" {
			t.Fatalf("kept %q", got)
		}
		j.Close()
		j = open(t, dir, Options{MaxProcess: 1000}) // nothing is added behind a hole
		r = create(t, j)
	}
	if err := r.Append(sos.StreamOut, 16, []byte("more")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, j, sos.StreamOut, 0); got != "0123456789" {
		t.Fatalf("kept %q after a hole", got)
	}
}

func TestFollowersSeeEverythingAndEnd(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	r := create(t, j)
	var want []byte
	rng := rand.New(rand.NewPCG(1, 2))
	var wg sync.WaitGroup
	sums := make([][32]byte, 8)
	for i := range sums {
		wg.Go(func() {
			h := sha256.New()
			if _, err := j.Read(context.Background(), "sb-1", "p-1", sos.StreamOut, 0, true, h); err != nil {
				t.Error(err)
			}
			sums[i] = [32]byte(h.Sum(nil))
		})
	}
	for range 2000 {
		b := make([]byte, 1+rng.IntN(3000))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if err := r.Append(sos.StreamOut, int64(len(want)), b); err != nil {
			t.Fatal(err)
		}
		want = append(want, b...)
	}
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i, s := range sums {
		if s != sha256.Sum256(want) {
			t.Errorf("follower %d has other bytes", i)
		}
	}
	if data, total, err := j.Head("sb-1", "p-1", sos.StreamOut, len(want)); err != nil || total != int64(len(want)) || !bytes.Equal(data, want) {
		t.Fatalf("head of a finished record: %d of %d, %v", len(data), total, err)
	}
	if err := r.Finish(); err != nil {
		t.Fatalf("second finish: %v", err)
	}
}

// A reader that does not read holds nobody up.
func TestAStuckReaderHoldsNobodyUp(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	r := create(t, j)
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := j.Read(context.Background(), "sb-1", "p-1", sos.StreamOut, 0, true, pw)
		done <- err
	}()
	for i := range 100 {
		if err := r.Append(sos.StreamOut, int64(i), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
	pr.CloseWithError(errors.New("reader went away"))
	if err := <-done; err == nil {
		t.Fatal("the writer's error was lost")
	}
}

func TestCancelledFollower(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	create(t, j)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := j.Read(ctx, "sb-1", "p-1", sos.StreamOut, 0, true, io.Discard); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestRemoveEndsFollowersAndDropsTheRest(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, Options{})
	r := create(t, j)
	if err := r.Append(sos.StreamOut, 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := j.Read(context.Background(), "sb-1", "p-1", sos.StreamOut, 0, true, io.Discard)
		done <- err
	}()
	if err := j.RemoveSandbox("sb-1"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := r.Append(sos.StreamOut, 1, []byte("y")); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Fatalf("left: %v %v", left, err)
	}
	if err := j.RemoveSandbox("sb-1"); err != nil {
		t.Fatal(err)
	}
}

func TestIDsCannotLeaveTheFolder(t *testing.T) {
	j := open(t, t.TempDir(), Options{})
	for _, id := range []string{"", ".", "..", "a/b", "/etc", "a\x00", ".hidden"} {
		if _, err := j.Create(id, "p"); sos.ErrorCode(err) != sos.CodeInvalid {
			t.Errorf("create %q: %v", id, err)
		}
		if _, err := j.Create("s", id); sos.ErrorCode(err) != sos.CodeInvalid {
			t.Errorf("create process %q: %v", id, err)
		}
		if err := j.RemoveSandbox(id); sos.ErrorCode(err) != sos.CodeInvalid {
			t.Errorf("remove %q: %v", id, err)
		}
		if _, err := j.Read(t.Context(), id, "p", sos.StreamOut, 0, false, io.Discard); sos.ErrorCode(err) != sos.CodeInvalid {
			t.Errorf("read %q: %v", id, err)
		}
	}
}

// A full disk costs output, never the process: the rest is counted.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	j := open(t, dir, Options{})
	r := create(t, j)
	var failed bool
	for i := range 40 {
		err := r.Append(sos.StreamOut, int64(i)*4096, bytes.Repeat([]byte{'a' + byte(i%26)}, 4096))
		failed = failed || errors.Is(err, syscall.ENOSPC)
	}
	out := r.Output()
	if !failed || len(out) != 1 || !out[0].Truncated || out[0].Seen != 40*4096 {
		t.Fatalf("failed %v, output %+v", failed, out)
	}
	if got := read(t, j, sos.StreamOut, 0); int64(len(got)) != out[0].Bytes {
		t.Fatalf("kept %d, counted %d", len(got), out[0].Bytes)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 256 << 10} {
		b.Run(sos.Size(size).String(), func(b *testing.B) {
			j := open(b, b.TempDir(), Options{MaxProcess: 4 << 30})
			r := create(b, j)
			data := make([]byte, size)
			b.SetBytes(int64(size))
			var off int64
			for b.Loop() {
				if err := r.Append(sos.StreamOut, off, data); err != nil {
					b.Fatal(err)
				}
				off += int64(size)
			}
		})
	}
}

func BenchmarkShortCommand(b *testing.B) {
	j := open(b, b.TempDir(), Options{})
	for b.Loop() {
		r, err := j.Create("sb-1", sos.NewID(sos.ProcessIDPrefix, nil))
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Append(sos.StreamOut, 0, []byte("hello\n")); err != nil {
			b.Fatal(err)
		}
		if err := r.Finish(); err != nil {
			b.Fatal(err)
		}
	}
}
