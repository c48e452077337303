package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/seaofsimulation/sos"
)

// PutSession records a session or what has become of it. What it runs and how
// many commands wait is not stored.
func (db *DB) PutSession(ctx context.Context, s sos.Session) error {
	err := db.submit(ctx, false, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO sessions (sandbox, name, status, exit_code, created_at, ended_at) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (sandbox, name) DO UPDATE SET status = excluded.status, exit_code = excluded.exit_code,
			created_at = excluded.created_at, ended_at = excluded.ended_at`,
			s.Sandbox, s.Name, s.Status, s.ExitCode, toNanos(s.CreatedAt), toNanosPtr(s.EndedAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("store: put session %s of %s: %w", s.Name, s.Sandbox, err)
	}
	return nil
}

// Sessions gives the sessions of a sandbox, oldest first.
func (db *DB) Sessions(ctx context.Context, sandbox string) ([]sos.Session, error) {
	return collect(ctx, db.read, func(r row) (s sos.Session, err error) {
		var created int64
		var code, ended sql.NullInt64
		err = r.Scan(&s.Sandbox, &s.Name, &s.Status, &code, &created, &ended)
		s.CreatedAt, s.EndedAt, s.ExitCode = fromNanos(created), fromNanosPtr(ended), fromInt(code)
		return s, err
	}, `SELECT sandbox, name, status, exit_code, created_at, ended_at FROM sessions WHERE sandbox = ? ORDER BY created_at, name`, sandbox)
}

// DeleteSession forgets a session; no error when there is none.
func (db *DB) DeleteSession(ctx context.Context, sandbox, name string) error {
	return db.submit(ctx, false, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM sessions WHERE sandbox = ? AND name = ?`, sandbox, name)
		return err
	})
}
