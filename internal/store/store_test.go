package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seaofsimulation/sos"
)

func open(t *testing.T) (*DB, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a dir?#%", "sos.db") // characters that a URI would eat
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, path
}

func reopen(t *testing.T, db *DB, path string) *DB {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

var day = time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC)

func ptr[T any](v T) *T { return &v }

// full has every stored field set.
func full(id string) sos.Sandbox {
	return sos.Sandbox{
		ID: id,
		SandboxSpec: sos.SandboxSpec{
			Name: "agent-" + id, Image: "ubuntu:latest", SetupCommands: []string{"cd /tmp", "a && b"},
			Limits: sos.Limits{CPU: 1.5, Memory: 1 << 30, Disk: 5 << 30, PIDs: 100},
			Env:    map[string]string{"A": "ä\n"}, Workdir: "/w", User: "u:g", Labels: map[string]string{"k": "v"},
			Timeout: sos.Duration(time.Hour), StartTimeout: sos.Duration(time.Minute),
		},
		Status: sos.StatusStarted, Desired: sos.DesiredStarted, Reason: sos.ReasonUser, Message: "m", ImageDigest: "sha256:1",
		CreatedAt: day, StartedAt: ptr(day.Add(1)), StoppedAt: ptr(day.Add(2)), ExpiresAt: ptr(day.Add(3)),
		SessionCommandCount: 7, LastStandaloneExitCode: ptr(-1),
	}
}

func fullProcess(sandbox, id string) sos.Process {
	return sos.Process{
		ID: id, Seq: 3, Sandbox: sandbox, Kind: sos.KindSession, Session: "default", Command: "echo \xff\x00é", Argv: []string{"a", "b c"},
		Status: sos.ProcessExited, CreatedAt: day, StartedAt: ptr(day.Add(1)), EndedAt: ptr(day.Add(2)), SinceStart: 5,
		Exit:             sos.Exit{ExitCode: ptr(137), Signal: "SIGKILL", Reason: sos.EndOOM, Message: "m", OOMKilled: true, ShellEnded: true, Survivors: true},
		SessionRestarted: true, Output: []sos.Output{{Stream: sos.StreamOut, Bytes: 1, Seen: 2, Truncated: true}},
	}
}

func TestRoundTripAndReopen(t *testing.T) {
	db, path := open(t)
	ctx := t.Context()
	want := full("sb-1")
	got, err := db.InsertSandbox(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	want.Seq = 1
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	p, bare := fullProcess("sb-1", "p-1"), sos.Process{ID: "p-2", Seq: 4, Sandbox: "sb-1", CreatedAt: day}
	s := sos.Session{Name: "default", Sandbox: "sb-1", Status: "exited", ExitCode: ptr(0), CreatedAt: day, EndedAt: ptr(day)}
	if err := errors.Join(db.PutProcess(ctx, p), db.PutProcess(ctx, bare), db.PutSession(ctx, s)); err != nil {
		t.Fatal(err)
	}
	db = reopen(t, db, path)
	list, err := db.Sandboxes(ctx)
	if d := cmp.Diff([]sos.Sandbox{want}, list); d != "" || err != nil {
		t.Fatal(d, err)
	}
	ps, err := db.Processes(ctx, "sb-1")
	if d := cmp.Diff([]sos.Process{p, bare}, ps); d != "" || err != nil {
		t.Fatal(d, err)
	}
	one, err := db.Process(ctx, "sb-1", "p-1")
	if d := cmp.Diff(p, one); d != "" || err != nil {
		t.Fatal(d, err)
	}
	if _, err := db.Process(ctx, "sb-2", "p-1"); sos.ErrorCode(err) != sos.CodeNotFound {
		t.Fatalf("process of another sandbox: %v", err)
	}
	ss, err := db.Sessions(ctx, "sb-1")
	if d := cmp.Diff([]sos.Session{s}, ss); d != "" || err != nil {
		t.Fatal(d, err)
	}
	if err := db.DeleteSession(ctx, "sb-1", "default"); err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteSandbox(ctx, "sb-1"); err != nil {
		t.Fatal(err)
	}
	if ps, err := db.Processes(ctx, "sb-1"); err != nil || len(ps) != 0 {
		t.Fatalf("processes after the sandbox: %v %v", ps, err)
	}
	if err := db.DeleteSandbox(ctx, "sb-1"); err != nil {
		t.Fatalf("second delete: %v", err)
	}
}

func TestNamesAreUniqueAndFreedByRemoval(t *testing.T) {
	db, _ := open(t)
	ctx := t.Context()
	for range 2 {
		if _, err := db.InsertSandbox(ctx, full("sb-1")); err != nil {
			t.Fatal(err)
		}
		other := full("sb-2")
		other.Name = "agent-sb-1"
		if _, err := db.InsertSandbox(ctx, other); sos.ErrorCode(err) != sos.CodeConflict {
			t.Fatalf("second sandbox of one name: %v", err)
		}
		nameless := full("sb-3")
		nameless.Name = ""
		fourth := nameless
		fourth.ID = "sb-4"
		for _, s := range []sos.Sandbox{nameless, fourth} {
			if _, err := db.InsertSandbox(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []string{"sb-1", "sb-3", "sb-4"} {
			if err := db.DeleteSandbox(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	db, _ := open(t)
	ctx := t.Context()
	if _, err := db.InsertSandbox(ctx, full("sb-1")); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	_, err := db.UpdateSandbox(ctx, "sb-1", func(s *sos.Sandbox) error { s.Status = sos.StatusFailed; return boom })
	if !errors.Is(err, boom) {
		t.Fatalf("got %v, want the error of fn", err)
	}
	list, err := db.Sandboxes(ctx)
	if err != nil || list[0].Status != sos.StatusStarted {
		t.Fatalf("after a failed update: %v %v", list, err)
	}
	if _, err := db.UpdateSandbox(ctx, "sb-9", func(*sos.Sandbox) error { return nil }); sos.ErrorCode(err) != sos.CodeNotFound {
		t.Fatalf("unknown sandbox: %v", err)
	}
	got, err := db.UpdateSandbox(ctx, "sb-1", func(s *sos.Sandbox) error {
		s.Status, s.StoppedAt, s.LastStandaloneExitCode, s.Name, s.Message = sos.StatusStopped, nil, nil, "", "gone"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err = db.Sandboxes(ctx)
	if d := cmp.Diff([]sos.Sandbox{got}, list); d != "" || err != nil {
		t.Fatal(d, err)
	}
}

// A late record of the start must not bring an ended process back to life, in
// whatever order the two arrive.
func TestAnEndedProcessStaysEnded(t *testing.T) {
	db, _ := open(t)
	ctx := t.Context()
	if _, err := db.InsertSandbox(ctx, full("sb-1")); err != nil {
		t.Fatal(err)
	}
	end := fullProcess("sb-1", "p-1")
	start := end
	start.Status, start.EndedAt, start.Exit, start.Output = sos.ProcessRunning, nil, sos.Exit{}, nil
	if err := errors.Join(db.PutProcess(ctx, end), db.PutProcess(ctx, start)); err != nil {
		t.Fatal(err)
	}
	if _, err := db.InsertSandbox(ctx, full("sb-2")); err != nil {
		t.Fatal(err)
	}
	stolen := fullProcess("sb-2", "p-1")
	stolen.Message = "mine"
	if err := db.PutProcess(ctx, stolen); sos.ErrorCode(err) != sos.CodeConflict {
		t.Fatalf("a process of another sandbox: %v", err)
	}
	got, err := db.Process(ctx, "sb-1", "p-1")
	if d := cmp.Diff(end, got); d != "" || err != nil {
		t.Fatal(d, err)
	}
}

// Many writers share commits; one that fails spoils nobody else's.
func TestConcurrentWritesAndBadNeighbours(t *testing.T) {
	db, _ := open(t)
	ctx := t.Context()
	if _, err := db.InsertSandbox(ctx, full("sb-1")); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			sandbox := "sb-1"
			if i%10 == 0 {
				sandbox = "sb-unknown" // refused by its foreign key
			}
			p := fullProcess(sandbox, fmt.Sprintf("p-%d", i))
			p.Seq = int64(i)
			if err := db.PutProcess(ctx, p); (err != nil) != (i%10 == 0) {
				t.Errorf("process %d: %v", i, err)
			}
		})
		wg.Go(func() {
			if _, err := db.TouchSandbox(ctx, "sb-1", func(s *sos.Sandbox) error { s.SessionCommandCount++; return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ps, err := db.Processes(ctx, "sb-1")
	if err != nil || len(ps) != 180 {
		t.Fatalf("%d processes, want 180 (%v)", len(ps), err)
	}
	list, err := db.Sandboxes(ctx)
	if err != nil || list[0].SessionCommandCount != 207 {
		t.Fatalf("count %d, want 207 (%v)", list[0].SessionCommandCount, err)
	}
}

func TestOrderOfSandboxes(t *testing.T) {
	db, _ := open(t)
	var want []string
	for i := range 20 {
		s := full(fmt.Sprintf("sb-%d", (i*7)%20))
		if _, err := db.InsertSandbox(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		want = append(want, s.ID)
	}
	list, err := db.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		got = append(got, s.ID)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Fatal(d)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	db, path := open(t)
	if _, err := db.write.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, err := Open(t.Context(), path); err == nil {
		t.Fatal("a newer schema was opened")
	}
}

func TestClosedAndCancelled(t *testing.T) {
	db, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.PutSession(ctx, sos.Session{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.PutProcess(t.Context(), sos.Process{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("closed: %v", err)
	}
}

func TestFileIsPrivate(t *testing.T) {
	_, path := open(t)
	for _, suffix := range []string{"", "-wal"} {
		fi, err := os.Stat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", suffix, fi.Mode())
		}
	}
}

func BenchmarkPutProcess(b *testing.B) {
	path := filepath.Join(b.TempDir(), "sos.db")
	db, err := Open(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if _, err := db.InsertSandbox(b.Context(), full("sb-1")); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		p := fullProcess("sb-1", fmt.Sprintf("p-%d", i))
		if err := db.PutProcess(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
}
