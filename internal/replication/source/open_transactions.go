// Transactions that are open, for those who wait for their end.

package source

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// OpenTransaction is a transaction with writes that has not ended.
type OpenTransaction struct {
	PID                         int32  // of its process; 0: it is prepared
	GID                         string // of a prepared one
	Database, Role, Application string
	// when it began, or was prepared; nil: it is another role's, and ours may not read all
	// statistics
	Since *time.Time
	Later int64 // transactions that have begun since
}

// String describes it for people.
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

// fix ends it.
func (t OpenTransaction) fix() string {
	if t.PID == 0 {
		return fmt.Sprintf("COMMIT PREPARED %s, or ROLLBACK PREPARED %[1]s, in database %s", QuoteText(t.GID), t.Database)
	}
	return fmt.Sprintf("SELECT pg_terminate_backend(%d)", t.PID)
}

// MostOpen is how many transactions are named.
const MostOpen = 3

// OpenText names at most MostOpen transactions, and says how many more there are.
func OpenText(list []OpenTransaction) string {
	var names []string
	for _, t := range list[:min(len(list), MostOpen)] {
		names = append(names, t.String())
	}
	more := ""
	if len(list) > MostOpen {
		more = fmt.Sprintf(", and %d more", len(list)-MostOpen)
	}
	return strings.Join(names, "; ") + more
}

// EndOpen is how an operator ends those that OpenText names.
func EndOpen(list []OpenTransaction) string {
	var fixes []string
	for _, t := range list[:min(len(list), MostOpen)] {
		fixes = append(fixes, t.fix())
	}
	return "end them in their applications, or: " + strings.Join(fixes, "; ")
}

// OpenTransactions are those with writes that are open in the cluster, or here, in this database,
// the oldest first.
func OpenTransactions(ctx context.Context, q Querier, here bool) ([]OpenTransaction, error) {
	return openWhere(ctx, q, "NOT $1 OR database = current_database()", here)
}

// LongTransactions are those that are open in the cluster now and still a second later, and have
// been for that long, where our role may know. What is open for a moment only is not named.
func LongTransactions(ctx context.Context, q Querier, age time.Duration) ([]OpenTransaction, error) {
	var ids []string
	err := q.QueryRow(ctx, `SELECT coalesce(array_agg(xid::text), '{}') FROM (`+openSQL+`) t`).Scan(&ids)
	if err != nil {
		return nil, fmt.Errorf("read which transactions are open: %w", err)
	}
	if len(ids) == 0 || !Sleep(ctx, time.Second) {
		return nil, nil
	}
	return openWhere(ctx, q, "xid::text = ANY ($1::text[]) AND (since IS NULL OR since < now() - make_interval(secs => $2::float8))", ids, age.Seconds())
}

const openSQL = `SELECT 0 AS pid, gid, database, owner AS role, '' AS application, prepared AS since, transaction AS xid FROM pg_prepared_xacts
	UNION ALL SELECT pid, '', coalesce(datname, ''), coalesce(usename, ''), coalesce(application_name, ''), xact_start, backend_xid
	FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()`

// openWhere reads open transactions. Of another role's session PostgreSQL says all but since when.
func openWhere(ctx context.Context, q Querier, condition string, args ...any) ([]OpenTransaction, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	rows, err := q.Query(ctx, `SELECT pid, gid, database::text, role::text, application, since, age(xid) FROM (`+openSQL+`) t WHERE `+condition+` ORDER BY age(xid) DESC`, args...)
	if err != nil {
		return nil, fmt.Errorf("read which transactions are open: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t OpenTransaction, err error) {
		return t, row.Scan(&t.PID, &t.GID, &t.Database, &t.Role, &t.Application, &t.Since, &t.Later)
	})
	if err != nil {
		return nil, fmt.Errorf("read which transactions are open: %w", err)
	}
	return list, nil
}
