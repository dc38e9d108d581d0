// Package accept carries out an operator's decision to go on after exit 3, with what was found.
package accept

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Options are an operator's decision.
type Options struct {
	ID     string // of the finding, as the message has it
	Reason string // why, for the audit

	NewSlot bool // drop the slot, with what waits in it, and begin with a new one

	// of a server that is not the one the slot was read from; one of them, then
	SameData bool // it goes on in that one's place: what was deferred there is sent here
	Copy     bool // it is a copy: what was deferred there is sent there alone

	Rows Rows // what rows or messages are that the relay stops at
}

// Result is what was done.
type Result struct {
	Finding string `json:"finding"`
	Done    string `json:"done"` // one sentence
	Moved   int64  `json:"moved_rows"`
}

// Validate returns a Stop with exit code event.ExitUsage for options that exclude each other.
func (o Options) Validate() error {
	switch {
	case o.SameData && o.Copy:
		return usage("--same-data and --copy exclude each other", "")
	case o.Rows.given() > 1:
		return usage("--skip-rows, --skip-messages and --events exclude each other", "")
	case o.Rows.given() == 1 && (o.NewSlot || o.SameData || o.Copy):
		return usage("--new-slot, --same-data and --copy are about the slot, and not about rows that the relay stops at", "")
	case o.Rows.Of != "" && o.Rows.Events == "":
		return usage("--of needs --events", "")
	}
	return o.Rows.validate()
}

func usage(what, fix string) *event.Stop {
	return &event.Stop{Code: event.ExitUsage, Reason: "usage", What: what, Fix: fix}
}

// Run records that an operator accepts a finding, by its ID: the relay goes on at its next start,
// or by itself when it was started with --hold-on-fatal. It refuses with event.ExitUsage, and
// changes nothing, when another finding is there by now, or none, and while somebody reads the
// slot.
//
// The decision, the audit and the interval that may be missing are one transaction, which compares
// the record with what the ID was computed from. So an ID accepts what its reader has seen, and
// nothing that came later.
func Run(ctx context.Context, c source.Config, opt Options) (Result, error) {
	if err := cmp.Or(c.Validate(), opt.Validate()); err != nil {
		return Result{}, err
	}
	pool, err := source.ConnectPool(&c)
	if err != nil {
		return Result{}, err
	}
	defer source.ClosePool(pool)
	// Connect would create the schema, perhaps in another database than was meant.
	switch version, err := schema.Version(ctx, pool); {
	case err != nil:
		return Result{}, source.OrFatal(&c, err)
	case version == 0:
		return Result{}, usage("no relay has used this database: nothing was found here that could be accepted", "correct source.url")
	}
	stream, id, err := slot.Connect(ctx, pool, &c)
	if err != nil {
		return Result{}, source.OrFatal(&c, err)
	}
	defer source.CloseStream(stream)
	a := &acceptance{c: &c, pool: pool, stream: stream, opt: opt, result: Result{Finding: opt.ID}}
	err = slot.Locked(ctx, pool, &c, func(ctx context.Context) error {
		if opt.Rows.given() == 0 {
			if err := a.awaitFree(ctx); err != nil {
				return err
			}
		}
		if a.found, err = slot.Examine(ctx, pool, &c, id); err != nil {
			return err
		}
		if opt.Rows.given() > 0 {
			return a.rows(ctx)
		}
		return a.slot(ctx)
	})
	return a.result, err
}

// acceptance is one Run.
type acceptance struct {
	c      *source.Config
	pool   *pgxpool.Pool
	stream *pgconn.PgConn
	opt    Options
	found  *slot.Found
	result Result
}

// holderTimeout is how long the server may still show the slot as active after the relay's process
// has ended.
const holderTimeout = 5 * time.Second

// awaitFree waits a moment while a relay reads the slot, so that accept can follow its end at once.
func (a *acceptance) awaitFree(ctx context.Context) error {
	for give := time.Now().Add(holderTimeout); time.Now().Before(give); {
		view, err := slot.Read(ctx, a.pool, a.c.Slot)
		if err != nil || view == nil || !view.Active() || !view.ReadByRelay() || !source.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
	return nil
}

// refusal is what the next start would end with; nil: it uses the slot, or creates it.
func (a *acceptance) refusal(ctx context.Context) (stop *event.Stop, err error) {
	rec := a.found.Record
	first := rec == nil && a.found.View == nil || rec != nil && rec.State == slot.StateCreating
	tables, err := publication.FindTables(ctx, a.pool, a.c, first)
	if err == nil {
		a.c.Tables = tables // with their OIDs
		err = slot.Refusal(ctx, a.pool, a.c, a.found)
	}
	if err = a.found.Name(err, 0); err != nil && !errors.As(err, &stop) {
		return nil, err
	}
	return stop, nil
}

// slot accepts the slot as it is, or with NewSlot a new one.
func (a *acceptance) slot(ctx context.Context) error {
	stop, err := a.refusal(ctx)
	if err != nil {
		return err
	}
	if a.opt.ID != a.found.ID {
		other, err := a.otherSystem(ctx)
		switch {
		case err != nil:
			return err
		case other != "":
			return a.system(ctx, other)
		}
		return a.notOpen(ctx, stop)
	}
	// the command takeover has found it
	takeover := a.found.Record != nil && a.found.Record.State == slot.StateTakeover
	if stop != nil && stop.Finding == "" && !takeover {
		return usage("this cannot be accepted as it is: "+stop.What, stop.Fix)
	}
	if err := a.checkSlot(ctx); err != nil {
		return err
	}
	reason := "slot_moved" // as a relay found it that ran: the database alone does not show it
	if stop != nil {
		reason = stop.Reason
	}
	what := "the database does not show what the relay found"
	if stop != nil {
		what = stop.What
	}
	err = pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error { return a.write(ctx, tx, reason, what) })
	if err == nil {
		a.c.Log.Debug("accepted", zap.String("finding", a.opt.ID), zap.String("reason", reason))
	}
	return err
}

// checkSlot returns why the options do not fit what was found.
func (a *acceptance) checkSlot(ctx context.Context) error {
	rec, view := a.found.Record, a.found.View
	switch {
	case view != nil && view.Active():
		return usage(fmt.Sprintf("slot %q is active for %s", a.c.Slot, view.HolderName()), "stop it first")
	case a.moved() && !a.opt.SameData && !a.opt.Copy:
		return usage("this server is not the one that the slot was read from, and only you know which it is",
			"add --same-data if it goes on with the same data, or --copy if it is a copy and the other one goes on")
	case !a.moved() && (a.opt.SameData || a.opt.Copy):
		return usage("--same-data and --copy are for another server than the one that the slot was read from, and this is that one", "leave them out")
	case a.opt.NewSlot && view == nil:
		return usage(fmt.Sprintf("slot %q does not exist, so the next start makes a new one anyway", a.c.Slot), "leave --new-slot out")
	case a.opt.NewSlot && rec == nil:
		return usage(fmt.Sprintf("slot %q is no relay's: it is not dropped", a.c.Slot), source.DropSlotHint(a.c.Slot))
	case !a.opt.NewSlot && view != nil:
		why, err := slot.CannotBeReadOn(ctx, a.pool, a.c, a.found.Server, rec, view)
		if err != nil {
			return err
		}
		if why != "" {
			return usage(fmt.Sprintf("slot %q cannot be read on: %s", a.c.Slot, why),
				"add --new-slot, which drops it with what waits in it; or cdc-relay recover, which also sends what is still in the outbox table")
		}
	}
	return nil
}

// moved reports whether the record is of another server, or of another timeline of it.
func (a *acceptance) moved() bool { return a.found.Record.OfOther(a.found.Server) }

// notOpen says why the ID is not the finding's: it was accepted before, or something changed. The
// same command again is not refused while the next start has not used the decision.
func (a *acceptance) notOpen(ctx context.Context, now *event.Stop) error {
	before, err := a.before(ctx, "")
	if err != nil {
		return err
	}
	if rec := a.found.Record; before != "" && now == nil && rec != nil && rec.State == slot.StateAdopt {
		a.result.Done = "nothing: it was accepted " + before
		return nil
	}
	what := fmt.Sprintf("finding %s is not open: it was never found here, or has changed since", printable(a.opt.ID))
	if before != "" {
		what = fmt.Sprintf("finding %s is not open: it was accepted %s", printable(a.opt.ID), before)
	}
	if now == nil {
		return usage(what+", and nothing is found now about the slot", "if it is about rows, copy the whole command from the message, with its flags")
	}
	return usage(what+"; what is found now: "+now.What, now.Fix)
}

// before is when and by whom the ID was accepted, with this result; "": it was not.
func (a *acceptance) before(ctx context.Context, what string) (string, error) {
	var at, who string
	err := a.pool.QueryRow(ctx, `SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), who FROM cdc_relay.audit
		WHERE slot = $1 AND action = 'accept' AND starts_with(result, $2) ORDER BY seq DESC LIMIT 1`, a.c.Slot, auditResult(a.opt.ID, what)).Scan(&at, &who)
	switch {
	case source.IsNoRows(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read cdc_relay.audit: %w", err)
	}
	return "at " + at + " by " + who, nil
}

// printable bounds what somebody typed.
func printable(id string) string { return fmt.Sprintf("%.40q", id) }

// auditResult is the audit's result for an accepted finding.
func auditResult(id, what string) string { return "finding " + id + ": " + what }
