package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// prepare makes sure that publication and slot exist and are ours, creating them on the first
// start, and returns the tables as the catalogue knows them. It is what `init` does, and what `run`
// does before it asks for the slot.
//
// Creation happens under an advisory lock of the session, which a crash releases: a row that says
// "creating" while the lock is free was left behind, and the slot beside it may hold rows that
// nobody asked about; it is made again.
//
// Each step but the creation itself, which may last, is bounded: a server may go silent in the
// middle.
func prepare(ctx context.Context, pool *pgxpool.Pool, c *Config) ([]decode.Table, error) {
	stream, id, err := meetServer(ctx, pool, c)
	if err != nil {
		return nil, err
	}
	defer closeStream(stream)
	lock, err := acquire(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer lock.Release()
	if err := lockCreation(ctx, lock, c); err != nil {
		return nil, err
	}
	defer unlockCreation(lock, c)

	rec, err := readRecord(ctx, pool, c.Slot)
	if err != nil {
		return nil, err
	}
	slot, err := readSlot(ctx, pool, c.Slot)
	if err != nil {
		return nil, err
	}
	first := rec == nil && slot == nil || rec != nil && rec.State == stateCreating
	tables, err := findTables(ctx, pool, c, first)
	if err != nil {
		return nil, err
	}
	c.Tables = tables
	return tables, settleSlot(ctx, pool, stream, c, id, rec, slot)
}

// meetServer asks for what must hold whatever the slot is, brings the schema up to date and opens
// the stream.
func meetServer(ctx context.Context, pool *pgxpool.Pool, c *Config) (*pgconn.PgConn, identity, error) {
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()
	if err := refuseSyncStandby(ctx, pool, c); err != nil {
		return nil, identity{}, err
	}
	if err := checkServer(ctx, pool); err != nil {
		return nil, identity{}, err
	}
	if err := ensureSchema(ctx, pool, c); err != nil {
		return nil, identity{}, err
	}
	stream, err := connectStream(ctx, c)
	if err != nil {
		return nil, identity{}, err
	}
	id, err := identify(ctx, stream)
	if err != nil {
		closeStream(stream)
		return nil, identity{}, err
	}
	c.home.meet(serverOf(stream).server)
	return stream, id, nil
}

const meetTimeout = time.Minute

// settleSlot brings the slot into the state ready, or says why not: the table of what may be found.
func settleSlot(ctx context.Context, pool *pgxpool.Pool, stream *pgconn.PgConn, c *Config, id identity, rec *record, slot *slotView) error {
	switch {
	case rec == nil && slot == nil:
		return createSlot(ctx, pool, stream, c, id, sends{}, true)
	case rec == nil:
		return unknownSlot(c, slot, id)
	case rec.State == stateCreating:
		if err := dropUnfinished(ctx, pool, c, id, slot); err != nil {
			return err
		}
		return createSlot(ctx, pool, stream, c, id, rec.sentBefore(id), true)
	case rec.State == stateAdopt && slot == nil:
		return createSlot(ctx, pool, stream, c, id, rec.sentBefore(id), false)
	case rec.State == stateAdopt:
		return adoptSlot(ctx, pool, c, id, slot, rec.sentBefore(id))
	case rec.State == stateTakeover:
		return notTaken(c, rec)
	case slot == nil:
		return slotGone(c, rec)
	}
	if err := checkIdentity(c, rec, slot, id); err != nil {
		return err
	}
	_, err := lookAtSends(ctx, pool, c, rec)
	return err
}

func slotGone(c *Config, rec *record) *outbox.Stop {
	return slotLost(c, fmt.Sprintf("slot %q no longer exists; what was committed after %s and not delivered before is only in the outbox table",
		c.Slot, rec.Reported), "find and re-send what is missing"+adoptHint(c)+newSlotHint(c))
}

// createSlot creates publication and slot and, when ask is set, asks in the slot's own snapshot
// whether the tables have rows. A query before the slot exists would miss a row whose transaction
// is still open, and a query after it would count rows that the slot will deliver: only the
// snapshot splits them exactly, all rows in it are not in the slot. was is what is remembered of a
// slot of the name that was lost.
func createSlot(ctx context.Context, pool *pgxpool.Pool, stream *pgconn.PgConn, c *Config, id identity, was sends, ask bool) error {
	if !c.Create {
		stop := &outbox.Stop{
			Code: outbox.ExitOperator, Reason: "slot_missing",
			What: fmt.Sprintf("slot %q does not exist and source.create is false", c.Slot),
			Mend: correctName("slot"),
		}
		if !ask { // its loss was accepted, so the name is right
			stop.Mend = makeSlotSQL(c)
		}
		return stop
	}
	if err := ensurePublication(ctx, pool, c); err != nil {
		return err
	}
	sent, err := checkPublication(ctx, pool, c, sends{})
	if err != nil {
		return err
	}
	if err := checkReadable(ctx, pool, c); err != nil {
		return err
	}
	if ask {
		if err := refuseAbandoned(ctx, pool, c); err != nil {
			return err
		}
	}
	if err := beginCreating(ctx, pool, c, id); err != nil {
		return err
	}
	stopNotice := noticeLongWait(c, "creating the slot waits for the transactions that are open now to end")
	res, err := pglogrepl.CreateReplicationSlot(ctx, stream, c.Slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{
		Mode: pglogrepl.LogicalReplication,
	})
	stopNotice()
	switch {
	case pgCode(err) == "53400" || pgCode(err) == "42501": // no free slot, no right: certainly not created
		return errors.Join(createFailed(c, err), forgetUnmade(ctx, pool, c))
	case pgCode(err) == "42710": // duplicate_object
		return nameTaken(ctx, pool, c, id, err)
	case err != nil:
		// The server may have created it all the same (the answer was lost, or another relay's
		// attempt came late), with rows before it that nobody asked about. The row goes on saying
		// creating, so that it will not be taken for a slot made by hand.
		return fmt.Errorf("create slot %q: %w", c.Slot, err)
	}
	at, err := pglogrepl.ParseLSN(res.ConsistentPoint)
	if err != nil {
		return fmt.Errorf("create slot %q: consistent point: %w", c.Slot, err)
	}
	stopNotice = noticeLongWait(c, "counting the rows that are in the outbox already, which are not in the new slot: a large table takes its time, once")
	behind, err := countInSnapshot(ctx, pool, c, res.SnapshotName)
	stopNotice()
	if err != nil {
		undoFailed(ctx, pool, stream, c)
		return err
	}
	if ask && behind.rows > 0 && !c.NoBackfill {
		return errors.Join(behind.refuse(c), undoCreation(ctx, pool, stream, c))
	}
	if behind.rows > 0 {
		c.Log.Warn("rows that were in the outbox before the slot are left behind: they are not sent",
			zap.Int64("rows", behind.rows), zap.String("newest", behind.newest), zap.String("slot", c.Slot))
	}
	sent = sent.keepForeign(was).after(was)
	if err := makeReady(ctx, pool, c, id, sent, at); err != nil {
		return err
	}
	sent.sayForeign(ctx, pool, c)
	c.Log.Info("slot created", append(c.relayed(), zap.String("slot", c.Slot), zap.String("publication", c.Publication),
		zap.Stringer("lsn", at))...)
	return nil
}

// createFailed names the mend for what CREATE_REPLICATION_SLOT may answer.
func createFailed(c *Config, err error) error {
	switch pgCode(err) {
	case "53400":
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "no_slot", Err: err,
			What: fmt.Sprintf("no free replication slot for %q", c.Slot),
			Mend: "drop an unused one (SELECT slot_name, active FROM pg_replication_slots) or raise max_replication_slots and restart the server",
		}
	case "42501":
		return &outbox.Stop{
			Code: outbox.ExitFailure, Reason: "rights", Err: err,
			What: "this role may not create a replication slot", Mend: "ALTER ROLE " + quoteName(c.role()) + " REPLICATION",
		}
	}
	return fmt.Errorf("create slot %q: %w", c.Slot, err)
}

// nameTaken is for a slot that came to be since we looked. Another database's is not ours to wait
// for. One of this database may be our own, of an attempt whose answer was lost: the row goes on
// saying creating, so that it is made again and not taken for a slot made by hand.
func nameTaken(ctx context.Context, pool *pgxpool.Pool, c *Config, id identity, err error) error {
	slot, readErr := readSlot(ctx, pool, c.Slot)
	if readErr == nil && slot != nil && slot.Database != id.Database {
		return errors.Join(foreignSlot(c, slot.foreign(id.Database)), forgetUnmade(ctx, pool, c))
	}
	return fmt.Errorf("create slot %q: %w", c.Slot, err)
}

// unknownSlot is for a slot by our name of which there is no record: another program's, or made by
// hand. What its publication hid while the rows in it were committed, nothing shows.
func unknownSlot(c *Config, slot *slotView, id identity) error {
	if err := checkIdentity(c, nil, slot, id); err != nil {
		return err
	}
	what := "exists, and no relay has used it"
	if holder := slot.holder(); holder != "" {
		what += "; it is held by " + holder
	}
	stop := foreignSlot(c, what)
	stop.Mend += fmt.Sprintf(", and to go on where the slot's program stops: cdc-relay takeover --from-slot %s; or, if that program is gone for good, find and re-send what its publication may have hidden; then accept the slot as it is: %s",
		c.Slot, acceptSQL(c))
	return stop
}

// adoptSlot takes a slot as it stands, as an operator has accepted it, and says from where it goes
// on. Of what was sent before the tables and prefixes are kept: their rows may lie in the slot.
func adoptSlot(ctx context.Context, pool *pgxpool.Pool, c *Config, id identity, slot *slotView, was sends) error {
	if err := checkIdentity(c, nil, slot, id); err != nil {
		return err
	}
	if slot.ActivePID != 0 {
		return held(c, slot)
	}
	if err := ensurePublication(ctx, pool, c); err != nil {
		return err
	}
	sent, err := checkPublication(ctx, pool, c, sends{})
	if err != nil {
		return err
	}
	if was.Publication != sent.Publication || was.Version != sent.Version {
		if err := refuseUnlistedPartitions(ctx, pool, c, sent); err != nil {
			return err
		}
	}
	sent = sent.keepForeign(was).after(was)
	if err := makeReady(ctx, pool, c, id, sent, slot.ConfirmedFlush); err != nil {
		return err
	}
	sent.sayForeign(ctx, pool, c)
	c.Log.Warn("slot adopted: events committed before its position are not sent by this relay",
		zap.String("slot", c.Slot), zap.Stringer("lsn", slot.ConfirmedFlush))
	return nil
}

// refuseUnlistedPartitions keeps a slot from being adopted when rows in it could pass unseen: one
// that another program has used, or whose publication was altered. Without
// publish_via_partition_root, which Debezium does not set, a row comes under the name of its
// partition. The relay stops at one of a table that is a partition now, and at any of a table that
// the publication listed. Under a publication of all tables or of a schema nothing tells whose a
// table was that was detached or dropped.
func refuseUnlistedPartitions(ctx context.Context, q querier, c *Config, sent sends) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for name, t := range sent.Tables {
		var unlisted bool
		err := q.QueryRow(ctx, `SELECT relkind = 'p' AND NOT EXISTS (SELECT FROM pg_publication_rel r WHERE r.oid = ANY ($2::oid[]))
			FROM pg_class WHERE oid = $1`, t.OID, t.Through).Scan(&unlisted)
		if err != nil && !isNoRows(err) {
			return fmt.Errorf("read pg_class: %w", err)
		}
		if unlisted {
			return &outbox.Stop{
				Code: outbox.ExitOperator, Reason: "table",
				What: fmt.Sprintf("slot %q may have rows of former partitions of table %s, under their own names, and nothing tells them from those of other tables: publication %q does not list the table by name",
					c.Slot, name, c.Publication),
				Mend: fmt.Sprintf("find and re-send what waits in the slot; then have a new one made: SELECT pg_drop_replication_slot(%s)", quoteText(c.Slot)) + newSlotHint(c),
			}
		}
	}
	return nil
}

// dropUnfinished removes the slot that a crash left between its creation and the answer to the
// question. As long as the server is still busy creating it for the relay that died, that is waited
// for.
func dropUnfinished(ctx context.Context, pool *pgxpool.Pool, c *Config, id identity, slot *slotView) error {
	if slot == nil {
		return nil
	}
	if slot.Database == id.Database && slot.ActivePID != 0 {
		return held(c, slot)
	}
	if why := slot.foreign(id.Database); why != "" {
		return foreignSlot(c, why)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := pool.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, c.Slot); err != nil {
		return fmt.Errorf("drop unfinished slot %q: %w", c.Slot, err)
	}
	c.Log.Info("dropped a slot whose creation was not finished", zap.String("slot", c.Slot))
	return nil
}

// undoCreation drops the slot and only then the row that says creating: without it the slot would
// be adopted.
func undoCreation(ctx context.Context, pool *pgxpool.Pool, stream *pgconn.PgConn, c *Config) error {
	if err := pglogrepl.DropReplicationSlot(ctx, stream, c.Slot, pglogrepl.DropReplicationSlotOptions{}); err != nil {
		return fmt.Errorf("drop slot %q again: %w", c.Slot, err)
	}
	return forgetUnmade(ctx, pool, c)
}

// undoFailed takes back a creation that cannot be finished, as well as that can be done: a slot
// that nobody reads keeps all WAL from its position on. What is left of it is made again by the
// next start.
func undoFailed(ctx context.Context, pool *pgxpool.Pool, stream *pgconn.PgConn, c *Config) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoPatience) // also when the relay was asked to stop
	defer cancel()
	if err := undoCreation(ctx, pool, stream, c); err != nil {
		c.Log.Warn("a slot whose creation was not finished stays, and keeps WAL, until the relay is started again or torn down",
			zap.String("slot", c.Slot), zap.Error(err))
	}
}

const undoPatience = 5 * time.Second

// forgetUnmade takes back beginCreating. The row of a slot that was in use before stays, with the
// operator's word that its loss is accepted: it holds the incarnation, and other relays' teardown
// must see that somebody needs the schema.
func forgetUnmade(ctx context.Context, pool *pgxpool.Pool, c *Config) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := pool.Exec(ctx, `WITH used AS (UPDATE cdc_relay.slots SET state = 'adopt', changed_at = now()
			WHERE slot = $1 AND state = 'creating' AND slot IN (SELECT slot FROM cdc_relay.progress) RETURNING slot)
		DELETE FROM cdc_relay.slots WHERE slot = $1 AND state = 'creating' AND slot NOT IN (SELECT slot FROM cdc_relay.progress)`, c.Slot)
	return err
}

// noticeLongWait logs a line when what follows takes more than a second; the returned func ends the
// wait.
func noticeLongWait(c *Config, what string) (done func()) {
	timer := time.AfterFunc(time.Second, func() { c.Log.Info(what, zap.String("slot", c.Slot)) })
	return func() { timer.Stop() }
}
