// What all statements of the replication packages have in common: who can run them, how long an
// answer may take, and what an error of the server means. Two questions that several waiting parts
// ask are here too: whether WAL is worth waiting for, and which transactions are open.

package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
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

// Question is a query for one row, which Scan runs.
type Question struct {
	ctx       context.Context
	q         Querier
	what, sql string
	args      []any
}

// Ask prepares a query for one row. Its Scan waits for AnswerTimeout at most, and an error of the
// query begins with what.
func Ask(ctx context.Context, q Querier, what, sql string, args ...any) Question {
	return Question{ctx, q, what, sql, args}
}

// Scan runs the query. If IsNoRows is true for its error, there is no row.
func (a Question) Scan(into ...any) error {
	ctx, cancel := context.WithTimeout(a.ctx, AnswerTimeout)
	defer cancel()
	return aboutStatement(a.what, a.q.QueryRow(ctx, a.sql, a.args...).Scan(into...))
}

// List is Ask for a statement that returns any number of rows. The function row scans each of them.
func List[T any](ctx context.Context, q Querier, what string, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, aboutStatement(what, err)
	}
	list, err := pgx.CollectRows(rows, row)
	return list, aboutStatement(what, err)
}

// Execute is Ask for a statement without rows: it returns how many rows the statement has changed.
func Execute(ctx context.Context, q Querier, what, sql string, args ...any) (changed int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	tag, err := q.Exec(ctx, sql, args...)
	return tag.RowsAffected(), aboutStatement(what, err)
}

// aboutStatement puts what in front of an error; nil stays nil.
func aboutStatement(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// SQLState is the SQLSTATE of a server's error; "" means that err is nil or another error.
func SQLState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// IsNoRows reports whether err is, or wraps, pgx.ErrNoRows: the query found nothing.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// IsGoingAway reports whether an error may mean that the server or the connection is ending. Then
// the end of the session tells more than this error.
func IsGoingAway(err error) bool {
	code := SQLState(err)
	return code == "" || strings.HasPrefix(code, "57")
}

// Sleep waits for d; it returns false if ctx was done before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// WalNoise is more bytes than an idle server writes after the last commit: two lists of the running
// transactions and a checkpoint, about 300 bytes, and as much for a raise of a relay's flush limit.
// No reader needs to read these.
const WalNoise = 2 << 10

// WALBeyond reports whether something was written between two positions that somebody may have to
// read. The server's noise does not count, nor does the rest of a file that was left empty: with
// archive_timeout an idle server begins the next file, once. segment is the size in bytes of a
// file, or 0 when it is not known.
func WALBeyond(segment uint64, lsn, end pglogrepl.LSN) bool {
	if end <= lsn+WalNoise {
		return false
	}
	if segment == 0 {
		return true
	}
	next := (uint64(lsn)/segment + 1) * segment
	return uint64(end) < next || uint64(end) > next+WalNoise
}

// OpenTransaction is a transaction with writes that has not ended.
type OpenTransaction struct {
	PID                         int32  // of its process; 0: it is prepared
	GID                         string // of a prepared one
	Database, Role, Application string
	// Since is when it began, or was prepared; nil means that it is another role's, and that our
	// role may not read all statistics
	Since *time.Time
	Later int64 // how many transactions have begun since
}

// String describes the transaction for people.
func (t OpenTransaction) String() string {
	text := fmt.Sprintf("process %d", t.PID)
	if t.PID == 0 {
		text = "prepared transaction " + QuoteText(t.GID)
	}
	if t.Role != "" {
		text += " of role " + t.Role
	}
	if t.Database != "" {
		text += " in database " + t.Database
	}
	if t.Application != "" {
		text += " (" + t.Application + ")"
	}
	if t.Since == nil {
		return text + fmt.Sprintf(", %d transactions ago", t.Later)
	}
	return text + ", since " + t.Since.UTC().Format(time.RFC3339)
}

// endSQL is the SQL that ends the transaction.
func (t OpenTransaction) endSQL() string {
	if t.PID == 0 {
		return fmt.Sprintf("COMMIT PREPARED %s, or ROLLBACK PREPARED %[1]s, in database %s", QuoteText(t.GID), t.Database)
	}
	return fmt.Sprintf("SELECT pg_terminate_backend(%d)", t.PID)
}

// MostOpenNamed is how many open transactions a message names.
const MostOpenNamed = 3

// OpenTransactionsText names at most MostOpenNamed transactions, and says how many more there are.
func OpenTransactionsText(list []OpenTransaction) string {
	var names []string
	for _, t := range list[:min(len(list), MostOpenNamed)] {
		names = append(names, t.String())
	}
	more := ""
	if len(list) > MostOpenNamed {
		more = fmt.Sprintf(", and %d more", len(list)-MostOpenNamed)
	}
	return strings.Join(names, "; ") + more
}

// EndTransactionsHint is how an operator ends the transactions that OpenTransactionsText names.
func EndTransactionsHint(list []OpenTransaction) string {
	var fixes []string
	for _, t := range list[:min(len(list), MostOpenNamed)] {
		fixes = append(fixes, t.endSQL())
	}
	return "end them in their applications, or: " + strings.Join(fixes, "; ")
}

// OpenTransactions are the transactions with writes that are open in the cluster, or if here is set
// in this database, the oldest first.
func OpenTransactions(ctx context.Context, q Querier, here bool) ([]OpenTransaction, error) {
	return readOpenTransactions(ctx, q, "NOT $1 OR database = current_database()", here)
}

// LongTransactions are the transactions that are open in the cluster both now and a second later,
// and that have been open for age, as far as our role may know. The second look leaves out what is
// open for a moment only.
func LongTransactions(ctx context.Context, q Querier, age time.Duration) ([]OpenTransaction, error) {
	var ids []string
	err := Ask(ctx, q, "read which transactions are open", `SELECT coalesce(array_agg(xid::text), '{}') FROM (`+openSQL+`) t`).Scan(&ids)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 || !Sleep(ctx, time.Second) {
		return nil, nil
	}
	return readOpenTransactions(ctx, q, "xid::text = ANY ($1::text[]) AND (since IS NULL OR since < now() - make_interval(secs => $2::float8))", ids, age.Seconds())
}

// openSQL reads the open transactions with writes: prepared ones, and those of sessions other than
// this one.
const openSQL = `SELECT 0 AS pid, gid, database, owner AS role, '' AS application, prepared AS since, transaction AS xid FROM pg_prepared_xacts
	UNION ALL SELECT pid, '', coalesce(datname, ''), coalesce(usename, ''), coalesce(application_name, ''), xact_start, backend_xid
	FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()`

// readOpenTransactions reads the open transactions that meet a condition. Of another role's session
// PostgreSQL does not say since when its transaction is open.
func readOpenTransactions(ctx context.Context, q Querier, condition string, args ...any) ([]OpenTransaction, error) {
	return List(ctx, q, "read which transactions are open", func(row pgx.CollectableRow) (t OpenTransaction, err error) {
		return t, row.Scan(&t.PID, &t.GID, &t.Database, &t.Role, &t.Application, &t.Since, &t.Later)
	}, `SELECT pid, gid, database::text, role::text, application, since, age(xid) FROM (`+openSQL+`) t WHERE `+condition+` ORDER BY age(xid) DESC`, args...)
}
