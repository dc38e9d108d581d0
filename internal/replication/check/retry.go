// The check for deferred events and dead letters of another system, which came with a copy of its
// database: they are not sent.

package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pgx/v5"
)

// retryTable reports rows that came with a copy of another database: they are not sent, and nobody
// should wait for them.
func (k *checker) retryTable(ctx context.Context, systemID string) {
	rows, err := k.pool.Query(ctx, `SELECT system_id || ' (' || count(*) FILTER (WHERE deferred) || ' deferred, ' || count(*) FILTER (WHERE NOT deferred) || ' dead letters)'
		FROM (SELECT system_id, true AS deferred FROM cdc_relay.retry WHERE slot = $1
			UNION ALL SELECT system_id, false FROM cdc_relay.dead_letter WHERE slot = $1 AND state = 'open') r
		WHERE system_id <> $2 GROUP BY system_id ORDER BY system_id`, k.c.Slot, systemID)
	var foreign []string
	if err == nil {
		foreign, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	switch {
	case err != nil:
		k.add("deferred events", "", fmt.Errorf("read cdc_relay.retry: %w", err))
	case len(foreign) == 0:
		k.add("deferred events", "all of this system", nil)
	default:
		k.warn("deferred events", "rows of another system are not sent: system "+strings.Join(foreign, ", system "),
			"if this database is a copy of theirs, delete them: "+
				fmt.Sprintf("DELETE FROM cdc_relay.retry WHERE slot = %s AND system_id <> %s", source.QuoteText(k.c.Slot), source.QuoteText(systemID)))
	}
}
