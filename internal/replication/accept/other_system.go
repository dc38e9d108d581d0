// Rows of another system, which were left to it when this server was accepted.

package accept

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// otherSystem is the system whose rows the ID is about, as check counts them; "": none.
func (a *acceptance) otherSystem(ctx context.Context) (string, error) {
	rows, err := a.pool.Query(ctx, `SELECT system_id, count(*), max(n) FROM (SELECT system_id, n FROM cdc_relay.retry WHERE slot = $1
		UNION ALL SELECT system_id, n FROM cdc_relay.dead_letter WHERE slot = $1 AND state = 'open') r WHERE system_id <> $2 GROUP BY system_id`,
		a.c.Slot, a.found.Server.SystemID)
	if err != nil {
		return "", fmt.Errorf("read cdc_relay.retry: %w", err)
	}
	var other, found string
	var count, last int64
	_, err = pgx.ForEachRow(rows, []any{&other, &count, &last}, func() error {
		if a.opt.ID == a.found.SystemID(other, count, last) {
			found = other
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read cdc_relay.retry: %w", err)
	}
	return found, nil
}

// system has rows of another system sent here, which were left when this server was accepted. A
// relay that leads has not counted them, and would let later events of their keys pass: it is
// fenced. Their incarnations are below the slot's, which became higher than all of them when it was
// adopted, so they come first.
func (a *acceptance) system(ctx context.Context, other string) error {
	switch {
	case a.opt.Delivered != "":
		return usage("--delivered is about the slot, and these are rows that wait", "leave it out")
	case !a.opt.SameData:
		return usage("these rows are of another system, and left to it already", "add --same-data to have them sent here, if this server has taken its place")
	}
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE cdc_relay.slots SET epoch = epoch + 1, changed_at = now() WHERE slot = $1`, a.c.Slot); err != nil {
			return fmt.Errorf("write cdc_relay.slots: %w", err)
		}
		if err := a.move(ctx, tx, other, a.found.Server.SystemID); err != nil {
			return err
		}
		a.result.Done = "rows of system " + other + " are sent by the next leader"
		return a.audit(ctx, tx, "this server takes the place of system "+other)
	})
}
