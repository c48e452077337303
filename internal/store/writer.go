package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seaofsimulation/sos"
)

// maxBatch bounds how many writes share a transaction, so that none waits long.
const maxBatch = 128

// job is one write. do runs on the writer's goroutine inside a transaction and
// may run a second time, alone, when it spoiled a shared one.
type job struct {
	do      func(ctx context.Context, tx *sql.Tx) error
	durable bool
	done    chan error
}

// submit hands do to the writer and waits for the commit. When ctx ends first
// the write may still happen.
func (db *DB) submit(ctx context.Context, durable bool, do func(context.Context, *sql.Tx) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	j := &job{do: do, durable: durable, done: make(chan error, 1)}
	select {
	case <-db.closed: // before the queue: a closed store takes nothing
		return ErrClosed
	default:
	}
	select {
	case db.jobs <- j:
	case <-db.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run is the writer: it takes one job, adds all that wait, and commits.
func (db *DB) run() {
	for {
		select {
		case j := <-db.jobs:
			db.batch(db.gather(j))
		case <-db.closed:
			for { // what was accepted before the end is still written
				select {
				case j := <-db.jobs:
					db.batch(db.gather(j))
				default:
					return
				}
			}
		}
	}
}

func (db *DB) gather(first *job) []*job {
	batch := []*job{first}
	for len(batch) < maxBatch {
		select {
		case j := <-db.jobs:
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// batch commits all jobs together. When one fails, or the commit does, each is
// tried alone, so that nobody suffers from his neighbour.
func (db *DB) batch(jobs []*job) {
	err := db.commit(jobs)
	if err == nil || len(jobs) == 1 {
		for _, j := range jobs {
			j.done <- err
		}
		return
	}
	for _, j := range jobs {
		j.done <- db.commit([]*job{j})
	}
}

func (db *DB) commit(jobs []*job) (err error) {
	// Writes are not given up half-way for a caller that went away.
	ctx := context.Background()
	durable := false
	for _, j := range jobs {
		durable = durable || j.durable
	}
	if durable {
		// With FULL a commit syncs the write-ahead log; what earlier commits
		// wrote there becomes durable with it. It cannot change inside a
		// transaction.
		if _, err := db.write.ExecContext(ctx, "PRAGMA synchronous = FULL"); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		defer func() {
			_, e := db.write.ExecContext(ctx, "PRAGMA synchronous = NORMAL")
			err = errors.Join(err, e)
		}()
	}
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("store: begin: %w", err)
	}
	for _, j := range jobs {
		if err := j.do(ctx, tx); err != nil {
			return errors.Join(named(err), tx.Rollback())
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("store: commit: %w", named(err))
	}
	return nil
}

// named gives an error that people can do something about its words.
func named(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || e.Code()&0xff != sqlite3.SQLITE_FULL {
		return err
	}
	return &sos.Error{Code: sos.CodeUnavailable, Message: "the server's disk is full: nothing can be recorded",
		Fix: "make room in the data directory", Cause: err}
}
