package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Teardown drops the slot, the publication and our rows about them; the schema cdc_relay too when they were the last. It
// refuses while anybody holds the slot. What was committed and not delivered is then only in the outbox table.
func Teardown(ctx context.Context, c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	pool, err := connectPool(&c)
	if err != nil {
		return err
	}
	defer pool.Close()
	slot, err := readSlot(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	if slot != nil {
		if slot.ActivePID != 0 {
			return &outbox.Stop{
				Code: outbox.ExitFailure, Reason: "slot_held",
				What: fmt.Sprintf("slot %q is held by %q (pid %d)", c.Slot, slot.Holder, slot.ActivePID), Mend: "stop it first",
			}
		}
		if slot.Plugin != "pgoutput" {
			return foreignSlot(&c, fmt.Sprintf("is a %s slot of plugin %q, not ours", slot.Type, slot.Plugin))
		}
		if _, err := pool.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, c.Slot); err != nil {
			return fmt.Errorf("drop slot %q: %w", c.Slot, err)
		}
		c.Log.Info("slot dropped", zap.String("slot", c.Slot), zap.Stringer("lsn", slot.ConfirmedFlush))
	}
	if _, err := pool.Exec(ctx, "DROP PUBLICATION IF EXISTS "+quoteName(c.Publication)); err != nil {
		return fmt.Errorf("drop publication %q: %w", c.Publication, err)
	}
	have, err := schemaVersion(ctx, pool)
	if err != nil || have == 0 {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := forget(ctx, tx, c.Slot); err != nil {
			return err
		}
		var others bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM cdc_relay.slots)`).Scan(&others); err != nil {
			return fmt.Errorf("read cdc_relay.slots: %w", err)
		}
		if others {
			return nil
		}
		if _, err := tx.Exec(ctx, `DROP SCHEMA cdc_relay CASCADE`); err != nil {
			return fmt.Errorf("drop schema cdc_relay: %w", err)
		}
		c.Log.Info("schema cdc_relay dropped: no slot is left in it")
		return nil
	})
}
