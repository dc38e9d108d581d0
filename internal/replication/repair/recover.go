// Package repair copies rows of the outbox that no slot sends into the retry table, from where a
// relay delivers them before newer events of their ordering group.
//
// Recover is for a slot that is lost, and for a gap that an operator has accepted. Backfill is for
// the rows from before a new slot. Both take the rows from the table: the WAL is gone.
//
// Which rows. Nothing is guessed: the sent set says which rows the broker has confirmed (package
// sent), and the others are copied, but for those that the retry table or the dead letters have and
// those that were there before the slot was. See choice.go. What was confirmed and not recorded
// when a relay was killed is sent again, with its id.
//
// Why no row is lost between the copy and the slot. CREATE_REPLICATION_SLOT exports the snapshot of
// the slot's start C: it shows the transactions whose commit record is before C, and no other. The
// slot sends the transactions whose commit record is at C or after it (SnapBuildXactNeedsSkip), and
// no other. So of each row one of three things is true. It is in the sent set. Or the snapshot
// shows it, and it is copied: all tables are read in that one snapshot. Or it is in the slot. The
// copies and the slot's record are committed in one transaction. Before that the record has the
// position that was reported last, which is below C, so a relay refuses the slot (exit 3); after
// that nothing is missing.
//
// What a kill leaves: the record as it was, in state creating from before the old slot is dropped
// until the commit. A relay refuses it (exit 3), whatever became of the slot, and the next recover
// drops what is there, and starts over from the same record.
package repair

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// RecoverOptions say how to recover.
type RecoverOptions struct {
	DryRun    bool
	Unordered bool   // copy although the order of the commits is not known
	OrderBy   string // a column of each table to order by; "": the commits
	// OrderBy may have a default that is set when a transaction begins, such as now().
	OrderByBegin bool
	Where        string // an SQL expression that the rows must meet; "": all of the gap
	Reason       string // for the audit
	SameData     bool   // this server has taken the place of the one that the slot was read from

	Sink  Router
	Scope event.Scope
	// Progress is called now and then while rows are copied, from one goroutine; nil: nobody asks.
	Progress func(done, of int64)
}

// Router names where an event goes, without asking the broker. sink.Sink implements it.
type Router interface {
	Place(ev *event.Event) (p sink.Place, ok bool)
	Route(ev *event.Event) event.Route
}

// run is one run of recover, of init --backfill or of a resend.
type run struct {
	c      *source.Config
	opt    RecoverOptions
	pool   *pgxpool.Pool
	stream *pgconn.PgConn // the replication connection; nil: a resend has none
	id     slot.Identity
	began  time.Time // to the microsecond: the commit time of rows whose own is not known

	resend     *resendRun // nil: it is another command
	task       task
	remembered schema.Sends // what is remembered of the slot
	restored   bool         // its tables may have rows of a dump: see slot.Record.Restored
	sent       schema.Sends // what the publication sends now; for a new slot
	tables     []outboxTable
	order      order
	report     Report
	// the number of the copy's row in the audit, which is there once it is committed
	audited int64
	// committing: the commit of the copy was asked for, so after an error it may have taken place
	committing bool
}

// Recover copies the rows of the gap of a lost slot, and makes a new slot; or those of the oldest
// gap that an operator has accepted, when the slot is in use again.
func Recover(ctx context.Context, c source.Config, opt RecoverOptions) (Report, error) {
	return startRun(ctx, c, opt, (*run).runRecover, true)
}

// Backfill makes the first slot, and copies the rows from before it.
func Backfill(ctx context.Context, c source.Config, opt RecoverOptions) (Report, error) {
	return startRun(ctx, c, opt, (*run).runBackfill, false)
}

// CheckWhere refuses a WHERE that is not a condition on each table that exists, before init changes
// anything. Tables that init creates are checked after that.
func CheckWhere(ctx context.Context, c source.Config, where string) error {
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return err
	}
	defer source.ClosePool(pool)
	r := &run{c: &c, pool: pool, opt: RecoverOptions{Where: where}}
	var there []outboxTable
	for _, t := range c.Tables {
		var exists bool
		if err := pool.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, source.QuoteTable(t)).Scan(&exists); err != nil {
			return source.OrFatal(&c, err)
		}
		if exists {
			there = append(there, outboxTable{Table: Table{Table: t}})
		}
	}
	return r.checkWhere(ctx, there)
}

// startRun connects, takes the lock on the slot's creation, and calls do. used: without a schema of
// a relay it is refused.
func startRun(ctx context.Context, c source.Config, opt RecoverOptions, do func(*run, context.Context) error, used bool) (Report, error) {
	// As a takeover does: the key is about starting the relay, which would begin with what is
	// committed from then on.
	c.Create = true
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	if len(c.Tables) == 0 {
		return Report{}, usageStop("source.tables names no table: only rows of a table can be copied, logical messages are nowhere but in the WAL", "")
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return Report{}, err
	}
	defer source.ClosePool(pool)
	// Connect would create the schema, perhaps in another database than was meant.
	switch version, err := schema.Version(ctx, pool); {
	case err != nil:
		return Report{}, source.OrFatal(&c, err)
	case used && version == 0:
		return Report{}, usageStop("no relay has used this database: there is nothing to recover", "correct source.url")
	}
	r := &run{c: &c, opt: opt, pool: pool, began: time.Now().UTC().Truncate(time.Microsecond)}
	r.report.Slot, r.report.DryRun = c.Slot, opt.DryRun
	if r.stream, r.id, err = slot.Connect(ctx, pool, &c); err != nil {
		return r.report, source.OrFatal(&c, err)
	}
	defer source.CloseStream(r.stream)
	err = slot.WithCreationLock(ctx, pool, &c, func(ctx context.Context) error { return do(r, ctx) })
	if state := source.SQLState(err); !r.committing && (state == "25P03" || state == "57P01") {
		err = &event.Stop{
			Code: event.ExitFailure, Reason: "frozen", Err: err, Fix: "run it again",
			What: "the server ended the session, as it does if this process was frozen for a minute: nothing was copied",
		}
	}
	return r.report, source.OrFatal(&c, err)
}

// runRecover is the command of that name. It checks everything first: whatever is wrong with the
// input changes nothing.
func (r *run) runRecover(ctx context.Context) error {
	rec, view, err := slot.ReadBoth(ctx, r.pool, r.c.Slot)
	if err != nil {
		return err
	}
	if err := r.findTask(ctx, rec, view); err != nil {
		return err
	}
	if err := r.prepareTables(ctx, false); err != nil {
		return err
	}
	if r.opt.DryRun || r.task.lost { // else the copy counts, before anything is changed
		if err := r.countRows(ctx, "", nil); err != nil {
			return err
		}
	}
	if err := r.checkTables(ctx); err != nil || r.opt.DryRun {
		return err
	}
	if r.task.lost {
		return r.replaceSlot(ctx, rec, view)
	}
	return r.fillGap(ctx)
}

// task says whether a run recovers a lost slot or an accepted gap.
type task struct {
	lost bool // the slot is lost: a new one is made
	// movedFrom is the system whose deferred events are sent here from now on; "", or this one:
	// there is none.
	movedFrom string
	// until is the transaction at which an accepted gap ends: the slot sends what this one and
	// later ones wrote; 0: no bound.
	until int64
	// The gap in the WAL, as far as it is known. It is for the report: no row is chosen by it.
	fromLSN, untilLSN pglogrepl.LSN
	gap               int64 // the id of the accepted gap; 0: the slot is lost
	incarnation       int64 // of the gap
	later             int64 // accepted gaps that are left to the next run
}

// findTask finds out what there is to recover: a lost slot or an accepted gap. If there is neither,
// or it cannot be recovered now, the error is a usageStop.
func (r *run) findTask(ctx context.Context, rec *slot.Record, view *slot.View) error {
	c := r.c
	switch {
	case rec == nil:
		return usageStop(fmt.Sprintf("there is nothing to recover: no relay has used slot %q in this database", c.Slot),
			"for rows from before the first slot run `cdc-relay init --backfill`")
	case rec.State == slot.StateTakeover:
		return usageStop(fmt.Sprintf("the takeover by slot %q from slot %q is not complete", c.Slot, rec.TookFrom),
			"finish it, or give it up with `cdc-relay teardown --yes`")
	case rec.State == slot.StateCreating && !rec.Used:
		return usageStop(fmt.Sprintf("there is nothing to recover: slot %q was never in use", c.Slot), "for rows from before it run `cdc-relay init --backfill`")
	case view != nil && view.NotOurs(r.id.Database) != "":
		return usageStop(fmt.Sprintf("slot %q %s: recover does not touch it", c.Slot, view.NotOurs(r.id.Database)), "correct source.slot, or choose another one")
	case view != nil && view.Active() && !(rec.State == slot.StateCreating && view.HalfMade()):
		return usageStop(fmt.Sprintf("slot %q is in use by %s: recover runs while no relay does", c.Slot, view.HolderName()), "stop every relay of this slot, and run it again")
	}
	lost, err := r.isLost(ctx, rec, view)
	if err != nil {
		return err
	}
	if err := r.checkServer(rec); err != nil && lost {
		return err
	}
	if r.remembered, err = rec.SentBefore(ctx, r.pool, r.id); err != nil {
		return err
	}
	r.restored = rec.Restored || rec.SystemID != r.id.SystemID
	if lost {
		r.task = task{lost: true, movedFrom: rec.SystemID, fromLSN: rec.Reported}
		return r.checkAccepted(ctx, rec)
	}
	return r.findGap(ctx, rec, view)
}

// isLost reports whether nothing more can be read from the slot.
//
// A slot that somebody else has created again is not lost: it has what was committed since, also
// rows that are deleted by now. An operator accepts it, and then its gap is recovered.
func (r *run) isLost(ctx context.Context, rec *slot.Record, view *slot.View) (bool, error) {
	if view == nil || rec.State == slot.StateCreating {
		return true, nil
	}
	why, err := slot.CannotBeReadOn(ctx, r.pool, r.c, r.id, rec, view)
	return why != "", err
}

// checkServer wants --same-data when the slot was read from another server, or on another timeline
// of it: only an operator knows whether this one has taken its place.
func (r *run) checkServer(rec *slot.Record) error {
	moved := rec.IsOfOtherServer(r.id)
	switch {
	case moved && !r.opt.SameData:
		return usageStop(fmt.Sprintf("slot %q was read from system %s on timeline %d, and this is system %s on timeline %d", r.c.Slot, rec.SystemID, rec.Timeline, r.id.SystemID, r.id.Timeline),
			"if this server goes on with the same data, add --same-data, which has its deferred events sent too; if it is a copy, see `cdc-relay check`")
	case !moved && r.opt.SameData:
		return usageStop("--same-data is for another server than the one that the slot was read from, and this is that one", "leave it out")
	}
	return nil
}

// checkAccepted refuses a lost slot that was accepted without a gap, as that of a copy is. If there
// is a gap, it is where the report begins.
func (r *run) checkAccepted(ctx context.Context, rec *slot.Record) error {
	var open int64
	var at pglogrepl.LSN
	err := r.pool.QueryRow(ctx, `SELECT count(*), coalesce(min(from_lsn), '0/0')
		FROM cdc_relay.gap WHERE slot = $1 AND system_id = $2 AND recovered_at IS NULL AND until_xid IS NULL`, r.c.Slot, r.id.SystemID).Scan(&open, &at)
	if err != nil {
		return fmt.Errorf("read cdc_relay.gap: %w", err)
	}
	if open == 0 && rec.State == slot.StateAdopt && !rec.IsOfOtherServer(r.id) {
		return usageStop(fmt.Sprintf("there is nothing to recover: slot %q is accepted without a gap, as that of a copy is, whose original sends what was committed before", r.c.Slot),
			"start the relay, which makes a new slot")
	}
	if open > 0 {
		r.task.fromLSN = at
	}
	return nil
}

// findGap finds the oldest gap that an operator has accepted and nobody has recovered.
func (r *run) findGap(ctx context.Context, rec *slot.Record, view *slot.View) error {
	c := r.c
	if r.opt.SameData {
		return usageStop("--same-data is for a slot that is lost", "leave it out")
	}
	if rec.State == slot.StateAdopt {
		return usageStop(fmt.Sprintf("slot %q is accepted, and no relay has used it since", c.Slot),
			"start the relay once, which begins where the slot is, and stop it; then run `cdc-relay recover`")
	}
	found, err := slot.ExamineState(ctx, r.pool, c, r.id)
	if err != nil {
		return err
	}
	stop, err := found.NextStop(ctx, r.pool, c)
	switch {
	case err != nil:
		return err
	case stop != nil:
		return usageStop("the slot is not lost, but a relay does not use it: "+stop.What, stop.Fix)
	}
	t := &r.task
	err = r.pool.QueryRow(ctx, `SELECT g.id, g.incarnation, g.until_xid::text::bigint, coalesce(g.from_lsn, '0/0'), coalesce(g.until_lsn, '0/0'), count(*) OVER () - 1
		FROM cdc_relay.gap g WHERE g.slot = $1 AND g.system_id = $2 AND g.recovered_at IS NULL AND g.until_xid IS NOT NULL ORDER BY g.id LIMIT 1`,
		c.Slot, r.id.SystemID).Scan(&t.gap, &t.incarnation, &t.until, &t.fromLSN, &t.untilLSN, &t.later)
	if source.IsNoRows(err) {
		return usageStop(fmt.Sprintf("there is nothing to recover: slot %q is in order, and no accepted gap is open", c.Slot), "")
	}
	if err != nil {
		return fmt.Errorf("read cdc_relay.gap: %w", err)
	}
	return r.checkEnded(ctx)
}

// checkEnded refuses to run while a transaction of this database is open that began before the
// accepted gap ended. It may have written while the publication did not have the table, so the slot
// sends nothing of it, and its rows are not visible yet. A transaction that writes holds the lock
// of its own id, which every role may see.
func (r *run) checkEnded(ctx context.Context) error {
	var open bool
	err := r.pool.QueryRow(ctx, `SELECT EXISTS (
			SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted AND datname = current_database() AND age(l.transactionid) > age($1::text::xid))
		OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database() AND age(transaction) > age($1::text::xid))`,
		strconv.FormatUint(uint64(uint32(r.task.until)), 10)).Scan(&open)
	if err != nil {
		return fmt.Errorf("read which transactions are open: %w", err)
	}
	if !open {
		return nil
	}
	list, err := source.OpenTransactions(ctx, r.pool, true)
	if err != nil {
		return err
	}
	return usageStop("transactions that began before the gap ended are still open, and may have rows of it: "+source.OpenTransactionsText(list), source.EndTransactionsHint(list)+"; then run it again")
}

// Report is the result of a run. Of a dry run the numbers are those that it would have, at most.
type Report struct {
	Slot   string `json:"slot"`
	DryRun bool   `json:"dry_run"`
	// rows that are copied into the retry table
	Recovered int64 `json:"recovered"`
	// rows that are deferred or dead letters already, and stay so; of a dry run at most
	Held int64 `json:"already_held"`
	// deferred events and dead letters of the server that this one replaces, which are this one's
	// now
	Moved int64 `json:"moved_rows"`
	// rows that the condition leaves out: they are not known to be sent, as before
	LeftOut int64  `json:"left_out"`
	Order   string `json:"order"`
	// of the copied rows, those that do not say which transaction wrote them
	Unknown int64 `json:"rows_without_transaction"`
	// the gap in the WAL, as far as it is known: no row is chosen by it
	FromLSN  string `json:"from_lsn,omitempty"`
	UntilLSN string `json:"until_lsn,omitempty"`
	// The slot is in use again: newer events of a key were sent before these.
	NewerSent bool `json:"newer_sent_before"`
	// what nothing can bring back, in sentences
	Lost []string `json:"cannot_be_recovered"`
	// what is taken for something else than it was, or not read, in sentences
	Named []string `json:"named"`
	// accepted gaps that are left to the next run
	OpenGaps int64 `json:"open_gaps"`

	counted  int64
	backfill bool
}

// fillReport puts into the report what is known once the rows are counted.
func (r *run) fillReport(f counts) {
	rep := &r.report
	rep.counted, rep.Recovered, rep.Order = f.rows, f.rows, string(r.order)
	if r.order == byNamed {
		rep.Order = fmt.Sprintf("column %q", r.opt.OrderBy)
	}
	t := &r.task
	rep.Unknown, rep.OpenGaps, rep.NewerSent = f.unknown, t.later, t.gap != 0
	if t.fromLSN != 0 {
		rep.FromLSN = t.fromLSN.String()
	}
	if t.untilLSN != 0 {
		rep.UntilLSN = t.untilLSN.String()
	}
	rep.Held, rep.LeftOut = min(f.held, f.rows), f.leftOut
	rep.Lost = []string{}
	if rep.backfill || r.resend != nil {
		return
	}
	rep.Lost = append(rep.Lost, "rows that were deleted from "+r.c.TableNames()+" before now: nothing shows how many")
	if prefix := r.c.Messages.Prefix; prefix != "" {
		rep.Lost = append(rep.Lost, "logical messages with prefix "+prefix+": only the WAL had them")
	}
}

// auditAction is the name of the command, as the audit has it.
func (rep *Report) auditAction() string {
	if rep.backfill {
		return "backfill"
	}
	return "recover"
}

// auditText is the result as the audit has it: no names from rows.
func (rep *Report) auditText() string {
	return fmt.Sprintf("%d rows copied into the retry table, %d were held, %d were left out by a condition; order: %s",
		rep.Recovered, rep.Held, rep.LeftOut, rep.Order)
}

// usageStop is the Stop (exit 2) for input that does not fit: nothing is changed.
func usageStop(what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitUsage, Reason: "usage", What: what, Fix: fix}
}

// readError is the error of a run after an error of reading a table; nil for nil.
func (r *run) readError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if refusal, refused := sent.IsRefusal(err); refused {
		return &event.Stop{
			Code: event.ExitFailure, Reason: "rights",
			What: fmt.Sprintf("table %s, whose rows are copied, %s", refusal.Table, refusal.Why), Fix: refusal.Fix,
		}
	}
	if stop := (*event.Stop)(nil); errors.As(err, &stop) {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// asWhereError turns an error about values into a usageStop if there is a WHERE: it may be right in
// form and divide by zero.
func (r *run) asWhereError(err error) error {
	if state := source.SQLState(err); r.opt.Where != "" && len(state) == 5 && state[:2] == "22" {
		return usageStop("the WHERE fails at a row: "+source.OneLine(err).Error(), "correct it")
	}
	return err
}
