// Takeover: continues where another program stops, with a copy of its slot.

package setup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// TakeoverState is how far a takeover has come. Positions are "" while they are not known.
type TakeoverState struct {
	Slot   string `json:"slot"`
	From   string `json:"from_slot"`
	Plugin string `json:"from_plugin,omitempty"`
	// from where on our publication shows every row: the other program sends what is before it
	Start     string `json:"start_lsn,omitempty"`
	Confirmed string `json:"from_slot_confirmed_flush_lsn,omitempty"` // what is below is skipped
	Holder    string `json:"from_slot_holder,omitempty"`
	Complete  bool   `json:"complete"`
	Dropped   bool   `json:"from_slot_dropped"`
}

// takeover is one run of the command.
type takeover struct {
	c     *source.Config
	from  string // the other slot
	pool  *pgxpool.Pool
	id    slot.Identity
	state TakeoverState
}

// TakeOver makes our slot replace another program's, of whatever plugin, without losing anything,
// and drops that one at the end if drop is true. The publication is made first, while the other
// program goes on. Once its slot has passed a position P from which on the publication has all
// rows, and the program was stopped, ours is made as a copy of the other slot, and is ready.
//
// Why nothing is lost, and no more is sent twice than must be. PostgreSQL sends by a slot those
// transactions whose commit record begins at or after the slot's position, and no other
// (SnapBuildXactNeedsSkip). pg_copy_logical_replication_slot makes a slot at that very position T,
// with the same catalog_xmin and restart_lsn. So ours is sent just those transactions that the
// other program would be sent if it were started again.
//
// Why P, and not the copy alone. A change is decoded with the catalogue of when it was made. Where
// the publication was not there yet, PostgreSQL 14 to 17 end with an error for ever and 18 skips
// the row; where it had no such table, all of them skip it. So the record of the takeover is
// written once the publication is there, and P is the end of the WAL once all transactions have
// ended that are older than the record (setStart). With T >= P every transaction that ours is sent
// began after that. A publication that was altered since ends the takeover.
//
// Every step may be interrupted and repeated, also by a process that was frozen for an hour. No
// relay starts a slot whose record is in state takeover. The statements that copy the slot and make
// it ready look at record and slots themselves. A program that is started again meanwhile publishes
// what we publish too, which check and a second takeover report.
//
// It creates slot and publication even if source.create is false: that key is about a relay's
// start, which without a slot would begin with what is committed from then on.
func TakeOver(ctx context.Context, c source.Config, from string, drop bool) (TakeoverState, error) {
	c.Create = true
	t := &takeover{c: &c, from: from, state: TakeoverState{Slot: c.Slot, From: from}}
	err := c.Validate()
	if err == nil && from == c.Slot {
		err = usageStop(fmt.Sprintf("slot %q is source.slot itself", c.Slot), "choose another source.slot: the relay's own slot replaces the other one")
	}
	if err != nil {
		return t.state, err
	}
	if t.pool, err = source.ConnectPool(&c); err != nil {
		return t.state, err
	}
	defer source.ClosePool(t.pool)
	stream, id, err := slot.Connect(ctx, t.pool, &c)
	if err == nil {
		source.CloseStream(stream)
		t.id = id
		err = slot.WithCreationLock(ctx, t.pool, &c, t.advance)
	}
	if err == nil && drop {
		err = t.drop(ctx)
	}
	return t.state, slot.ConnectAndNameStop(ctx, c, source.OrFatal(&c, err), 0)
}

// advance does what can be done now, under the lock.
func (t *takeover) advance(ctx context.Context) error {
	rec, ours, err := slot.ReadBoth(ctx, t.pool, t.c.Slot)
	if err != nil {
		return err
	}
	theirs, err := slot.ReadView(ctx, t.pool, t.from)
	if err != nil {
		return err
	}
	s := &t.state
	if theirs != nil {
		s.Plugin, s.Confirmed, s.Holder = theirs.Plugin, theirs.ConfirmedFlush.String(), theirs.HolderName()
	}
	if rec != nil && rec.State == slot.StateReady && rec.TookFrom == t.from && rec.TookUntil != 0 {
		s.Complete, s.Confirmed = true, rec.TookUntil.String()
		return nil
	}
	if err := t.checkSlots(rec, ours, theirs); err != nil {
		return err
	}
	if t.c.Tables, err = schema.FindTables(ctx, t.pool, t.c, rec == nil); err != nil {
		return err
	}
	if rec == nil {
		if err := t.begin(ctx); err != nil {
			return err
		}
	}
	if rec == nil || rec.TookUntil == 0 {
		if err := t.setStart(ctx); err != nil {
			return err
		}
		return t.advance(ctx)
	}
	s.Start = rec.TookUntil.String()
	if err := t.checkPosition(rec.TookUntil, theirs); err != nil {
		return err
	}
	return t.complete(ctx, rec, theirs, ours != nil)
}

// begin writes the record in state takeover, after the publication was made and looked at. The slot
// must be no relay's, and no other relay may replace it for one of our tables: both relays would
// publish its rows.
func (t *takeover) begin(ctx context.Context) error {
	if err := t.checkAlone(ctx); err != nil {
		return err
	}
	if err := schema.EnsurePublication(ctx, t.pool, t.c); err != nil {
		return err
	}
	sent, err := schema.CheckPublication(ctx, t.pool, t.c, schema.Sends{})
	if err != nil {
		return err
	}
	_, err = source.Execute(ctx, t.pool, "write cdc_relay.slots", `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, sends, state, incarnation, took_from)
		VALUES ($1, $2, $3, $4, $5, 'takeover', 0, $6)`, t.c.Slot, t.id.SystemID, t.id.Timeline, t.c.Publication, sent, t.from)
	return err
}

// checkAlone is asked before the record is written, and before the copy: of two takeovers that
// begin at the same moment at least one sees the record of the other by then.
func (t *takeover) checkAlone(ctx context.Context) error {
	var other string
	err := source.Ask(ctx, t.pool, "read cdc_relay.slots", `SELECT slot FROM cdc_relay.slots WHERE slot = $2 OR slot <> $1 AND took_from = $2 AND sends->'tables' ?| $3::text[]
		ORDER BY slot <> $2, slot LIMIT 1`, t.c.Slot, t.from, t.c.QuotedTables()).Scan(&other)
	if err == nil {
		return usageStop(fmt.Sprintf("slot %q is used by the relay of slot %q, or replaced by it already: its deferred events would be left behind, or both relays publish the same rows", t.from, other),
			"name the slot of another program, or give that relay up first: cdc-relay teardown --yes, with its configuration")
	} else if !source.IsNoRows(err) {
		return err
	}
	return nil
}

// setStart writes P into the record, in took_until until the takeover is complete. Transactions
// that were open when the publication was made have ids below the record's xmin, and have ended
// once the oldest id that is open is above it, prepared ones too. They are waited for ten seconds.
func (t *takeover) setStart(ctx context.Context) error {
	for range 40 {
		written, err := source.Execute(ctx, t.pool, "write cdc_relay.slots", `UPDATE cdc_relay.slots SET took_until = pg_current_wal_insert_lsn()
			WHERE slot = $1 AND state = 'takeover' AND took_until = '0/0' AND age(xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)`, t.c.Slot)
		if err != nil || written > 0 {
			return err
		}
		if !source.Sleep(ctx, 250*time.Millisecond) {
			return ctx.Err()
		}
	}
	list, err := source.OpenTransactions(ctx, t.pool, false)
	if err != nil {
		return err
	}
	return source.TakeoverStop("not complete: transactions are open that may be older than the publication: "+source.OpenTransactionsText(list), source.EndTransactionsHint(list)+"; then run this again")
}

// quietFor is how long nobody may have read the other slot: a program that only connects again
// would go on beside us, and its later events of a key would arrive before our repeats of earlier
// ones.
const quietFor = 3 * time.Second

// complete makes the copy, unless an earlier run has, and makes durable that it may be used. The
// statement that does so looks again at all that it relies on.
func (t *takeover) complete(ctx context.Context, rec *slot.Record, theirs *slot.View, copied bool) error {
	if !source.Sleep(ctx, quietFor) {
		return ctx.Err()
	}
	again, err := slot.ReadView(ctx, t.pool, t.from)
	if err != nil {
		return err
	}
	changed := source.TakeoverStop(fmt.Sprintf("the slots %q and %q, or what is remembered of the takeover, were changed in the meantime", t.c.Slot, t.from), "run this again")
	if again == nil || again.Active() || again.ConfirmedFlush != theirs.ConfirmedFlush {
		return changed
	}
	if err := t.checkAlone(ctx); err != nil {
		return err
	}
	// A change of the publication that hid rows is as bad here as in a running relay.
	sent, err := schema.CheckPublication(ctx, t.pool, t.c, rec.Sends)
	if err != nil {
		return err
	}
	if !copied {
		_, err := source.Execute(ctx, t.pool, "copy a slot", `SELECT pg_copy_logical_replication_slot(o.slot_name, s.slot::name, false, 'pgoutput')
			FROM cdc_relay.slots s JOIN pg_replication_slots o ON o.slot_name = s.took_from
			WHERE s.slot = $1 AND s.state = 'takeover' AND s.took_from = $2 AND s.took_until = $3::text::pg_lsn AND NOT o.active AND o.confirmed_flush_lsn >= s.took_until
				AND o.database = current_database() AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = s.slot::name)`, t.c.Slot, t.from, rec.TookUntil.String())
		if err != nil {
			return slot.CreateFailed(t.c, err)
		}
	}
	sent = sent.KeepForeign(rec.Sends).AddRemembered(rec.Sends)
	var end pglogrepl.LSN
	err = source.Ask(ctx, t.pool, "write cdc_relay.slots", `WITH made AS (
			UPDATE cdc_relay.slots s SET state = 'ready', sends = $3, took_until = n.confirmed_flush_lsn, took_incarnation = `+slot.NextIncarnation+`,
				incarnation = `+slot.NextIncarnation+`, epoch = s.epoch + 1, changed_at = now()
			FROM pg_replication_slots n, pg_replication_slots o
			WHERE s.slot = $1 AND s.state = 'takeover' AND s.took_from = $2 AND s.took_until = $4::text::pg_lsn AND n.slot_name = s.slot AND o.slot_name = s.took_from
				AND NOT n.active AND n.wal_status IS DISTINCT FROM 'lost' AND n.plugin = 'pgoutput' AND n.database = current_database() AND n.confirmed_flush_lsn BETWEEN s.took_until AND o.confirmed_flush_lsn
			RETURNING s.slot, s.took_until),
		written AS (INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good) SELECT slot, took_until AS max_flush_lsn, took_until AS reported, took_until AS good FROM made
			ON CONFLICT (slot) DO UPDATE SET max_flush_lsn = excluded.max_flush_lsn, reported = excluded.reported, good = excluded.good, at = now())
		SELECT took_until FROM made`, t.c.Slot, t.from, sent, rec.TookUntil.String()).Scan(&end)
	if source.IsNoRows(err) {
		return changed // by another run; or the program was not stopped after all
	}
	if err != nil {
		return err
	}
	sent.LogForeign(ctx, t.pool, t.c)
	t.state.Complete, t.state.Confirmed = true, end.String()
	return nil
}

// drop drops the other slot, which is not needed after the takeover, if it is that one still. A
// program that was started again in the meantime keeps it.
func (t *takeover) drop(ctx context.Context) error {
	ours, err := slot.ReadView(ctx, t.pool, t.c.Slot)
	if err != nil {
		return err
	}
	if ours == nil || ours.Invalidated() { // the takeover may be weeks old
		return source.TakeoverStop(fmt.Sprintf("slot %q, which replaces slot %q, is lost since: slot %[2]q is not dropped, it may have what is missing", t.c.Slot, t.from), "cdc-relay check says what to do")
	}
	_, err = source.Execute(ctx, t.pool, "drop slot "+t.from, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
		WHERE slot_name = $1 AND slot_type = 'logical' AND database = current_database() AND NOT active AND confirmed_flush_lsn >= $2::text::pg_lsn
			AND NOT EXISTS (SELECT FROM cdc_relay.slots WHERE slot = $1)`, t.from, t.state.Confirmed)
	if err != nil && source.SQLState(err) != "55006" { // object_in_use
		return err
	}
	theirs, err := slot.ReadView(ctx, t.pool, t.from)
	if err != nil || theirs == nil {
		t.state.Dropped = err == nil
		return err
	}
	return source.TakeoverStop(fmt.Sprintf("the takeover is complete, but slot %q is not dropped: it was replaced at %s, and is a %s slot now that stands at %s, in use by %s", t.from, t.state.Confirmed,
		theirs.Type, theirs.ConfirmedFlush, cmp.Or(theirs.HolderName(), "nobody")),
		"stop the program that uses it, which sends the same events, and run this again; a slot that was made under this name since is its program's")
}

// giveUp is the fix that is printed where the slot cannot be copied.
const giveUp = "give the takeover up: cdc-relay teardown --yes; then `cdc-relay init --backfill` sends all rows that are in the table, also those that were sent"

// checkSlots returns why the other slot cannot be replaced, or why ours cannot replace it.
func (t *takeover) checkSlots(rec *slot.Record, ours, theirs *slot.View) error {
	switch {
	case rec != nil && (rec.State != slot.StateTakeover || rec.TookFrom != t.from):
		return usageStop(fmt.Sprintf("slot %q is already used by a relay, or replaces another slot (%q)", t.c.Slot, rec.TookFrom), "correct --from-slot, or choose another source.slot")
	case theirs == nil && rec == nil:
		return usageStop(fmt.Sprintf("slot %q does not exist", t.from), "SELECT slot_name, plugin, active FROM pg_replication_slots")
	case theirs == nil && ours != nil:
		// An attempt that was interrupted has made the copy, or somebody a slot of its name.
		return source.TakeoverStop(fmt.Sprintf("slot %q no longer exists, and slot %q stands at %s: if that is its copy, it alone has what was not delivered", t.from, t.c.Slot, ours.ConfirmedFlush),
			fmt.Sprintf("keep slot %q; unless somebody made it by hand: UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = %s, and start the relay; else "+giveUp, t.c.Slot, source.QuoteText(t.c.Slot)))
	case theirs == nil:
		return source.TakeoverStop(fmt.Sprintf("slot %q no longer exists: what was committed and not delivered by then is in no slot", t.from), giveUp)
	// the server would copy one of another database all the same
	case theirs.Type != "logical" || theirs.Database != t.id.Database:
		return source.TakeoverStop(fmt.Sprintf("slot %q is a %s slot of database %q", t.from, theirs.Type, theirs.Database), fmt.Sprintf("name a logical slot of database %q, or correct source.url", t.id.Database))
	// before the copy, which would keep WAL
	case rec.IsOfOtherServer(t.id) || rec != nil && rec.Publication != t.c.Publication:
		return source.TakeoverStop(fmt.Sprintf("the takeover began with publication %q on system %s, timeline %d", rec.Publication, rec.SystemID, rec.Timeline),
			"correct source.publication or source.url; or begin again: cdc-relay teardown --yes, and then this")
	case ours == nil:
		return nil
	case ours.Invalidated() && !theirs.Invalidated():
		return source.TakeoverStop(fmt.Sprintf("the copy %q cannot be continued: wal_status is %s %s", t.c.Slot, ours.WALStatus, ours.Invalidation),
			fmt.Sprintf("drop it, SELECT pg_drop_replication_slot(%s), and run this again: slot %q still has all", source.QuoteText(t.c.Slot), t.from))
	case rec == nil || rec.TookUntil == 0 || ours.NotOurs(t.id.Database) != "" || ours.ConfirmedFlush < rec.TookUntil || ours.ConfirmedFlush > theirs.ConfirmedFlush:
		return source.TakeoverStop(fmt.Sprintf("slot %q already exists and is no copy of slot %q: the publication may have hidden rows from it, or it may lack some", t.c.Slot, t.from),
			"choose another source.slot; or drop that one, if nobody needs it, and run this again")
	}
	return nil
}

// checkPosition returns why the takeover cannot be completed now.
func (t *takeover) checkPosition(start pglogrepl.LSN, theirs *slot.View) error {
	const until = "has confirmed an event that was committed after that, and stop it; then run this again"
	at, passed := fmt.Sprintf("slot %q stands at %s", t.from, theirs.ConfirmedFlush), theirs.ConfirmedFlush >= start
	below := fmt.Sprintf("not complete: %s, below %s, from where on publication %q has all rows", at, start, t.c.Publication)
	switch {
	case theirs.Invalidated() || theirs.ConfirmedFlush > theirs.Current:
		return source.TakeoverStop(fmt.Sprintf("%s and cannot be continued from there: wal_status is %s %s, and the server's WAL ends at %s", at, theirs.WALStatus, theirs.Invalidation, theirs.Current), giveUp)
	case passed && theirs.Active():
		return source.TakeoverStop(fmt.Sprintf("not complete: slot %q has passed %s, and is active for %s", t.from, start, t.state.Holder), "stop that program; then run this again")
	case theirs.Active():
		return source.TakeoverStop(below, fmt.Sprintf("leave the program that reads it (%s) running until it %s", t.state.Holder, until))
	case !passed:
		return source.TakeoverStop(below+", and nobody reads it: what was committed in between is in it alone", "start the program that reads it, until it "+until)
	}
	return nil
}
