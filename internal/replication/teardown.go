package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Teardown drops the slot, the publication (unless another slot of ours is read with it) and our rows about them; the
// schema cdc_relay too when they were the last. It refuses while anybody holds the slot. What was committed and not
// delivered is then only in the outbox table.
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
	have, err := schemaVersion(ctx, pool)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return dropObjects(ctx, tx, &c, have > 0) })
	if pgCode(err) == "42501" {
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "rights", Err: err,
			What: "the slot is gone; this role may not drop the rest",
			Mend: "run `cdc-relay teardown` again with source.url naming the role that owns the publication and the schema cdc_relay",
		}
	}
	return err
}

// dropObjects drops all that is ours but the slot, except what another relay's slot needs. schema says whether cdc_relay
// is there.
func dropObjects(ctx context.Context, tx pgx.Tx, c *Config, schema bool) error {
	var slots, readers int // that are left, and of them those read with the same publication
	if schema {
		if err := forget(ctx, tx, c.Slot); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE publication = $1) FROM cdc_relay.slots`, c.Publication).
			Scan(&slots, &readers)
		if err != nil {
			return fmt.Errorf("read cdc_relay.slots: %w", err)
		}
	}
	if readers > 0 {
		c.Log.Info("publication kept: another slot is read with it", zap.String("publication", c.Publication))
	} else if _, err := tx.Exec(ctx, "DROP PUBLICATION IF EXISTS "+quoteName(c.Publication)); err != nil {
		return fmt.Errorf("drop publication %q: %w", c.Publication, err)
	}
	if !schema || slots > 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, `DROP SCHEMA cdc_relay CASCADE`); err != nil {
		return fmt.Errorf("drop schema cdc_relay: %w", err)
	}
	c.Log.Info("schema cdc_relay dropped: no slot is left in it")
	return nil
}
