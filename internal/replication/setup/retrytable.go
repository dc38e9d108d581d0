// What teardown does about the retry table: it refuses to delete the only copies of events, and
// removes the rows of the slot.

package setup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// refuseUndelivered keeps teardown from dropping the only copies of events: deferred events and
// open dead letters.
func refuseUndelivered(ctx context.Context, q source.Querier, slot string) error {
	var deferred, open int64
	err := q.QueryRow(ctx, `SELECT (SELECT count(*) FROM cdc_relay.retry WHERE slot = $1),
		(SELECT count(*) FROM cdc_relay.dead_letter WHERE slot = $1 AND state = 'open')`, slot).Scan(&deferred, &open)
	if err != nil {
		return fmt.Errorf("read cdc_relay.retry: %w", err)
	}
	if deferred+open == 0 {
		return nil
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "undelivered",
		What: fmt.Sprintf("%d events are deferred and %d dead letters are open: teardown would delete the relay's copies of them", deferred, open),
		Fix:  "list them with `cdc-relay deferred list` and `cdc-relay dead-letters list`, or use --force",
	}
}

// forgetRetryTable removes the rows of a slot that is torn down.
func forgetRetryTable(ctx context.Context, tx pgx.Tx, slot string) error {
	for _, table := range []string{"retry", "dead_letter", "request", "bulk", "audit"} {
		if _, err := tx.Exec(ctx, "DELETE FROM cdc_relay."+table+" WHERE slot = $1", slot); err != nil {
			return fmt.Errorf("delete from cdc_relay.%s: %w", table, err)
		}
	}
	return nil
}
