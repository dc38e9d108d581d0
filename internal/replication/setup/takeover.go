// Takeover: continues where another program stops, with a copy of its slot.

package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// TakeoverOptions say which slot ours replaces.
type TakeoverOptions struct {
	From string
	Drop bool // drop that slot at the end
}

// TakeoverState is how far a takeover has come.
type TakeoverState struct {
	Slot   string `json:"slot"`
	From   string `json:"from_slot"`
	Plugin string `json:"from_plugin,omitempty"`
	// from where on our publication shows every row: the other program sends what is before it
	Start     pglogrepl.LSN `json:"-"`
	Confirmed pglogrepl.LSN `json:"-"` // by the other program; at the end all below is skipped
	Holder    string        `json:"from_slot_holder,omitempty"`
	Complete  bool          `json:"complete"`
	Dropped   bool          `json:"from_slot_dropped"`
}

// Takeover is one run of the command.
type Takeover struct {
	C     *source.Config
	Opt   TakeoverOptions
	Pool  *pgxpool.Pool
	ID    slot.Identity
	state TakeoverState
}

// TakeOver makes our slot replace another program's, of whatever plugin, without losing anything.
// The publication is made first, while the other program goes on. Once the other slot has passed a
// position P at which all rows are in the publication, and the other program was stopped, ours is
// made as a copy of the other slot, and is ready.
//
// Why nothing is lost, and no more is sent twice than must be. PostgreSQL sends by a slot those
// transactions whose commit record begins at or after the slot's position, and no other
// (SnapBuildXactNeedsSkip). pg_copy_logical_replication_slot makes a slot at that very position T,
// with the same catalog_xmin and restart_lsn. So ours is sent just those transactions that the
// other program would be sent if it were started again. What it has published of them already,
// after its last confirmation, is what arrives twice.
//
// Why P. A change is decoded with the catalogue of when it was made. Where the publication was not
// there yet, PostgreSQL 14 to 17 end with an error for ever and 18 skips the row; where it had no
// such table, all of them skip it. So the record of the takeover is written once the publication is
// there, and P is the end of the WAL once all transactions have ended that are older than the
// record (setStart). With T >= P every transaction that ours is sent began after the publication
// was made; with T < P there may be others, which the other program must send. A publication that
// was altered since ends the takeover.
//
// Every step may be interrupted and repeated, and done by several at once, or an hour later by a
// process that was frozen. No relay starts a slot whose record is in state takeover. The copy is
// made by a statement that looks at record and other slot itself, and only there is no slot of our
// name; it is taken for ours if its position is between P and T. Then one statement makes it ready
// that finds the same record. The other slot is dropped after that. A program that is started again
// meanwhile publishes what we publish too, which check and a second takeover report.
//
// It creates slot and publication even if source.create is false. That key is about starting the
// relay, which without a slot would begin with what is committed from then on.
func TakeOver(ctx context.Context, c source.Config, opt TakeoverOptions) (TakeoverState, error) {
	c.Create = true
	t := &Takeover{C: &c, Opt: opt}
	if err := t.Validate(); err != nil {
		return t.state, err
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return t.state, err
	}
	defer source.ClosePool(pool)
	t.Pool = pool
	err = t.run(ctx)
	return t.state, slot.Named(ctx, c, source.OrFatal(&c, err), 0)
}

func (t *Takeover) run(ctx context.Context) error {
	stream, id, err := slot.Connect(ctx, t.Pool, t.C)
	if err != nil {
		return err
	}
	source.CloseStream(stream)
	t.ID = id
	for since := time.Now(); ; {
		err := slot.Locked(ctx, t.Pool, t.C, t.try)
		switch {
		case err == nil && t.Opt.Drop:
			return t.drop(ctx)
		case !errors.Is(err, errOpen):
			return err
		case time.Since(since) > openPatience:
			list, err := source.OpenTransactions(ctx, t.Pool, false)
			if err != nil {
				return err
			}
			return stopOperator("not complete: "+errOpen.Error()+": "+source.OpenText(list), source.EndOpen(list)+"; then run this again")
		case !source.Sleep(ctx, 250*time.Millisecond):
			return ctx.Err()
		}
	}
}

// openPatience is how long transactions are waited for that are older than the publication.
const openPatience = 10 * time.Second

var errOpen = errors.New("transactions are open that may be older than the publication")

// Validate names both slots in the state, and returns a Stop with exit code event.ExitUsage if they
// are the same or the configuration is not valid; it asks no server.
func (t *Takeover) Validate() error {
	t.state.Slot, t.state.From = t.C.Slot, t.Opt.From
	if err := t.C.Validate(); err != nil {
		return err
	}
	if t.Opt.From == t.C.Slot {
		return stopUsage(fmt.Sprintf("slot %q is source.slot itself", t.C.Slot), "choose another source.slot: the relay's own slot replaces the other one")
	}
	return nil
}

// try does what can be done now, under the lock.
func (t *Takeover) try(ctx context.Context) error {
	rec, ours, theirs, err := t.read(ctx)
	if err != nil {
		return err
	}
	s := &t.state
	if theirs != nil {
		s.Plugin, s.Confirmed, s.Holder = theirs.Plugin, theirs.ConfirmedFlush, theirs.HolderName()
	}
	if err := t.checkSlots(rec, ours, theirs); err != nil {
		return err
	}
	if t.completed(rec) {
		s.Complete, s.Confirmed = true, rec.TookUntil
		return nil
	}
	if t.C.Tables, err = schema.FindTables(ctx, t.Pool, t.C, rec == nil); err != nil {
		return err
	}
	if rec == nil {
		// before a publication is created; Mark repeats the check
		if err := t.checkOnlyTakeover(ctx, t.Pool); err != nil {
			return err
		}
		if err := t.Mark(ctx); err != nil {
			return err
		}
	}
	if rec == nil || rec.TookUntil == 0 {
		if err := t.setStart(ctx); err != nil {
			return err
		}
		return t.try(ctx)
	}
	s.Start = rec.TookUntil
	if err := t.unfinished(theirs); err != nil {
		return err
	}
	// before the copy, which would keep WAL
	if rec.SystemID != t.ID.SystemID || rec.Timeline != t.ID.Timeline {
		return stopOperator(fmt.Sprintf("the takeover began on another server: system %s, timeline %d", rec.SystemID, rec.Timeline), "begin again: cdc-relay teardown --yes, and then this")
	}
	if err := t.quiet(ctx, theirs); err != nil {
		return err
	}
	return t.complete(ctx, rec)
}

// quietFor is how long nobody may have read the other slot: a program that only connects again
// would go on beside us, and its later events of a key would arrive before our repeats of earlier
// ones.
const quietFor = 3 * time.Second

// quiet waits for that time, and looks again.
func (t *Takeover) quiet(ctx context.Context, theirs *slot.View) error {
	if !source.Sleep(ctx, quietFor) {
		return ctx.Err()
	}
	again, err := slot.Read(ctx, t.Pool, t.Opt.From)
	switch {
	case err != nil:
		return err
	case again == nil || again.ConfirmedFlush != theirs.ConfirmedFlush:
		return t.changed()
	case again.Active():
		t.state.Holder = again.HolderName()
		return t.unfinished(again)
	}
	return nil
}

// Mark writes the record in state takeover, after the publication was made and looked at.
func (t *Takeover) Mark(ctx context.Context) error {
	if err := schema.EnsurePublication(ctx, t.Pool, t.C); err != nil {
		return err
	}
	sent, err := schema.CheckPublication(ctx, t.Pool, t.C, schema.Sends{})
	if err != nil {
		return err
	}
	switch ours, err := slot.Read(ctx, t.Pool, t.C.Slot); {
	case err != nil:
		return err
	case ours != nil && ours.NotOurs(t.ID.Database) != "":
		return stopOperator(fmt.Sprintf("slot %q already exists and %s", t.C.Slot, ours.NotOurs(t.ID.Database)), "choose another source.slot")
	case ours != nil:
		return t.noCopy()
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
		// Of several that begin at the same time one writes its record, and the next one sees it.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, hashtext($2))`, takeoverLock, t.Opt.From); err != nil {
			return fmt.Errorf("lock the takeover of slot %q: %w", t.Opt.From, err)
		}
		if err := t.checkOnlyTakeover(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, sends, state, incarnation, took_from)
			VALUES ($1, $2, $3, $4, $5, 'takeover', 0, $6)`, t.C.Slot, t.ID.SystemID, t.ID.Timeline, t.C.Publication, sent, t.Opt.From)
		if err != nil {
			return fmt.Errorf("write cdc_relay.slots: %w", err)
		}
		return nil
	})
}

// takeoverLock is the first key of the advisory lock under which the row of a takeover is written;
// the second is the hash of the other slot's name.
const takeoverLock = 0x63646374

// setStart writes P into the record, in took_until until the takeover is complete. Transactions
// that were open when the publication was made have ids below the record's xmin, and have ended
// once the oldest id that is open is above it, prepared ones too.
func (t *Takeover) setStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	tag, err := t.Pool.Exec(ctx, `UPDATE cdc_relay.slots SET took_until = pg_current_wal_insert_lsn()
		WHERE slot = $1 AND state = 'takeover' AND took_until = '0/0' AND age(xmin) > age(pg_snapshot_xmin(pg_current_snapshot())::xid)`, t.C.Slot)
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errOpen
	}
	return nil
}

// complete makes the copy, and makes durable that it may be used.
func (t *Takeover) complete(ctx context.Context, rec *slot.Record) error {
	// A change of the publication that hid rows is as bad here as in a running relay.
	sent, err := schema.CheckPublication(ctx, t.Pool, t.C, rec.Sends)
	if err != nil {
		return err
	}
	sent = sent.KeepForeign(rec.Sends).After(rec.Sends)
	bounded, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	tag, err := t.Pool.Exec(bounded, `SELECT pg_copy_logical_replication_slot(o.slot_name, s.slot::name, false, 'pgoutput')
		FROM cdc_relay.slots s JOIN pg_replication_slots o ON o.slot_name = s.took_from
		WHERE s.slot = $1 AND s.state = 'takeover' AND s.took_from = $2 AND s.took_until = $3::text::pg_lsn AND NOT o.active AND o.confirmed_flush_lsn >= s.took_until
			AND o.database = current_database() AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = s.slot::name)`, t.C.Slot, t.Opt.From, rec.TookUntil.String())
	switch {
	case source.SQLState(err) == "42710": // another run has made it just now
	case err != nil:
		return slot.CreateFailed(t.C, err)
	case tag.RowsAffected() > 0:
		t.C.Log.Info("slot created", append(t.C.Relayed(), zap.String("slot", t.C.Slot), zap.String("publication", t.C.Publication))...)
	}
	now, ours, theirs, err := t.read(ctx)
	if err != nil {
		return err
	}
	if now == nil || now.State != slot.StateTakeover || now.TookUntil != rec.TookUntil || ours == nil || theirs == nil || ours.Active() {
		return t.changed() // by another run; or the program was not stopped after all
	}
	if err := slot.CheckIdentity(t.C, rec, ours, t.ID); err != nil {
		return err
	}
	if ours.ConfirmedFlush < rec.TookUntil || ours.ConfirmedFlush > theirs.ConfirmedFlush {
		return t.noCopy()
	}
	err = pgx.BeginFunc(bounded, t.Pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(bounded, `UPDATE cdc_relay.slots SET state = 'ready', sends = $3, took_until = $4, took_incarnation = `+slot.NextIncarnation+`,
				incarnation = `+slot.NextIncarnation+`, epoch = epoch + 1, changed_at = now()
			WHERE slot = $1 AND state = 'takeover' AND took_from = $2 AND took_until = $5`, t.C.Slot, t.Opt.From, sent, ours.ConfirmedFlush, rec.TookUntil)
		if err == nil && tag.RowsAffected() != 1 {
			return t.changed()
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(bounded, `INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good) VALUES ($1, $2, $2, $2)
			ON CONFLICT (slot) DO UPDATE SET max_flush_lsn = $2, reported = $2, good = $2, at = now()`, t.C.Slot, ours.ConfirmedFlush)
		return err
	})
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	sent.LogForeign(ctx, t.Pool, t.C)
	t.state.Complete, t.state.Confirmed = true, ours.ConfirmedFlush
	return nil
}

// drop drops the other slot, which is not needed after the takeover, if it is that one still. A
// program that was started again in the meantime keeps it.
func (t *Takeover) drop(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	_, err := t.Pool.Exec(bounded, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
		WHERE slot_name = $1 AND slot_type = 'logical' AND database = current_database() AND NOT active AND confirmed_flush_lsn >= $2
			AND NOT EXISTS (SELECT FROM cdc_relay.slots WHERE slot = $1)`, t.Opt.From, t.state.Confirmed)
	if err != nil && source.SQLState(err) != "55006" { // object_in_use
		return fmt.Errorf("drop slot %q: %w", t.Opt.From, err)
	}
	theirs, err := slot.Read(ctx, t.Pool, t.Opt.From)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the takeover is complete, but slot %q ", t.Opt.From)
	switch {
	case theirs == nil:
		t.state.Dropped = true
		return nil
	case theirs.Active():
		return stopOperator(what+fmt.Sprintf("is in use again by %s: the relay sends the same events", theirs.HolderName()), "stop that program; then run this again to drop its slot")
	case theirs.Type != "logical" || theirs.Database != t.ID.Database:
		return stopOperator(what+fmt.Sprintf("is a %s slot of database %q now", theirs.Type, theirs.Database), "leave it to its program: there is nothing more to do")
	}
	// after a crash of the server it may be the same one
	return stopOperator(what+fmt.Sprintf("stands at %s now, and was replaced at %s, or is used by a relay: it may be another one", theirs.ConfirmedFlush, t.state.Confirmed), source.DropSlotHint(t.Opt.From))
}

// read reads our record, our slot and the other one.
func (t *Takeover) read(ctx context.Context) (rec *slot.Record, ours, theirs *slot.View, err error) {
	if rec, ours, err = slot.ReadBoth(ctx, t.Pool, t.C.Slot); err != nil {
		return nil, nil, nil, err
	}
	theirs, err = slot.Read(ctx, t.Pool, t.Opt.From)
	return rec, ours, theirs, err
}

func (t *Takeover) completed(rec *slot.Record) bool {
	return rec != nil && rec.State == slot.StateReady && rec.TookFrom == t.Opt.From && rec.TookUntil != 0
}

func stopUsage(what, fix string) *event.Stop {
	return source.TakeoverStop(event.ExitUsage, what, fix)
}

func stopOperator(what, fix string) *event.Stop {
	return source.TakeoverStop(event.ExitOperator, what, fix)
}

// giveUp is what to do where the slot cannot be copied.
const giveUp = "give the takeover up: cdc-relay teardown --yes; then `cdc-relay init --backfill` sends all rows that are in the table, also those that were sent"

// checkSlots returns why the slot From cannot be replaced, or why ours cannot replace it.
func (t *Takeover) checkSlots(rec *slot.Record, ours, theirs *slot.View) error {
	switch {
	case rec != nil && rec.State == slot.StateTakeover && rec.TookFrom != t.Opt.From:
		return stopUsage(fmt.Sprintf("slot %q replaces slot %q, not %q", t.C.Slot, rec.TookFrom, t.Opt.From), "--from-slot "+rec.TookFrom+"; or begin again: cdc-relay teardown --yes")
	case t.completed(rec):
		return nil
	case rec != nil && rec.State != slot.StateTakeover:
		return stopUsage(fmt.Sprintf("slot %q is already used by a relay", t.C.Slot), "choose another source.slot for the takeover")
	case theirs == nil && rec == nil:
		return stopUsage(fmt.Sprintf("slot %q does not exist", t.Opt.From), "SELECT slot_name, plugin, active FROM pg_replication_slots")
	case theirs == nil && ours != nil:
		// An attempt that was interrupted has made the copy, or somebody a slot of its name.
		return stopOperator(fmt.Sprintf("slot %q no longer exists, and slot %q stands at %s: if that is its copy, it alone has what was not delivered", t.Opt.From, t.C.Slot, ours.ConfirmedFlush),
			fmt.Sprintf("keep slot %q; unless somebody made it by hand: UPDATE cdc_relay.slots SET state = 'adopt' WHERE slot = %s, and start the relay; else "+giveUp, t.C.Slot, source.QuoteText(t.C.Slot)))
	case theirs == nil:
		return stopOperator(fmt.Sprintf("slot %q no longer exists: what was committed and not delivered by then is in no slot", t.Opt.From), giveUp)
	case theirs.Type != "logical":
		return stopOperator(fmt.Sprintf("slot %q is a %s slot: it has no transactions to continue with", t.Opt.From, theirs.Type), "name a logical slot of this database")
	case theirs.Database != t.ID.Database:
		// the server would copy it all the same
		return stopOperator(fmt.Sprintf("slot %q belongs to database %q, not %q", t.Opt.From, theirs.Database, t.ID.Database), "correct source.url or --from-slot")
	}
	return nil
}

// checkOnlyTakeover makes sure that the slot is no relay's, and that no other relay replaces it for
// one of our tables: both relays would publish its rows.
func (t *Takeover) checkOnlyTakeover(ctx context.Context, db source.Querier) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	var other string
	err := db.QueryRow(ctx, `SELECT slot FROM cdc_relay.slots WHERE slot = $2 OR slot <> $1 AND took_from = $2 AND sends->'tables' ?| $3::text[] ORDER BY slot <> $2, slot LIMIT 1`,
		t.C.Slot, t.Opt.From, t.C.QuotedTables()).Scan(&other)
	switch {
	case source.IsNoRows(err):
		return nil
	case err != nil:
		return fmt.Errorf("read cdc_relay.slots: %w", err)
	case other == t.Opt.From:
		return stopUsage(fmt.Sprintf("slot %q is used by a relay: its deferred events would be left behind", other), "name a slot of another program")
	}
	return stopUsage(fmt.Sprintf("slot %q already replaces slot %q with the same tables: both relays would publish their rows", other, t.Opt.From),
		fmt.Sprintf("use source.slot: %s; or give that relay up first: cdc-relay teardown --yes, with its configuration", other))
}

// noCopy is the Stop for a slot of our name that was made otherwise.
func (t *Takeover) noCopy() *event.Stop {
	return stopOperator(fmt.Sprintf("slot %q already exists and is no copy of slot %q: the publication may have hidden rows from it, or it may lack some", t.C.Slot, t.Opt.From),
		"choose another source.slot; or "+source.DropSlotHint(t.C.Slot)+"; then run this again")
}

// changed is for record or slots that are not as they were a moment ago.
func (t *Takeover) changed() error {
	return stopOperator(fmt.Sprintf("the slots %q and %q, or what is remembered of the takeover, were changed in the meantime", t.C.Slot, t.Opt.From), "run this again")
}

// unfinished returns why the takeover cannot be completed now.
func (t *Takeover) unfinished(theirs *slot.View) error {
	s := t.state
	const again = "; then run this again"
	below := fmt.Sprintf("not complete: slot %q stands at %s, below %s, from where on publication %q has all rows", s.From, s.Confirmed, s.Start, t.C.Publication)
	switch passed := s.Confirmed >= s.Start; {
	case theirs.Invalidated():
		return stopOperator(fmt.Sprintf("slot %q was invalidated by the server (wal_status %s %s): what was committed after %s and not delivered is in no slot",
			s.From, theirs.WALStatus, theirs.Invalidation, s.Confirmed), giveUp)
	case s.Confirmed > theirs.Current:
		return stopOperator(fmt.Sprintf("slot %q says that %s is confirmed, and the server's WAL ends at %s: how far its program has sent is not known", s.From, s.Confirmed, theirs.Current), giveUp)
	case passed && theirs.Active():
		return stopOperator(fmt.Sprintf("not complete: slot %q has passed %s, and is active for %s", s.From, s.Start, s.Holder), "stop that program"+again)
	case passed:
		return nil
	case theirs.Active():
		return stopOperator(below, fmt.Sprintf("leave the program that reads it (%s) running until it has confirmed an event that was committed after that, and stop it", s.Holder)+again)
	}
	return stopOperator(below+", and nobody reads it: what was committed in between is in it alone", "start the program that reads it, until it has confirmed an event that was committed after that, and stop it"+again)
}
