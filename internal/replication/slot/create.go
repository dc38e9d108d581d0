// Creating publication and slot: rows that the slot does not send are counted in its own snapshot,
// and what cannot be finished is undone.

package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// CreateSlot creates publication and slot and, if ask is set, checks in the slot's own snapshot
// whether the tables have rows. A query before the slot exists would miss a row whose transaction
// is still open, and a query after it would count rows that the slot will deliver: only the
// snapshot separates them exactly: the slot delivers none of the rows in it. was is what is
// remembered of a lost slot of the same name.
func CreateSlot(ctx context.Context, pool *pgxpool.Pool, stream *pgconn.PgConn, c *source.Config, id Identity, was publication.State, ask bool) error {
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
	if err := publication.Ensure(ctx, pool, c); err != nil {
		return err
	}
	sent, err := publication.Check(ctx, pool, c, publication.State{})
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
	stopNotice := NoticeLongWait(c, "counting the rows already in the outbox, which the new slot does not send: this is done once and takes long for a large table")
	found, err := countInSnapshot(ctx, pool, c, made.Snapshot, moved(was))
	stopNotice()
	if err != nil {
		UndoFailed(ctx, pool, c)
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
	sent = sent.KeepForeign(was).After(was)
	if found.rows > 0 {
		c.Log.Warn("rows that were in the outbox before the slot was created are not sent", zap.Int64("rows", found.rows), zap.String("slot", c.Slot))
	}
	sent.BeginAt(found.first)
	if err := makeReady(ctx, pool, c, id, sent, made.At, found.unsent); err != nil {
		return err
	}
	sent.LogForeign(ctx, pool, c)
	c.Log.Info("slot created", append(c.Relayed(), zap.String("slot", c.Slot), zap.String("publication", c.Publication),
		zap.Stringer("lsn", made.At))...)
	return nil
}

// Made is a slot that was just created.
type Made struct {
	At       pglogrepl.LSN // its start: it sends what commits from here on
	Snapshot string        // what is visible in it is not sent by the slot, and everything else is
}

// Make creates the slot and exports its snapshot, which lives until the next command on stream.
//
// none: the slot was certainly not created. After any other error the server may have created it
// all the same, or before (the answer was lost, or another relay's attempt came late), with earlier
// rows that were never counted. The record stays as it is then, so that the slot is not mistaken
// for one made by hand.
func Make(ctx context.Context, q source.Querier, stream *pgconn.PgConn, c *source.Config) (made Made, none bool, err error) {
	done := WatchCreation(ctx, q, stream, c)
	res, err := create(ctx, stream, c)
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

// create sends CREATE_REPLICATION_SLOT. pglogrepl has no option for a failover slot.
func create(ctx context.Context, stream *pgconn.PgConn, c *source.Config) (pglogrepl.CreateReplicationSlotResult, error) {
	if !c.MakesFailoverSlot(stream) {
		return pglogrepl.CreateReplicationSlot(ctx, stream, c.Slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{
			Mode: pglogrepl.LogicalReplication,
		})
	}
	// a slot's name has only a-z, 0-9 and _
	return pglogrepl.ParseCreateReplicationSlot(stream.Exec(ctx,
		fmt.Sprintf(`CREATE_REPLICATION_SLOT "%s" LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)`, c.Slot)))
}

// MakeFailover makes a failover slot of an existing one that nobody holds, if that was asked for.
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

// CreateFailed names the fix for what CREATE_REPLICATION_SLOT may answer.
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

// dropUnfinished removes the slot that a crash left between its creation and the count of earlier
// rows.
func dropUnfinished(ctx context.Context, pool *pgxpool.Pool, c *source.Config, id Identity, view *View) error {
	return Drop(ctx, pool, c, id, view, "unfinished")
}

// Drop drops the slot that view shows, which is in the way of a new one; nil: there is none. kind
// says in one word why. The caller holds the lock on the creation: a slot that the server is still
// creating is that of a relay that died, and its creation is ended.
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
		return InUse(c, view)
	}
	if why := view.NotOurs(id.Database); why != "" {
		return source.ForeignSlot(c, why)
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	if err := drop(ctx, pool, c); err != nil {
		return fmt.Errorf("drop %s slot %q: %w", kind, c.Slot, err)
	}
	c.Log.Info("dropped a slot: "+kind, zap.String("slot", c.Slot))
	return nil
}

func drop(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	tag, err := pool.Exec(ctx, `SELECT pg_drop_replication_slot($1) WHERE `+stillLocked(c), c.Slot)
	if err == nil && tag.RowsAffected() == 0 {
		return lockLost(c)
	}
	return err
}

// undoCreation drops the slot and only then its record: without the record in state creating the
// slot would be adopted.
func undoCreation(ctx context.Context, pool *pgxpool.Pool, c *source.Config) error {
	if err := drop(ctx, pool, c); err != nil {
		return fmt.Errorf("drop slot %q again: %w", c.Slot, err)
	}
	return forgetUnmade(ctx, pool, c)
}

// UndoFailed tries to undo a creation that cannot be finished: a slot that nobody reads retains all
// WAL from its position on. If that fails, the next start creates it again.
func UndoFailed(ctx context.Context, pool *pgxpool.Pool, c *source.Config) {
	undo(ctx, c, func(ctx context.Context) error { return undoCreation(ctx, pool, c) })
}

// Unmake is UndoFailed for a slot whose record stays as it is. It reports whether the slot is gone.
func Unmake(ctx context.Context, pool *pgxpool.Pool, c *source.Config) bool {
	return undo(ctx, c, func(ctx context.Context) error { return drop(ctx, pool, c) })
}

// undo calls do even if the relay was asked to stop.
func undo(ctx context.Context, c *source.Config, do func(context.Context) error) (done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoPatience)
	defer cancel()
	err := do(ctx)
	if err != nil {
		c.Log.Warn("failed to drop an unfinished slot: it retains WAL until the relay is started again or torn down",
			zap.String("slot", c.Slot), zap.Error(err))
	}
	return err == nil
}

const undoPatience = 5 * time.Second

// WatchCreation logs which transactions a slot waits for that is being created on stream, if done
// is not called within a second. When the relay was asked to stop meanwhile, done ends the server's
// part, too, which would wait on and keep WAL: PostgreSQL does not notice that its client has gone.
func WatchCreation(ctx context.Context, q source.Querier, stream *pgconn.PgConn, c *source.Config) (done func(error)) {
	timer := time.AfterFunc(time.Second, func() {
		open, err := source.OpenTransactions(ctx, q, false)
		c.Log.Info("creating the slot waits for the transactions that are open now to end", zap.String("slot", c.Slot), zap.String("open", source.OpenText(open)), zap.Error(err))
	})
	pid := stream.PID()
	return func(err error) {
		timer.Stop()
		if err == nil || ctx.Err() == nil {
			return
		}
		undo(ctx, c, func(ctx context.Context) error {
			_, err := q.Exec(ctx, `SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity WHERE pid = $1 AND backend_type = 'walsender'`, int32(pid), undoPatience.Milliseconds())
			return err
		})
	}
}

// NoticeLongWait logs a line if done is not called within a second.
func NoticeLongWait(c *source.Config, what string) (done func()) {
	timer := time.AfterFunc(time.Second, func() { c.Log.Info(what, zap.String("slot", c.Slot)) })
	return func() { timer.Stop() }
}
