package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// statements are those that a command or the life of a sandbox needs, prepared
// once on the writer's connection.
type statements map[string]*sql.Stmt

func (s *statements) prepare(ctx context.Context, h *sql.DB) error {
	*s = statements{}
	for _, text := range []string{putProcess, insertSandbox, selectSandbox, updateSandbox, deleteSandbox} {
		stmt, err := h.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		(*s)[text] = stmt
	}
	return nil
}

func (s statements) close() error {
	var errs []error
	for _, stmt := range s {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}

// in gives a statement for use in a transaction.
func (s statements) in(ctx context.Context, tx *sql.Tx, text string) *sql.Stmt {
	return tx.StmtContext(ctx, s[text])
}

// row is what *sql.Row and *sql.Rows share.
type row interface{ Scan(dest ...any) error }

func toNanos(t time.Time) int64 { return t.UTC().UnixNano() }

func toNanosPtr(t *time.Time) any {
	if t == nil {
		return nil
	}
	return toNanos(*t)
}

func fromNanos(n int64) time.Time { return time.Unix(0, n).UTC() }

func fromNanosPtr(n sql.NullInt64) *time.Time {
	if !n.Valid {
		return nil
	}
	t := fromNanos(n.Int64)
	return &t
}

func fromInt(n sql.NullInt64) *int {
	if !n.Valid {
		return nil
	}
	i := int(n.Int64)
	return &i
}

// toJSON gives NULL for an empty list.
func toJSON[T any](list []T) (any, error) {
	if len(list) == 0 {
		return nil, nil
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return string(b), nil
}

func fromJSON[T any](s sql.NullString, list *[]T) error {
	if !s.Valid {
		return nil
	}
	return json.Unmarshal([]byte(s.String), list)
}

// collect reads all rows of a query.
func collect[T any](ctx context.Context, h *sql.DB, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := h.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	list := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("store: read a row: %w", err), rows.Close())
		}
		list = append(list, v)
	}
	return list, errors.Join(rows.Err(), rows.Close())
}
