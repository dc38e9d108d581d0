package replication

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// What teardown and check have to know of the siding's tables. Whoever reads or writes them otherwise is internal/retry and
// internal/dlq.

// sidingVersion is the migration that made the tables.
const sidingVersion = 2

// refuseUndelivered keeps teardown from dropping the only copies of events: those that are parked, and dead letters that are open.
func refuseUndelivered(ctx context.Context, q querier, slot string) error {
	var parked, open int64
	err := q.QueryRow(ctx, `SELECT (SELECT count(*) FROM cdc_relay.retry WHERE slot = $1),
		(SELECT count(*) FROM cdc_relay.dead_letter WHERE slot = $1 AND state = 'open')`, slot).Scan(&parked, &open)
	if err != nil {
		return fmt.Errorf("read cdc_relay.retry: %w", err)
	}
	if parked+open == 0 {
		return nil
	}
	return &outbox.Stop{
		Code: outbox.ExitFailure, Reason: "undelivered",
		What: fmt.Sprintf("%d events are parked and %d dead letters are open: with their rows the relay's copies of them would go", parked, open),
		Mend: "see them with `cdc-relay deferred list` and `cdc-relay dead-letters list`, or say --force",
	}
}

// forgetSiding removes the rows of a slot that is torn down.
func forgetSiding(ctx context.Context, tx pgx.Tx, slot string) error {
	for _, table := range []string{"retry", "dead_letter", "request", "bulk", "audit"} {
		if _, err := tx.Exec(ctx, "DELETE FROM cdc_relay."+table+" WHERE slot = $1", slot); err != nil {
			return fmt.Errorf("delete from cdc_relay.%s: %w", table, err)
		}
	}
	return nil
}

// siding names rows that came with a copy of another database: they are not sent, and nobody should wait for them.
func (k *checker) siding(ctx context.Context, systemID string) {
	rows, err := k.pool.Query(ctx, `SELECT system_id || ' (' || count(*) FILTER (WHERE parked) || ' parked, ' || count(*) FILTER (WHERE NOT parked) || ' dead letters)'
		FROM (SELECT system_id, true AS parked FROM cdc_relay.retry WHERE slot = $1
			UNION ALL SELECT system_id, false FROM cdc_relay.dead_letter WHERE slot = $1 AND state = 'open') r
		WHERE system_id <> $2 GROUP BY system_id ORDER BY system_id`, k.c.Slot, systemID)
	var foreign []string
	if err == nil {
		foreign, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	switch {
	case err != nil:
		k.add("parked events", "", fmt.Errorf("read cdc_relay.retry: %w", err))
	case len(foreign) == 0:
		k.add("parked events", "all of this system", nil)
	default:
		k.warn("parked events", "rows of another system are not sent: system "+strings.Join(foreign, ", system "),
			"this database is a copy of theirs: if that is so, delete them: "+
				fmt.Sprintf("DELETE FROM cdc_relay.retry WHERE slot = %s AND system_id <> %s", quoteText(k.c.Slot), quoteText(systemID)))
	}
}
