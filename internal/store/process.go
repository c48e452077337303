package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/seaofsimulation/sos"
)

const processColumns = `id, sandbox, seq, kind, session, command, argv, status, created_at, started_at, ended_at, since_start,
	exit_code, signal, reason, message, oom_killed, shell_ended, survivors, session_restarted, output`

const putProcess = `INSERT INTO processes (` + processColumns + `)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (id) DO UPDATE SET status = excluded.status, started_at = excluded.started_at, ended_at = excluded.ended_at,
	exit_code = excluded.exit_code, signal = excluded.signal, reason = excluded.reason, message = excluded.message,
	oom_killed = excluded.oom_killed, shell_ended = excluded.shell_ended, survivors = excluded.survivors,
	session_restarted = excluded.session_restarted, output = excluded.output
	WHERE processes.sandbox = excluded.sandbox
	AND (processes.status NOT IN ('exited', 'lost') OR excluded.status IN ('exited', 'lost'))`

// PutProcess records a process, or what has become of it: of a known id only
// status, times of start and end, exit and output change, and an ended process
// never runs again, so a late record of the start does no harm. An id of another
// sandbox is refused. It returns when the record is committed.
func (db *DB) PutProcess(ctx context.Context, p sos.Process) error {
	argv, err := toJSON(p.Argv)
	if err != nil {
		return err
	}
	output, err := toJSON(p.Output)
	if err != nil {
		return err
	}
	err = db.submit(ctx, false, func(ctx context.Context, tx *sql.Tx) error {
		res, err := db.stmts.in(ctx, tx, putProcess).ExecContext(ctx,
			p.ID, p.Sandbox, p.Seq, p.Kind, p.Session, p.Command, argv, p.Status,
			toNanos(p.CreatedAt), toNanosPtr(p.StartedAt), toNanosPtr(p.EndedAt), int64(p.SinceStart),
			p.ExitCode, p.Signal, p.Reason, p.Message, p.OOMKilled, p.ShellEnded, p.Survivors, p.SessionRestarted, output)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n > 0 {
			return err
		}
		return owned(ctx, tx, p)
	})
	if err != nil {
		return fmt.Errorf("store: put process %s of %s: %w", p.ID, p.Sandbox, err)
	}
	return nil
}

// owned says why a record changed nothing: it was late, or it is not of this sandbox.
func owned(ctx context.Context, tx *sql.Tx, p sos.Process) error {
	var sandbox string
	if err := tx.QueryRowContext(ctx, `SELECT sandbox FROM processes WHERE id = ?`, p.ID).Scan(&sandbox); err != nil {
		return err
	}
	if sandbox != p.Sandbox {
		return sos.Errorf(sos.CodeConflict, "process %s is of another sandbox", p.ID)
	}
	return nil
}

// Processes gives the processes of a sandbox in their order.
func (db *DB) Processes(ctx context.Context, sandbox string) ([]sos.Process, error) {
	return collect(ctx, db.read, scanProcess, `SELECT `+processColumns+` FROM processes WHERE sandbox = ? ORDER BY seq`, sandbox)
}

// Process gives one process; sos.CodeNotFound when there is none.
func (db *DB) Process(ctx context.Context, sandbox, id string) (sos.Process, error) {
	p, err := scanProcess(db.read.QueryRowContext(ctx, `SELECT `+processColumns+` FROM processes WHERE sandbox = ? AND id = ?`, sandbox, id))
	if errors.Is(err, sql.ErrNoRows) {
		return p, sos.Errorf(sos.CodeNotFound, "Process %s not found", id)
	}
	if err != nil {
		return p, fmt.Errorf("store: process %s of %s: %w", id, sandbox, err)
	}
	return p, nil
}

func scanProcess(r row) (p sos.Process, err error) {
	var created int64
	var argv, output sql.NullString
	var started, ended, code sql.NullInt64
	err = r.Scan(&p.ID, &p.Sandbox, &p.Seq, &p.Kind, &p.Session, &p.Command, &argv, &p.Status, &created, &started, &ended, &p.SinceStart,
		&code, &p.Signal, &p.Reason, &p.Message, &p.OOMKilled, &p.ShellEnded, &p.Survivors, &p.SessionRestarted, &output)
	if err != nil {
		return p, err
	}
	p.CreatedAt, p.StartedAt, p.EndedAt, p.ExitCode = fromNanos(created), fromNanosPtr(started), fromNanosPtr(ended), fromInt(code)
	return p, errors.Join(fromJSON(argv, &p.Argv), fromJSON(output, &p.Output))
}
