// The creation of publication and slot. A new slot does not send rows that were there before it, so
// they are counted in the slot's own snapshot and an operator is asked. A creation that cannot be
// finished is undone, because a slot that nobody reads keeps WAL.

package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// CreateSlot creates publication and slot and, if ask is set, refuses to go on if the tables have
// rows that the slot will not send. It counts them in the slot's own snapshot. A query before the
// slot exists would miss a row whose transaction is still open, and a query after it would count
// rows that the slot will deliver. Only the snapshot separates them exactly: the slot delivers none
// of the rows in it. was is what is remembered of a lost slot of the same name.
func CreateSlot(ctx context.Context, pool *pgxpool.Pool, stream *pgconn.PgConn, c *source.Config, id Identity, was schema.Sends, ask bool) error {
	if !c.Create {
		stop := &event.Stop{
			Code: event.ExitOperator, Reason: "slot_missing",
			What: fmt.Sprintf("slot %q does not exist and source.create is false", c.Slot),
			Fix:  source.NameHint("slot"),
		}
		if !ask { // its loss was accepted, so the name is right
			stop.Fix = source.MakeSlotSQL(c)
		}
		return stop
	}
	if err := CheckLeftOut(ctx, pool, c, was); err != nil {
		return err
	}
	if err := schema.EnsurePublication(ctx, pool, c); err != nil {
		return err
	}
	sent, err := schema.CheckPublication(ctx, pool, c, schema.Sends{})
	if err != nil {
		return err
	}
	if err := CheckReadable(ctx, pool, c); err != nil {
		return err
	}
	if ask {
		if err := refuseAbandoned(ctx, pool, c); err != nil {
			return err
		}
	}
	if err := BeginCreating(ctx, pool, c, id); err != nil {
		return err
	}
	made, none, err := Make(ctx, pool, stream, c)
	if none {
		return errors.Join(err, forgetUnmade(ctx, pool, c))
	}
	if err != nil {
		return err
	}
	slow := time.AfterFunc(time.Second, func() {
		c.Log.Info("counting the rows already in the outbox, which the new slot does not send: this is done once and takes long for a large table", zap.String("slot", c.Slot))
	})
	found, err := countInSnapshot(ctx, pool, c, made.Snapshot, isFromOtherSystem(was))
	slow.Stop()
	if err != nil {
		UndoCreation(ctx, pool, c)
		return err
	}
	if ask && found.rows > 0 && !c.NoBackfill {
		stop := &event.Stop{
			Code: event.ExitUsage, Reason: "backfill",
			What: fmt.Sprintf("the outbox (%s) already has %d rows: a new slot sends only what is committed from now on", c.TableNames(), found.rows),
			Fix:  "let what has sent these rows until now deliver them, and run `cdc-relay init --no-backfill` to create the slot and leave them unsent; or have the relay send them: `cdc-relay init --backfill`",
		}
		return errors.Join(stop, undoCreation(ctx, pool, c))
	}
	sent = sent.KeepForeign(was).AddRemembered(was)
	if found.rows > 0 {
		c.Log.Warn("rows that were in the outbox before the slot was created are not sent", zap.Int64("rows", found.rows), zap.String("slot", c.Slot))
	}
	sent.SetFirst(found.first)
	if err := makeReady(ctx, pool, c, id, sent, made.At, found.unsent); err != nil {
		return err
	}
	sent.LogForeign(ctx, pool, c)
	c.Log.Info("slot created", append(c.RelayedFields(), zap.String("slot", c.Slot), zap.String("publication", c.Publication),
		zap.Stringer("lsn", made.At))...)
	return nil
}

// Made is a slot that was just created.
type Made struct {
	At pglogrepl.LSN // its start: the slot sends what commits from here on
	// Snapshot is what the slot does not send: it sends every row that is not visible in this
	// snapshot, and no other
	Snapshot string
}

// Make creates the slot and exports its snapshot, which lives until the next command on stream.
//
// none means that the slot was certainly not created. After any other error it may exist: the
// answer was lost, or another relay's attempt came late. Rows from before it were never counted
// then. So the caller leaves the record as it is, and the slot is not mistaken for one made by
// hand.
func Make(ctx context.Context, q source.Querier, stream *pgconn.PgConn, c *source.Config) (made Made, none bool, err error) {
	done := watchCreation(ctx, q, stream, c)
	res, err := sendCreate(ctx, stream, c)
	done(err)
	switch {
	case source.SQLState(err) == "53400" || source.SQLState(err) == "42501":
		// no free slot, no right
		return made, true, CreateFailed(c, err)
	case err != nil:
		return made, false, fmt.Errorf("create slot %q: %w", c.Slot, err)
	}
	made.Snapshot = res.SnapshotName
	if made.At, err = pglogrepl.ParseLSN(res.ConsistentPoint); err != nil {
		return made, false, fmt.Errorf("create slot %q: consistent point: %w", c.Slot, err)
	}
	return made, false, nil
}

// sendCreate sends CREATE_REPLICATION_SLOT. pglogrepl has no option for a failover slot.
func sendCreate(ctx context.Context, stream *pgconn.PgConn, c *source.Config) (pglogrepl.CreateReplicationSlotResult, error) {
	if !c.MakesFailoverSlot(stream) {
		return pglogrepl.CreateReplicationSlot(ctx, stream, c.Slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{
			Mode: pglogrepl.LogicalReplication,
		})
	}
	// a slot's name has only a-z, 0-9 and _
	return pglogrepl.ParseCreateReplicationSlot(stream.Exec(ctx,
		fmt.Sprintf(`CREATE_REPLICATION_SLOT "%s" LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)`, c.Slot)))
}

// MakeFailover turns an existing slot that nobody holds into a failover slot, if
// source.failover_slot is on.
func MakeFailover(ctx context.Context, stream *pgconn.PgConn, c *source.Config, view *View) error {
	if c.FailoverSlot != source.FailoverOn || view.Failover {
		return nil
	}
	if _, err := stream.Exec(ctx, fmt.Sprintf(`ALTER_REPLICATION_SLOT "%s" (FAILOVER true)`, c.Slot)).ReadAll(); err != nil {
		return fmt.Errorf("make a failover slot of slot %q: %w", c.Slot, err)
	}
	c.Log.Info("the slot is a failover slot from now on", zap.String("slot", c.Slot))
	return nil
}

// CreateFailed adds the fix to an error of CREATE_REPLICATION_SLOT, where the error has a known
// one.
func CreateFailed(c *source.Config, err error) error {
	switch source.SQLState(err) {
	case "53400":
		return &event.Stop{
			Code: event.ExitFailure, Reason: "no_slot", Err: err,
			What: fmt.Sprintf("no free replication slot for %q", c.Slot),
			Fix:  "drop an unused one (SELECT slot_name, active FROM pg_replication_slots) or raise max_replication_slots and restart the server",
		}
	case "42501":
		return &event.Stop{
			Code: event.ExitFailure, Reason: "rights", Err: err,
			What: "this role may not create a replication slot", Fix: "ALTER ROLE " + source.QuoteName(c.Role()) + " REPLICATION",
		}
	}
	return fmt.Errorf("create slot %q: %w", c.Slot, err)
}

// Drop drops the slot that view shows, to make room for a new one; if view is nil there is nothing
// to drop. kind says in one word why, for the log. The caller holds the lock on the creation. So a
// slot that the server is still creating belongs to a relay that died, and its creation is ended.
func Drop(ctx context.Context, pool *pgxpool.Pool, c *source.Config, id Identity, view *View, kind string) error {
	if view == nil {
		return nil
	}
	if view.Database == id.Database && view.HalfMade() {
		if err := endCreation(ctx, pool, view); err != nil {
			return err
		}
		c.Log.Info("ended the creation of a slot by a relay that is gone", zap.String("slot", c.Slot), zap.Int32("pid", view.ActivePID))
		return nil
	}
	if view.Database == id.Database && view.Active() {
		return InUseError(c, view)
	}
	if why := view.NotOurs(id.Database); why != "" {
		return source.ForeignSlot(c, why)
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	if err := dropSlot(ctx, pool, c); err != nil {
		return fmt.Errorf("drop %s slot %q: %w", kind, c.Slot, err)
	}
	c.Log.Info("dropped a slot: "+kind, zap.String("slot", c.Slot))
	return nil
}

// dropSlot drops the slot, unless the lock on the creation was lost.
func dropSlot(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	tag, err := pool.Exec(ctx, `SELECT pg_drop_replication_slot($1) WHERE `+stillLocked(c), c.Slot)
	if err == nil && tag.RowsAffected() == 0 {
		return lockLost(c)
	}
	return err
}

// undoCreation drops the slot and only then its record. Without the record in state creating a slot
// that was left would be adopted, or taken for one made by hand.
func undoCreation(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	if err := dropSlot(ctx, pool, c); err != nil {
		return fmt.Errorf("drop slot %q again: %w", c.Slot, err)
	}
	return forgetUnmade(ctx, pool, c)
}

// UndoCreation tries to undo a creation that cannot be finished, because a slot that nobody reads
// retains all WAL from its position on. If that fails, the next start creates the slot again.
func UndoCreation(ctx context.Context, pool *pgxpool.Pool, c *source.Config) {
	undoDetached(ctx, c, func(ctx context.Context) error { return undoCreation(ctx, pool, c) })
}

// DropUnfinished is UndoCreation for a slot whose record stays as it is. It reports whether the
// slot is gone.
func DropUnfinished(ctx context.Context, pool *pgxpool.Pool, c *source.Config) bool {
	return undoDetached(ctx, c, func(ctx context.Context) error { return dropSlot(ctx, pool, c) })
}

// undoDetached calls do, which drops an unfinished slot, even if the relay was asked to stop. It
// logs an error, and reports whether do had none.
func undoDetached(ctx context.Context, c *source.Config, do func(context.Context) error) (done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoPatience)
	defer cancel()
	err := do(ctx)
	if err != nil {
		c.Log.Warn("failed to drop an unfinished slot: it retains WAL until the relay is started again or torn down",
			zap.String("slot", c.Slot), zap.Error(err))
	}
	return err == nil
}

// undoPatience is how long a stopping relay takes to drop an unfinished slot.
const undoPatience = 5 * time.Second

// watchCreation watches the creation of a slot on stream. If done is not called within a second, it
// logs which transactions the creation waits for. If the relay was asked to stop meanwhile, done
// also ends the server's part, which would wait on and keep WAL: PostgreSQL does not notice that
// its client has gone.
func watchCreation(ctx context.Context, q source.Querier, stream *pgconn.PgConn, c *source.Config) (done func(error)) {
	timer := time.AfterFunc(time.Second, func() {
		open, err := source.OpenTransactions(ctx, q, false)
		c.Log.Info("creating the slot waits for the transactions that are open now to end", zap.String("slot", c.Slot), zap.String("open", source.OpenTransactionsText(open)), zap.Error(err))
	})
	pid := stream.PID()
	return func(err error) {
		timer.Stop()
		if err == nil || ctx.Err() == nil {
			return
		}
		undoDetached(ctx, c, func(ctx context.Context) error {
			_, err := q.Exec(ctx, `SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity WHERE pid = $1 AND backend_type = 'walsender'`, int32(pid), undoPatience.Milliseconds())
			return err
		})
	}
}

// rowsBefore is what was in the tables before a new slot.
type rowsBefore struct {
	rows   int64  // visible in the slot's snapshot: the slot does not send them
	first  string // text of the slot's snapshot: see schema.OutboxTable.First
	unsent bool   // some of them are not known to be sent; false if that was not looked for
}

// countInSnapshot counts the rows that were visible in the slot's snapshot. If lookUnsent is set,
// it also looks among them for rows that are not known to be sent.
func countInSnapshot(ctx context.Context, pool *pgxpool.Pool, c *source.Config, snapshot string, lookUnsent bool) (found rowsBefore, err error) {
	err = sent.InOwnConnection(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+source.QuoteText(snapshot)); err != nil {
			return err
		}
		// nested loops would go through the sent set once per row, if its size is misjudged
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0; SET LOCAL enable_nestloop = off"); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT pg_current_snapshot()::text`).Scan(&found.first); err != nil {
			return err
		}
		for _, t := range c.Tables {
			// the pool sees what is committed now, the transaction what was when the slot was made
			if err := sent.LockTable(ctx, tx, pool, source.QuoteTable(t)); err != nil {
				return err
			}
			var rows int64
			if err := tx.QueryRow(ctx, "SELECT count(*) FROM "+source.QuoteTable(t)).Scan(&rows); err != nil {
				return err
			}
			if lookUnsent && rows > 0 && !found.unsent {
				if found.unsent, err = hasUnsent(ctx, pool, tx, c, t); err != nil {
					return err
				}
			}
			if err := sent.CheckTable(ctx, pool, source.QuoteTable(t)); err != nil {
				return err
			}
			found.rows += rows
		}
		return nil
	})
	if refusal, refused := sent.IsRefusal(err); refused {
		return rowsBefore{}, stopIfRefused(refusal)
	}
	if err != nil {
		return rowsBefore{}, fmt.Errorf("count rows in the outbox: %w", err)
	}
	return found, nil
}

// hasUnsent reports whether a table that tx may read has rows that are not known to be sent. If all
// newer rows have a value in the column for the transaction, rows without one are left out: they
// are older than the column, and nothing is known of them anyway.
func hasUnsent(ctx context.Context, pool *pgxpool.Pool, tx pgx.Tx, c *source.Config, t decode.Table) (yes bool, err error) {
	d, err := sent.Describe(ctx, pool, SentTable(t))
	if err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM (`+d.UnsentSQL(source.QuoteTable(t))+`) u WHERE tx IS NOT NULL OR NOT $3)`, c.Slot, d.Family, d.AllRowsTell()).Scan(&yes)
	return yes, err
}

// SentTable is a table as package sent names it.
func SentTable(t decode.Table) sent.Table {
	return sent.Table{Schema: t.Schema, Name: t.Name, ID: t.Mapping.ID.Any, Transaction: t.Mapping.Transaction.Any}
}

// CheckReadable checks in advance the rights that countInSnapshot needs, while there is no slot yet
// that would retain WAL. A policy must not hide rows from the count: with row_security off the
// server rejects the query of a role to which a policy applies.
func CheckReadable(ctx context.Context, q source.Querier, c *source.Config) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	for _, t := range c.Tables {
		var role string
		var may, policies bool
		err := source.Ask(ctx, q, "read rights on "+t.String(), `SELECT current_user, has_schema_privilege(relnamespace, 'USAGE') AND has_table_privilege(oid, 'SELECT'),
			row_security_active(oid) FROM pg_class WHERE oid = $1`, t.OID).Scan(&role, &may, &policies)
		if err != nil {
			return err
		}
		switch {
		case !may:
			return &event.Stop{
				Code: event.ExitFailure, Reason: "rights",
				What: fmt.Sprintf("role %q may not read table %s, whose rows are counted once, when the slot is created", role, t),
				Fix:  fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %[2]s", source.QuoteName(t.Schema), source.QuoteName(role), source.QuoteTable(t)),
			}
		case policies:
			return &event.Stop{
				Code: event.ExitFailure, Reason: "rights",
				What: fmt.Sprintf("row level security applies to role %q on table %s, whose rows are counted once, when the slot is created", role, t),
				Fix:  fmt.Sprintf("ALTER ROLE %s BYPASSRLS (it can be revoked once the slot exists)", source.QuoteName(role)),
			}
		}
		if err := sent.CheckTable(ctx, q, source.QuoteTable(t)); err != nil {
			return stopIfRefused(err)
		}
	}
	return nil
}

// stopIfRefused returns a Stop if err says that the relay must not read a table, and err otherwise.
func stopIfRefused(err error) error {
	refusal, ok := sent.IsRefusal(err)
	if !ok {
		return err
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "rights",
		What: fmt.Sprintf("table %s, whose rows are counted once, when the slot is created, %s", refusal.Table, refusal.Why), Fix: refusal.Fix,
	}
}

// refuseAbandoned looks, before a new slot is created, for slots of other relays that read the same
// tables and are not active. source.slot may have been renamed, and then nobody reads what waits in
// the old slot, or in the retry table under its name. The tables may not show this, because an
// application may delete its rows at once.
func refuseAbandoned(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	var name string
	var behind *int64
	var waiting int64
	err := source.Ask(ctx, pool, "read cdc_relay.slots", `SELECT s.slot, pg_wal_lsn_diff(pg_current_wal_lsn(), r.confirmed_flush_lsn)::bigint,
			(SELECT count(*) FROM cdc_relay.retry w WHERE w.slot = s.slot)
		FROM cdc_relay.slots s LEFT JOIN pg_replication_slots r ON r.slot_name = s.slot AND r.database = current_database()
		WHERE s.slot <> $1 AND s.state IN ('ready', 'adopt') AND s.leader <> '' AND r.active_pid IS NULL AND s.sends->'tables' ?| $2::text[]
			AND (r.slot_name IS NOT NULL OR EXISTS (SELECT FROM cdc_relay.retry w WHERE w.slot = s.slot))
		ORDER BY s.changed_at DESC LIMIT 1`, c.Slot, c.QuotedTables()).Scan(&name, &behind, &waiting)
	if source.IsNoRows(err) {
		return nil
	}
	if err != nil {
		return err
	}
	what := fmt.Sprintf("slot %q of a relay reads the same tables, and nobody holds it", name)
	if behind != nil {
		what += fmt.Sprintf("; it is %s of WAL behind", source.BytesText(uint64(max(*behind, 0))))
	}
	what += fmt.Sprintf("; %d events wait in the retry table under its name", waiting)
	if c.NoBackfill {
		c.Log.Warn("creating a new slot although nobody reads the old one", zap.String("slot", c.Slot), zap.String("reason", what))
		return nil
	}
	return &event.Stop{
		Code: event.ExitUsage, Reason: "backfill",
		What: fmt.Sprintf("%s. The new slot %q would send only what is committed from now on", what, c.Slot),
		Fix:  fmt.Sprintf("if source.slot was renamed, set it back to %s; if that slot belongs to another relay, start that one first; if nobody needs what it has not delivered, run `cdc-relay teardown --yes` with its name; or create the new slot with `cdc-relay init --no-backfill`", name),
	}
}
