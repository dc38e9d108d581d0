package setup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// refuseUndelivered keeps teardown from dropping the only copies of events: those that are parked, and dead letters that are open.
func refuseUndelivered(ctx context.Context, q source.Querier, slot string) error {
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
