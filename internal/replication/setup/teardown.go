// Teardown: it drops slot, publication and the schema cdc_relay, except what is not ours or what
// another relay still needs.

package setup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Teardown drops the slot, the publication (if the relay created it and no other relay slot uses
// it) and our rows about them, and the schema cdc_relay if they were the last. It refuses while the
// slot is active and, unless forced, while events are deferred or dead letters open. It keeps a
// slot that is not ours. What was committed and not delivered is then only in the outbox table.
func Teardown(ctx context.Context, c source.Config, force bool) error {
	if err := c.Validate(); err != nil {
		return err
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := schema.Verify(ctx, pool, schema.Trust{Replication: true}); err != nil {
		return err
	}
	have, err := schema.Version(ctx, pool)
	if err != nil {
		return err
	}
	if err := dropOurSlot(ctx, pool, &c, have, force); err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return dropObjects(ctx, tx, &c, have) })
	if source.SQLState(err) == "42501" {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "rights", Err: err,
			What: "the slot was dropped, but this role may not drop the rest",
			Fix:  "run `cdc-relay teardown` again with source.url naming a superuser, or the role that owns the publication and may become " + schema.OwnerRole,
		}
	}
	return err
}

// dropOurSlot drops the slot if it is of this database and our record shows that a relay has used
// it. Somebody may still need any other slot of that name: without a record it is an error, and
// with one the slot is kept and the rest is torn down. have is the version of the schema cdc_relay,
// 0 if it does not exist.
func dropOurSlot(ctx context.Context, pool *pgxpool.Pool, c *source.Config, have int, force bool) error {
	view, err := slot.ReadView(ctx, pool, c.Slot)
	if err != nil {
		return err
	}
	undelivered := func() error {
		if have == 0 || force {
			return nil
		}
		return refuseUndelivered(ctx, pool, c.Slot)
	}
	if view == nil {
		return undelivered()
	}
	var rec *slot.Record
	if have > 0 {
		if rec, err = slot.ReadRecord(ctx, pool, c.Slot); err != nil {
			return err
		}
	}
	var database string
	if err := pool.QueryRow(ctx, `SELECT current_database()`).Scan(&database); err != nil {
		return fmt.Errorf("read current_database: %w", err)
	}
	why := view.NotOurs(database)
	switch {
	case rec == nil && why == "":
		stop := source.ForeignSlot(c, "has no row in cdc_relay.slots, so no relay has used it: it is not ours to drop")
		stop.Fix = source.DropSlotHint(c.Slot)
		return stop
	case rec == nil:
		return source.ForeignSlot(c, why+": it is not ours to drop")
	case why != "":
		c.Log.Warn("slot kept: it is not ours", zap.String("slot", c.Slot), zap.String("reason", why))
		return undelivered()
	case view.HalfMade():
		return slot.BeingMadeStop(ctx, pool, view)
	case view.Active():
		return &event.Stop{
			Code: event.ExitFailure, Reason: "slot_active",
			What: fmt.Sprintf("slot %q is active for %q (pid %d)", c.Slot, view.Holder, view.ActivePID), Fix: "stop it first",
		}
	}
	if err := undelivered(); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, c.Slot); err != nil {
		return fmt.Errorf("drop slot %q: %w", c.Slot, err)
	}
	c.Log.Info("slot dropped", zap.String("slot", c.Slot), zap.Stringer("lsn", view.ConfirmedFlush))
	return nil
}

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
		Fix:  "let the relay deliver them, or list them with `cdc-relay deferred list` and `cdc-relay dead-letters list`; --force deletes them",
	}
}

// dropOurPublication drops the publication if a relay created it and no other relay slot uses it.
func dropOurPublication(ctx context.Context, tx pgx.Tx, c *source.Config, readers int) error {
	var comment string
	err := tx.QueryRow(ctx, `SELECT coalesce(obj_description(oid, 'pg_publication'), '') FROM pg_publication WHERE pubname = $1`, c.Publication).
		Scan(&comment)
	switch {
	case source.IsNoRows(err):
		return nil
	case err != nil:
		return fmt.Errorf("read pg_publication: %w", err)
	case readers > 0:
		c.Log.Info("publication kept: another slot uses it", zap.String("publication", c.Publication))
		return nil
	case comment != schema.MadeByRelay:
		c.Log.Info("publication kept: it was not created by a relay", zap.String("publication", c.Publication),
			zap.String("fix", "if nobody needs it: DROP PUBLICATION "+source.QuoteName(c.Publication)))
		return nil
	}
	if _, err := tx.Exec(ctx, "DROP PUBLICATION "+source.QuoteName(c.Publication)); err != nil {
		return fmt.Errorf("drop publication %q: %w", c.Publication, err)
	}
	return nil
}

// dropObjects drops everything of ours but the slot, except what another relay's slot needs. have
// is the version of the schema cdc_relay, 0 if it does not exist.
func dropObjects(ctx context.Context, tx pgx.Tx, c *source.Config, have int) error {
	var slots, readers int // that are left, and of them those read with the same publication
	if have > 0 {
		if err := schema.BecomeOwner(ctx, tx); err != nil {
			return err
		}
		// the audit is kept for as long as the schema is
		var open []int64
		if err := tx.QueryRow(ctx, `SELECT array(SELECT id FROM cdc_relay.gap WHERE slot = $1 AND recovered_at IS NULL ORDER BY id LIMIT 10)`, c.Slot).Scan(&open); err != nil {
			return fmt.Errorf("read cdc_relay.gap: %w", err)
		}
		if len(open) > 0 {
			c.Log.Warn("accepted gaps were open: which of their rows were not sent is known no more, they are in the outbox table only", zap.Int64s("gaps", open))
		}
		for _, table := range []string{"retry", "dead_letter", "request", "bulk", "gap"} {
			if _, err := tx.Exec(ctx, "DELETE FROM cdc_relay."+table+" WHERE slot = $1", c.Slot); err != nil {
				return fmt.Errorf("delete from cdc_relay.%s: %w", table, err)
			}
		}
		if err := slot.ForgetRecord(ctx, tx, c.Slot); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE publication = $1) FROM cdc_relay.slots`, c.Publication).
			Scan(&slots, &readers)
		if err != nil {
			return fmt.Errorf("read cdc_relay.slots: %w", err)
		}
		if _, err := tx.Exec(ctx, "SET LOCAL ROLE NONE"); err != nil {
			return fmt.Errorf("set role: %w", err)
		}
	}
	if err := dropOurPublication(ctx, tx, c, readers); err != nil {
		return err
	}
	if have == 0 || slots > 0 {
		return nil
	}
	if err := schema.BecomeOwner(ctx, tx); err != nil {
		return err
	}
	var others int
	if err := tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM cdc_relay.retry) + (SELECT count(*) FROM cdc_relay.dead_letter WHERE state = 'open')`).Scan(&others); err != nil {
		return fmt.Errorf("count what other slots have in schema cdc_relay: %w", err)
	}
	if others > 0 {
		c.Log.Warn("schema cdc_relay kept: it has deferred events or open dead letters of other slots", zap.Int("rows", others))
		return nil
	}
	if _, err := tx.Exec(ctx, `DROP SCHEMA cdc_relay CASCADE`); err != nil {
		return fmt.Errorf("drop schema cdc_relay: %w", err)
	}
	c.Log.Info("schema cdc_relay dropped: no slot is left in it")
	return nil
}
