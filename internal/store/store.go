// Package store keeps what must outlive the server in one SQL database: what is
// wanted and what was observed of each sandbox, its sessions and its processes.
// Output is not here but in the journal.
//
// All writes go through one goroutine that puts whatever waits into a single
// transaction: a hundred commands that end at once cost one commit. A write is
// either durable (it survives a power loss when it returns) or it survives the
// death of our processes only; sandboxes are durable, processes are not.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrClosed is what a call on a closed DB gives.
var ErrClosed = errors.New("store: closed")

// DB is an open store. Its methods are safe for concurrent use.
type DB struct {
	read  *sql.DB
	write *sql.DB // one connection, used by the writer only
	stmts statements

	jobs   chan *job
	closed chan struct{} // closed first: no more jobs are taken
	once   sync.Once
	writer sync.WaitGroup
}

// Open opens the database at path, makes it when there is none, and brings its
// schema up to date. A schema that is newer than this build is refused.
func Open(ctx context.Context, path string) (*DB, error) {
	// The file holds commands of users: nobody else may read it.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	db := &DB{jobs: make(chan *job, 256), closed: make(chan struct{})}
	if err := db.open(ctx, path); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", path, err), db.closeHandles())
	}
	db.writer.Go(db.run)
	return db, nil
}

func (db *DB) open(ctx context.Context, path string) (err error) {
	if db.write, err = connect(path, 1); err != nil {
		return err
	}
	if err := migrate(ctx, db.write); err != nil {
		return err
	}
	if db.read, err = connect(path, 4); err != nil {
		return err
	}
	return db.stmts.prepare(ctx, db.write)
}

func connect(path string, conns int) (*sql.DB, error) {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(1)", "cache_size(-8000)",
	}}
	h, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	h.SetMaxOpenConns(conns)
	h.SetMaxIdleConns(conns)
	return h, nil
}

func migrate(ctx context.Context, h *sql.DB) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, h, dir)
	if err != nil {
		return err
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	sources := p.ListSources()
	if know := sources[len(sources)-1].Version; have > know {
		return fmt.Errorf("the schema is version %d and this build knows %d: use the newer sos that wrote it", have, know)
	}
	_, err = p.Up(ctx)
	return err
}

// Close waits for the writes under way and closes the database.
func (db *DB) Close() error {
	db.once.Do(func() { close(db.closed) })
	db.writer.Wait()
	return db.closeHandles()
}

func (db *DB) closeHandles() error {
	var errs []error
	errs = append(errs, db.stmts.close())
	for _, h := range []*sql.DB{db.read, db.write} {
		if h != nil {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(errs...)
}
