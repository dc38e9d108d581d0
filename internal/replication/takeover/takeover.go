// Package takeover creates our slot next to another program's, and continues where that program
// stops.
package takeover

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/jackc/pgx/v5"
)

// Run makes our slot replace another program's, of whatever plugin, without losing anything. Ours
// is created first, at a position S, while the other program goes on with its own, so the WAL of
// the overlap is in both. Once the other slot's confirmed_flush_lsn T has reached S and the other
// program was stopped, T becomes durable in our slot's row, and ours is ready.
//
// Why nothing is lost. PostgreSQL sends by a slot those transactions whose commit record begins at
// or after the slot's position, and no other (SnapBuildXactNeedsSkip: it skips what is below). So a
// slot that was confirmed up to T will never be asked again for what was committed below T: the
// other program has done with it, or lost it by itself. Ours has all that was committed at or after
// S. With T >= S there is no transaction between the two; with T < S there may be, so that is
// waited for.
//
// Why nothing is skipped that was not sent, and no more is sent twice than must be. Every
// START_REPLICATION names T (replication.Stream), so the server itself compares with T, by the same
// rule and the same end of the commit record as it would for the other program started again: ours
// is sent just those transactions that the other one would be sent. What it has published of them
// already, after its last confirmation, is what arrives twice. An older T would only repeat more; a
// position that the other program never confirmed would lose what lies below it, so T is exactly
// its slot's position, not computed from it. It is read for the last time in the statement that
// finds the slot without a holder. A program that is started again after that publishes what we
// publish too, which check and a second takeover report; nothing is lost.
//
// Every step may be interrupted and repeated: the record in state takeover is written before the
// slot is created, and no relay starts a slot in that state. The other slot is dropped after T is
// durable.
//
// It creates slot and publication even if source.create is false. That key is about starting the
// relay, which without a slot would begin with what is committed from then on.
func Run(ctx context.Context, c source.Config, opt Options) (State, error) {
	state, err := run(ctx, c, opt)
	return state, slot.Named(ctx, c, err, 0)
}

func run(ctx context.Context, c source.Config, opt Options) (State, error) {
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
	if err := t.begin(ctx); err != nil {
		return t.state, source.OrFatal(&c, err)
	}
	if err := t.overlap(ctx); err != nil || !opt.Drop {
		return t.state, err
	}
	return t.state, t.drop(ctx)
}

// overlap waits until the takeover is complete.
func (t *Takeover) overlap(ctx context.Context) error {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if t.Opt.Wait >= 0 {
		waiting, cancel = context.WithTimeout(ctx, t.Opt.Wait)
	}
	defer cancel()
	var reported State
	for {
		last := waiting.Err() != nil && ctx.Err() == nil
		if err := slot.Locked(ctx, t.Pool, t.C, func(ctx context.Context) error { return t.step(ctx, last) }); err != nil {
			return err
		}
		// The position alone is not reported: it moves all the time.
		now := t.state
		now.Confirmed = reported.Confirmed
		if t.Opt.Tell != nil && now != reported {
			reported = t.state
			t.Opt.Tell(t.state)
		}
		if t.state.Complete {
			return nil
		}
		if last || !source.Sleep(waiting, takeoverPoll) && ctx.Err() != nil {
			return t.unfinished()
		}
	}
}

// freeFor is how long the other slot must not have been active, if there is time: a program that
// has only lost its connection is back by then, and would run in parallel with us.
const freeFor = 3 * time.Second

// step reads the positions of the two slots, and completes the takeover if possible. last: there is
// no later step.
func (t *Takeover) step(ctx context.Context, last bool) error {
	rec, ours, theirs, err := t.read(ctx)
	if err != nil {
		return err
	}
	if err := t.checkSlots(rec, theirs); err != nil {
		return err
	}
	if theirs != nil {
		t.state.Plugin, t.state.Confirmed = theirs.Plugin, theirs.ConfirmedFlush
		t.state.Active, t.state.Holder = theirs.Active(), theirs.HolderName()
	}
	if t.completed(rec) {
		t.state.Passed, t.state.Complete, t.state.Confirmed = true, true, rec.TookUntil
		return nil
	}
	if rec == nil || ours == nil {
		return tornDown(t.C)
	}
	if err := slot.CheckIdentity(t.C, rec, ours, t.ID); err != nil {
		return err
	}
	// its position S is not known yet, so nothing can have reached it
	if !ours.Made() || ours.Active() {
		if last {
			return errBeingMade
		}
		return nil
	}
	t.state.Start = ours.ConfirmedFlush // nobody has read it yet, so this is its start
	t.state.Passed = theirs.ConfirmedFlush >= ours.ConfirmedFlush
	switch {
	case !t.state.Passed && theirs.Invalidated():
		return t.gap(fmt.Sprintf("was invalidated by the server (wal_status %s %s)", theirs.WALStatus, theirs.Invalidation), theirs.ConfirmedFlush)
	case theirs.ConfirmedFlush > theirs.Current:
		return t.beyond(theirs)
	case t.state.Active:
		t.free = time.Time{}
		return nil
	case t.free.IsZero():
		t.free = time.Now()
	}
	if !t.state.Passed || !last && time.Since(t.free) < freeFor {
		return nil
	}
	return t.complete(ctx, rec, ours, theirs)
}

// complete makes durable that ours continues at the position of theirs, and that ours may be used.
func (t *Takeover) complete(ctx context.Context, rec *slot.Record, ours, theirs *slot.View) error {
	// Compared with the state before our slot was created: a change that hid rows in between is as
	// bad here as in a running relay.
	sent, err := publication.Check(ctx, t.Pool, t.C, rec.Sends)
	if err != nil {
		return err
	}
	sent = sent.KeepForeign(rec.Sends).After(rec.Sends)
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE cdc_relay.slots SET state = 'ready', sends = $3, took_until = $4, took_incarnation = `+slot.NextIncarnation+`,
				incarnation = `+slot.NextIncarnation+`, epoch = epoch + 1, changed_at = now()
			WHERE slot = $1 AND state = 'takeover' AND took_from = $2`, t.C.Slot, t.Opt.From, sent, theirs.ConfirmedFlush)
		if err == nil && tag.RowsAffected() != 1 {
			return tornDown(t.C)
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO cdc_relay.progress (slot, max_flush_lsn, reported, good) VALUES ($1, $2, $2, $2)
			ON CONFLICT (slot) DO UPDATE SET max_flush_lsn = $2, reported = $2, good = $2, at = now()`, t.C.Slot, ours.ConfirmedFlush)
		return err
	})
	if err != nil {
		return fmt.Errorf("write cdc_relay.slots: %w", err)
	}
	sent.LogForeign(ctx, t.Pool, t.C)
	t.state.Complete = true
	return nil
}

// drop drops the other slot, which is not needed after the takeover. A program that was started
// again in the meantime keeps it.
func (t *Takeover) drop(ctx context.Context) error {
	theirs, err := slot.Read(ctx, t.Pool, t.Opt.From)
	if err != nil {
		return err
	}
	if theirs == nil {
		t.state.Dropped = true
		return nil
	}
	if theirs.Active() {
		return t.inUseAgain(theirs)
	}
	if err := t.checkDrop(ctx, theirs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	_, err = t.Pool.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, t.Opt.From)
	if source.SQLState(err) == "55006" { // object_in_use
		return t.inUseAgain(theirs)
	}
	if err != nil {
		return fmt.Errorf("drop slot %q: %w", t.Opt.From, err)
	}
	t.state.Dropped = true
	if t.Opt.Tell != nil {
		t.Opt.Tell(t.state)
	}
	return nil
}
