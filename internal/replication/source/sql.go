// What statements have in common: who can run them, how long an answer may take, and what an error
// of the server means.

package source

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is what a pool, a connection and a transaction have in common.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// AnswerTimeout bounds on our side what statement_timeout bounds on the server, in case the server
// stops answering.
const AnswerTimeout = 20 * time.Second

// SQLState is the SQLSTATE of a server error, "" for any other.
func SQLState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// IsNoRows reports whether err is, or wraps, pgx.ErrNoRows: the query found nothing.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// IsGoingAway reports whether an error may mean that the server or the connection is ending; then
// the end of the session tells more.
func IsGoingAway(err error) bool {
	code := SQLState(err)
	return code == "" || strings.HasPrefix(code, "57")
}
