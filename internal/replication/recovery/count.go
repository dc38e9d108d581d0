// What there is, before anything is changed: rows, and what their order could be.

package recovery

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// prepare finds the tables, counts the rows and chooses their order.
func (r *run) prepare(ctx context.Context, first bool) (err error) {
	if r.c.Tables, err = publication.FindTables(ctx, r.pool, r.c, first); err != nil {
		return err
	}
	if err := slot.CheckReadable(ctx, r.pool, r.c); err != nil {
		return err
	}
	if r.tables, err = r.describe(ctx); err != nil {
		return err
	}
	facts, err := r.count(ctx)
	if err != nil {
		return err
	}
	if err := r.checkKnown(facts); err != nil {
		return err
	}
	fix, err := r.orderFix(ctx)
	if err != nil {
		return err
	}
	if r.order, err = chooseOrder(r.opt, facts, r.tables, fix); err != nil {
		return err
	}
	r.fill(facts)
	return nil
}

// facts are what was counted.
type facts struct {
	tracked       bool // track_commit_timestamp is on
	rows, untimed int64
	unknown       int64   // of the rows: those that do not say which transaction wrote them
	leftOut       int64   // rows that the WHERE leaves out
	nulls         []int64 // of the column to order by, by table
	held          int64   // deferred events and dead letters of the slot
}

// count reads every table once, under one snapshot.
func (r *run) count(ctx context.Context) (f facts, err error) {
	f.nulls = make([]int64, len(r.tables))
	err = tableread.Alone(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		for _, sql := range readSettings {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		// ids of transactions that another server gave have no commit here
		moved := r.task.movedFrom != "" && r.task.movedFrom != r.id.SystemID
		err := tx.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool AND NOT $3::bool, (SELECT count(*) FROM cdc_relay.retry WHERE slot = $1 AND system_id = $2)
			+ (SELECT count(*) FROM cdc_relay.dead_letter WHERE slot = $1 AND system_id = $2 AND state <> 'purged')`, r.c.Slot, r.id.SystemID, moved).Scan(&f.tracked, &f.held)
		if err != nil {
			return err
		}
		for i := range r.tables {
			t := &r.tables[i]
			if err := tableread.Lock(ctx, tx, r.pool, source.QuoteTable(t.Table.Table)); err != nil {
				return err
			}
			null := "false"
			if t.by != nil {
				null = t.by.quoted() + " IS NULL"
			}
			var rows, untimed, unknown, leftOut int64
			err := tx.QueryRow(ctx, r.withSQL(t)+"SELECT count(*) FILTER (WHERE ours), count(*) FILTER (WHERE ours AND untimed), count(*) FILTER (WHERE ours AND unknown), count(*) FILTER (WHERE ours AND is_null), count(*) FILTER (WHERE ours IS NOT TRUE) FROM (SELECT "+
				r.conditionSQL()+" AS ours, "+t.untimedSQL(f.tracked)+" AS untimed, "+t.transactionSQL()+" IS NULL AS unknown, "+null+" AS is_null FROM "+source.QuoteTable(t.Table.Table)+" t WHERE "+r.unsentSQL(t)+t.windowSQL(f.tracked)+") t").
				Scan(&rows, &untimed, &unknown, &f.nulls[i], &leftOut)
			if err != nil {
				return r.asWhereError(err)
			}
			f.leftOut += leftOut
			if err := tableread.Check(ctx, r.pool, source.QuoteTable(t.Table.Table)); err != nil {
				return err
			}
			f.rows, f.untimed, f.unknown = f.rows+rows, f.untimed+untimed, f.unknown+unknown
		}
		return nil
	})
	return f, r.readError("count rows of the gap", err)
}

// readSettings are those of a transaction that reads whole tables. Nested loops would go through
// the sent set once per row, if its size is misjudged.
var readSettings = []string{"SET LOCAL statement_timeout = 0", "SET LOCAL enable_nestloop = off", "SET LOCAL jit = off"}

// checkKnown refuses to send rows of which nobody can say whether they were sent, without a word
// about them.
func (r *run) checkKnown(f facts) error {
	if r.report.backfill || r.resend == nil && r.opt.Where != "" || r.resend != nil && !r.resend.knowsSent() {
		return nil
	}
	for i := range r.tables {
		t := &r.tables[i]
		switch {
		case t.tx == "" && r.resend != nil:
			return usage(fmt.Sprintf("table %s has no column for the transaction that wrote a row (outbox.transaction): which rows were sent is not known", t),
				"choose the rows by --id, --key, --from and --to or --where; and run `cdc-relay init --add-transaction-column`, so that it is known from then on")
		case t.tx == "":
			return usage(fmt.Sprintf("table %s has no column for the transaction that wrote a row (outbox.transaction): which rows were sent is not known", t),
				"choose the rows: --where EXPR, or --where true for all; and run `cdc-relay init --add-transaction-column`, so that it is known from then on")
		}
	}
	if f.unknown > 0 && !r.opt.DryRun && r.resend != nil && r.resend.Gap != 0 {
		return usage(fmt.Sprintf("%d of %d rows do not say which transaction wrote them: whether they were sent is not known", f.unknown, f.rows),
			"send what you choose with --where, and close the gap: `cdc-relay resend --gap N --none --reason TEXT`")
	}
	if f.unknown > 0 && !r.opt.DryRun && r.resend == nil { // --unsent leaves them out
		return usage(fmt.Sprintf("%d of %d rows do not say which transaction wrote them: whether they were sent is not known", f.unknown, f.rows),
			"choose the rows: --where true sends them too, and --where 'tx IS NOT NULL' leaves them out, with the name of your column")
	}
	return nil
}
