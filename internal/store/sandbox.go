package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seaofsimulation/sos"
)

const sandboxColumns = `id, seq, spec, desired, status, reason, message, image_digest,
	created_at, started_at, stopped_at, expires_at, session_command_count, last_standalone_exit_code`

const (
	insertSandbox = `INSERT INTO sandboxes (id, seq, name, spec, desired, status, reason, message, image_digest,
	created_at, started_at, stopped_at, expires_at, session_command_count, last_standalone_exit_code)
	VALUES (?, (SELECT coalesce(max(seq), 0) + 1 FROM sandboxes), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq`

	selectSandbox = `SELECT ` + sandboxColumns + ` FROM sandboxes WHERE id = ?`

	updateSandbox = `UPDATE sandboxes SET name = ?, spec = ?, desired = ?, status = ?, reason = ?, message = ?,
	image_digest = ?, started_at = ?, stopped_at = ?, expires_at = ?, session_command_count = ?,
	last_standalone_exit_code = ? WHERE id = ?`

	deleteSandbox = `DELETE FROM sandboxes WHERE id = ?`
)

// InsertSandbox records a new sandbox and gives it its Seq. Durable on return.
// sos.CodeConflict when its id or name is taken.
func (db *DB) InsertSandbox(ctx context.Context, s sos.Sandbox) (sos.Sandbox, error) {
	spec, err := json.Marshal(s.SandboxSpec)
	if err != nil {
		return s, fmt.Errorf("store: sandbox %s: %w", s.ID, err)
	}
	var seq int64 // of its own: when ctx ends first the writer still fills it
	err = db.submit(ctx, true, func(ctx context.Context, tx *sql.Tx) error {
		return db.stmts.in(ctx, tx, insertSandbox).QueryRowContext(ctx,
			s.ID, nullable(s.Name), string(spec), s.Desired, s.Status, s.Reason, s.Message, s.ImageDigest,
			toNanos(s.CreatedAt), toNanosPtr(s.StartedAt), toNanosPtr(s.StoppedAt), toNanosPtr(s.ExpiresAt),
			s.SessionCommandCount, s.LastStandaloneExitCode).Scan(&seq)
	})
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE {
		return s, &sos.Error{Code: sos.CodeConflict, Message: fmt.Sprintf("the name %q is taken", s.Name),
			Fix: "choose another name, or remove the sandbox that has it"}
	}
	if err != nil {
		return s, fmt.Errorf("store: insert sandbox %s: %w", s.ID, err)
	}
	s.Seq = seq
	return s, nil
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// UpdateSandbox lets fn change the stored sandbox and writes it back, alone with
// it. Durable on return. An error of fn changes nothing and is returned as it is.
// fn must not call the store. ID, Seq and the time of creation cannot change.
func (db *DB) UpdateSandbox(ctx context.Context, id string, fn func(*sos.Sandbox) error) (sos.Sandbox, error) {
	return db.editSandbox(ctx, id, true, fn)
}

// TouchSandbox is UpdateSandbox for what need not survive a power loss.
func (db *DB) TouchSandbox(ctx context.Context, id string, fn func(*sos.Sandbox) error) (sos.Sandbox, error) {
	return db.editSandbox(ctx, id, false, fn)
}

func (db *DB) editSandbox(ctx context.Context, id string, durable bool, fn func(*sos.Sandbox) error) (sos.Sandbox, error) {
	edited := make(chan sos.Sandbox, 2) // when ctx ends first the writer still sends, twice at most
	err := db.submit(ctx, durable, func(ctx context.Context, tx *sql.Tx) error {
		s, err := scanSandbox(db.stmts.in(ctx, tx, selectSandbox).QueryRowContext(ctx, id))
		if errors.Is(err, sql.ErrNoRows) {
			return sos.Errorf(sos.CodeNotFound, "Sandbox %s not found", id)
		}
		if err != nil {
			return fmt.Errorf("store: sandbox %s: %w", id, err)
		}
		if err := fn(&s); err != nil {
			return err
		}
		spec, err := json.Marshal(s.SandboxSpec)
		if err != nil {
			return fmt.Errorf("store: sandbox %s: %w", id, err)
		}
		_, err = db.stmts.in(ctx, tx, updateSandbox).ExecContext(ctx,
			nullable(s.Name), string(spec), s.Desired, s.Status, s.Reason, s.Message, s.ImageDigest,
			toNanosPtr(s.StartedAt), toNanosPtr(s.StoppedAt), toNanosPtr(s.ExpiresAt), s.SessionCommandCount,
			s.LastStandaloneExitCode, id)
		if err == nil {
			edited <- s
		}
		return err
	})
	var s sos.Sandbox
	for err == nil && len(edited) > 0 { // the last try is the one that was committed
		s = <-edited
	}
	return s, err
}

// DeleteSandbox deletes a sandbox with its sessions and processes; no error when
// there is none. It is not synced: that the sandbox is to go was recorded durably
// before, and the deletion is done again when it was lost.
func (db *DB) DeleteSandbox(ctx context.Context, id string) error {
	return db.submit(ctx, false, func(ctx context.Context, tx *sql.Tx) error {
		_, err := db.stmts.in(ctx, tx, deleteSandbox).ExecContext(ctx, id)
		return err
	})
}

// Sandboxes gives all sandboxes in the order of their creation.
func (db *DB) Sandboxes(ctx context.Context) ([]sos.Sandbox, error) {
	return collect(ctx, db.read, scanSandbox, `SELECT `+sandboxColumns+` FROM sandboxes ORDER BY seq`)
}

func scanSandbox(r row) (s sos.Sandbox, err error) {
	var spec string
	var created int64
	var started, stopped, expires, last sql.NullInt64
	err = r.Scan(&s.ID, &s.Seq, &spec, &s.Desired, &s.Status, &s.Reason, &s.Message, &s.ImageDigest,
		&created, &started, &stopped, &expires, &s.SessionCommandCount, &last)
	if err != nil {
		return s, err
	}
	s.CreatedAt, s.StartedAt, s.StoppedAt, s.ExpiresAt = fromNanos(created), fromNanosPtr(started), fromNanosPtr(stopped), fromNanosPtr(expires)
	s.LastStandaloneExitCode = fromInt(last)
	return s, json.Unmarshal([]byte(spec), &s.SandboxSpec)
}
