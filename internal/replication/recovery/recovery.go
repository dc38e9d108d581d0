// Package recovery copies rows of the outbox that no slot sends into the retry table, from where a
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
package recovery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/tablerows"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Options say how to recover.
type Options struct {
	DryRun    bool
	Unordered bool   // copy although the order of the commits is not known
	OrderBy   string // a column of each table to order by; "": the commits
	Where     string // an SQL expression that the rows must meet; "": all of the gap
	Reason    string // for the audit
	SameData  bool   // this server has taken the place of the one that the slot was read from

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

// run is one run of a command.
type run struct {
	c      *source.Config
	opt    Options
	pool   *pgxpool.Pool
	stream *pgconn.PgConn
	id     slot.Identity
	began  time.Time

	resend *resend // nil: it is another command
	task   task
	was    publication.State // what is remembered of the slot
	// its tables may have rows of a dump: see slot.Record.Restored
	restored bool
	sent     publication.State // what the publication sends now
	tables   []table
	order    order
	report   Report
	audited  int64 // the number of the audit's row of the copy, which is there once it is committed
	// the commit of the copy was asked for: after an error it may have taken place
	committing bool
}

// Recover copies the rows of the gap of a lost slot, and makes a new slot; or those of the oldest
// gap that an operator has accepted, when the slot is in use again.
func Recover(ctx context.Context, c source.Config, opt Options) (Report, error) {
	return start(ctx, c, opt, (*run).recover, true)
}

// Backfill makes the first slot, and copies the rows from before it.
func Backfill(ctx context.Context, c source.Config, opt Options) (Report, error) {
	return start(ctx, c, opt, (*run).backfill, false)
}

// CheckWhere refuses an expression before init changes anything. A table that is still to be
// created is checked after that.
func CheckWhere(ctx context.Context, c source.Config, where string) error {
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return err
	}
	defer source.ClosePool(pool)
	r := &run{c: &c, pool: pool, opt: Options{Where: where}}
	var there []table
	for _, t := range c.Tables {
		var exists bool
		if err := pool.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, source.QuoteTable(t)).Scan(&exists); err != nil {
			return source.OrFatal(&c, err)
		}
		if exists {
			there = append(there, table{Table: tablerows.Table{Table: t}})
		}
	}
	return r.checkWhere(ctx, there)
}

// start connects and does it. used: there must have been a relay.
func start(ctx context.Context, c source.Config, opt Options, do func(*run, context.Context) error, used bool) (Report, error) {
	// As a takeover does: the key is about starting the relay, which would begin with what is
	// committed from then on.
	c.Create = true
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	if len(c.Tables) == 0 {
		return Report{}, usage("source.tables names no table: only rows of a table can be copied, logical messages are nowhere but in the WAL", "")
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
		return Report{}, usage("no relay has used this database: there is nothing to recover", "correct source.url")
	}
	r := &run{c: &c, opt: opt, pool: pool, began: time.Now().UTC().Truncate(time.Microsecond)}
	r.report.Slot, r.report.DryRun = c.Slot, opt.DryRun
	if r.stream, r.id, err = slot.Connect(ctx, pool, &c); err != nil {
		return r.report, source.OrFatal(&c, err)
	}
	defer source.CloseStream(r.stream)
	err = slot.Locked(ctx, pool, &c, func(ctx context.Context) error { return do(r, ctx) })
	if state := source.SQLState(err); !r.committing && (state == "25P03" || state == "57P01") {
		err = &event.Stop{
			Code: event.ExitFailure, Reason: "frozen", Err: err, Fix: "run it again",
			What: "the server ended the session, as it does if this process was frozen for a minute: nothing was copied",
		}
	}
	return r.report, source.OrFatal(&c, err)
}

// recover looks at everything first: whatever is wrong with the input changes nothing.
func (r *run) recover(ctx context.Context) error {
	rec, view, err := slot.ReadBoth(ctx, r.pool, r.c.Slot)
	if err != nil {
		return err
	}
	if err := r.findTask(ctx, rec, view); err != nil {
		return err
	}
	if err := r.prepare(ctx, false); err != nil {
		return err
	}
	if r.opt.DryRun || r.task.lost { // else the copy counts, before anything is changed
		if err := r.count(ctx, "", nil); err != nil {
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
