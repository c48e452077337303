package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/guest"
)

var update = flag.Bool("update", false, "write the golden frames")

// samples has one message of each type, with every field set.
func samples() map[string]Message {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	code := 137
	exit := sos.Exit{ExitCode: &code, Signal: "SIGKILL", Reason: sos.EndOOM, Message: "why",
		OOMKilled: true, ShellEnded: true, Survivors: true}
	offsets := map[sos.Stream]int64{sos.StreamStdout: 7, sos.StreamStderr: 1 << 40}
	return map[string]Message{
		"hello": &Hello{1, 1, "v1", "client"},
		"start": &Start{guest.Command{ID: "p-1", Argv: []string{"sh", "-c", "é"}, Env: []string{"A=b"},
			Cwd: "/tmp", User: "u:g", Split: true, Stdin: []byte{0, 255}, Timeout: time.Second, Grace: 2 * time.Second}},
		"open_session": &OpenSession{guest.SessionSpec{Name: "default", Env: []string{"A=b"}, Cwd: "/", User: "0"}},
		"run_session": &RunSession{guest.SessionCommand{ID: "p-2", Session: "default", Text: "echo\n",
			Env: map[string]string{"A": "b=c", "B": ""}, Cwd: "/x", Stdin: []byte("in"), Timeout: time.Minute}},
		"interrupt":     &Interrupt{"default"},
		"close_session": &CloseSession{"default"},
		"signal":        &Signal{"p-1", 15},
		"cancel":        &Cancel{"p-1", sos.EndCancelled, time.Second},
		"ack":           &Ack{"p-1", sos.StreamOut, 1 << 33},
		"resume":        &Resume{"p-1", offsets},
		"release":       &Release{"p-1"},
		"shutdown":      &Shutdown{10 * time.Second},
		"ping":          &Ping{},
		"hello_reply":   &HelloReply{1, "v1", "instance", 3},
		"held": &Held{guest.ProcessInfo{ID: "p-1", Session: "s", Started: at, Offsets: offsets,
			Ends: offsets, Exited: true}},
		"reply":         &Reply{sos.CodeSessionExited, "gone", 42},
		"started":       &Started{"p-1", at},
		"output":        &Output{"p-1", sos.StreamStderr, 99, []byte("data")},
		"exited":        &Exited{"p-1", exit, at},
		"drained":       &Drained{"p-1"},
		"session_ended": &SessionEnded{"default", sos.Exit{}},
		"pong":          &Pong{},
		"superseded":    &Superseded{},
	}
}

func TestGolden(t *testing.T) {
	types := map[Type]string{}
	for name, m := range samples() {
		if other := types[m.Type()]; other != "" {
			t.Errorf("%s and %s have one type", name, other)
		}
		types[m.Type()] = name
		got := hex.EncodeToString(Append(nil, 300, m))
		path := filepath.Join("testdata", name+".hex")
		if *update {
			if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(want)) != got {
			t.Errorf("%s: frame is\n%s, golden\n%s", name, got, want)
		}
		raw, err := hex.DecodeString(strings.TrimSpace(string(want)))
		if err != nil {
			t.Fatal(err)
		}
		back := read(t, raw, MaxAnswer, 300)
		if diff := cmp.Diff(m, back); diff != "" {
			t.Errorf("%s comes back different:\n%s", name, diff)
		}
	}
	for n := range 256 {
		if m := empty(Type(n)); m != nil && types[Type(n)] == "" {
			t.Errorf("type %d has no golden frame", n)
		}
	}
}

func read(t testing.TB, raw []byte, limit int, call uint64) Message {
	t.Helper()
	r := NewReader(bytes.NewReader(raw), limit)
	f, err := r.Next()
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if f.Call != call {
		t.Fatalf("call %d, want %d", f.Call, call)
	}
	m, err := Decode(f)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatalf("after the last frame: %v", err)
	}
	return m
}

// TestCutFields feeds each message cut at every byte: an error, never a panic.
func TestCutFields(t *testing.T) {
	for name, m := range samples() {
		raw := Append(nil, 0, m)
		body := raw[header+2:]
		for n := range len(body) {
			if _, err := Decode(Frame{Type: m.Type(), Body: body[:n]}); err == nil {
				t.Errorf("%s cut to %d of %d bytes decodes", name, n, len(body))
			}
		}
		more := append(bytes.Clone(body), 1, 2, 3)
		if _, err := Decode(Frame{Type: m.Type(), Body: more}); err != nil {
			t.Errorf("%s with fields of a later version: %v", name, err)
		}
	}
}

func TestReaderAtAnySplit(t *testing.T) {
	var raw []byte
	var want []Message
	for _, m := range samples() {
		raw = Append(raw, 1, m)
		want = append(want, m)
	}
	for n := 1; n < 64; n++ {
		r := NewReader(&stutter{b: raw, n: n}, MaxRequest)
		for i, w := range want {
			f, err := r.Next()
			if err != nil {
				t.Fatalf("split %d frame %d: %v", n, i, err)
			}
			m, err := Decode(f)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(m, w) {
				t.Fatalf("split %d frame %d: %v, want %v", n, i, m, w)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("end: %v", err)
		}
	}
	r := NewReader(iotest.DataErrReader(bytes.NewReader(raw)), MaxRequest)
	for range want {
		if _, err := r.Next(); err != nil {
			t.Fatalf("with data and EOF at once: %v", err)
		}
	}
}

type stutter struct {
	b []byte
	n int
}

func (s *stutter) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b[:min(s.n, len(s.b))])
	s.b = s.b[n:]
	return n, nil
}

func TestLongRequest(t *testing.T) {
	for _, n := range []int{guest.MaxFrame - 40, guest.MaxFrame, guest.MaxFrame + 1, 3 << 20, guest.MaxText} {
		m := &RunSession{guest.SessionCommand{ID: "p-1", Session: "s", Text: strings.Repeat("x", n-1) + "y"}}
		raw := Append(nil, 9, m)
		if diff := cmp.Diff(Message(m), read(t, raw, MaxRequest, 9)); diff != "" {
			t.Errorf("%d bytes: differs", n)
		}
		if n > guest.MaxFrame {
			if _, err := NewReader(bytes.NewReader(raw), MaxAnswer).Next(); err != ErrTooLong {
				t.Errorf("a guest that joins frames: %v", err)
			}
		}
	}
}

func TestReaderLimits(t *testing.T) {
	for name, raw := range map[string][]byte{
		"huge length":  {0xff, 0xff, 0xff, 0xff, 1, 1},
		"over a frame": {0, 0x10, 0, 1, 1, 1},
		"no type":      {0, 0, 0, 1, 1},
		"empty":        {0, 0, 0, 0},
		"bad call":     {0, 0, 0, 3, 1, 0xff, 0xff},
	} {
		if f, err := NewReader(bytes.NewReader(raw), MaxAnswer).Next(); err == nil {
			t.Errorf("%s: %v", name, f)
		}
	}
	more := appendFrame(nil, 1, typeMore, make([]byte, guest.MaxFrame-16))
	endless := io.MultiReader(repeat(more, MaxRequest/len(more)+2)...)
	if _, err := NewReader(endless, MaxRequest).Next(); err != ErrTooLong {
		t.Errorf("endless More: %v", err)
	}
	if _, err := NewReader(bytes.NewReader([]byte{0, 0, 0, 9, 1}), MaxAnswer).Next(); err != io.ErrUnexpectedEOF {
		t.Errorf("cut frame: %v", err)
	}
}

func repeat(b []byte, n int) (out []io.Reader) {
	for range n {
		out = append(out, bytes.NewReader(b))
	}
	return out
}

func TestAppendOutput(t *testing.T) {
	frame, room := AppendOutput([]byte("before"), "p-1", Output{Stream: sos.StreamOut, Offset: 5}, 3)
	copy(room, "abc")
	want := Append([]byte("before"), 0, &Output{"p-1", sos.StreamOut, 5, []byte("abc")})
	if !bytes.Equal(frame, want) {
		t.Errorf("%x, want %x", frame, want)
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 40, MaxID)
		m := &Start{guest.Command{
			ID: text.Draw(t, "id"), Argv: rapid.SliceOfN(text, 1, 5).Draw(t, "argv"),
			Env: rapid.SliceOfN(text, 1, 5).Draw(t, "env"), Cwd: text.Draw(t, "cwd"), User: text.Draw(t, "user"),
			Split: rapid.Bool().Draw(t, "split"), Stdin: rapid.SliceOfN(rapid.Byte(), 1, 2000).Draw(t, "stdin"),
			Timeout: time.Duration(rapid.Int64Min(0).Draw(t, "timeout")),
			Grace:   time.Duration(rapid.Int64Min(0).Draw(t, "grace"))}}
		code := rapid.IntRange(0, 255).Draw(t, "code")
		e := &Exited{ID: m.ID, At: time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, "at")).UTC(),
			Exit: sos.Exit{ExitCode: &code, Reason: rapid.SampledFrom(reasons).Draw(t, "reason"), Message: m.Cwd}}
		call := rapid.Uint64().Draw(t, "call")
		raw := Append(Append(nil, call, m), call, e)
		r := NewReader(&stutter{b: raw, n: rapid.IntRange(1, 5000).Draw(t, "split")}, MaxRequest)
		for _, want := range []Message{m, e} {
			f, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(f)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || f.Call != call {
				t.Fatal(diff)
			}
		}
	})
}

// FuzzDecode: whatever the bytes, no panic, and what decodes encodes to a frame
// that decodes to the same.
func FuzzDecode(f *testing.F) {
	for _, m := range samples() {
		f.Add(Append(nil, 7, m))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := NewReader(bytes.NewReader(raw), MaxRequest)
		for {
			fr, err := r.Next()
			if err != nil {
				return
			}
			m, err := Decode(fr)
			if err != nil {
				continue
			}
			again := NewReader(bytes.NewReader(Append(nil, fr.Call, m)), MaxRequest)
			fr2, err := again.Next()
			if err != nil {
				t.Fatalf("own frame: %v", err)
			}
			m2, err := Decode(fr2)
			if err != nil || !reflect.DeepEqual(m, m2) {
				t.Fatalf("%#v became %#v (%v)", m, m2, err)
			}
		}
	})
}
