// Transactions that are open, for those who wait for their end.

package source

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// OpenTransactions names the oldest transactions with writes that are open in the cluster, or here,
// in this database, at most three, and how many more there are. PostgreSQL says nothing of another
// role's session but its process, unless ours may read all statistics.
func OpenTransactions(ctx context.Context, q Querier, here bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	rows, err := q.Query(ctx, `SELECT text FROM (
			SELECT transaction AS xid, format('prepared transaction %L of role %I in database %I, since %s', gid, owner, database, prepared::timestamptz(0)) AS text FROM pg_prepared_xacts WHERE NOT $1 OR database = current_database()
			UNION ALL SELECT backend_xid, format('process %s%s%s%s', pid, ' of role ' || usename, ' (' || nullif(application_name, '') || ')', ', since ' || xact_start::timestamptz(0))
			FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() AND (NOT $1 OR datname = current_database())) t
		ORDER BY age(xid) DESC`, here)
	if err != nil {
		return "", fmt.Errorf("read which transactions are open: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("read which transactions are open: %w", err)
	}
	more := ""
	if len(list) > 3 {
		more = fmt.Sprintf(", and %d more", len(list)-3)
		list = list[:3]
	}
	return strings.Join(list, "; ") + more, nil
}
