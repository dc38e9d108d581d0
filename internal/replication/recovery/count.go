// What there is, before anything is changed: rows, and what their order could be.

package recovery

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/replication/publication"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// prepare finds the tables.
func (r *run) prepare(ctx context.Context, first bool) (err error) {
	if r.c.Tables, err = publication.FindTables(ctx, r.pool, r.c, first); err != nil {
		return err
	}
	if err := slot.CheckReadable(ctx, r.pool, r.c); err != nil {
		return err
	}
	r.tables, err = r.describe(ctx)
	return err
}

// judge decides by what was counted whether the rows are sent, and in which order.
func (r *run) judge(ctx context.Context, f facts) error {
	if r.resend != nil && f.rows > dlq.MaxResent {
		fix := "narrow the choice, such as by --from and --to"
		if r.resend.Gap != 0 { // it is sent as a whole
			fix = "stop the relay and run `cdc-relay recover`, which takes any number"
		}
		return usage(fmt.Sprintf("%d rows are chosen, and one resend takes %d at most", f.rows, dlq.MaxResent), fix)
	}
	if err := r.checkKnown(f); err != nil {
		return err
	}
	fix, err := r.orderFix(ctx)
	if err != nil {
		return err
	}
	if r.order, err = chooseOrder(r.opt, f, r.tables, fix); err != nil {
		return err
	}
	r.nameTied(f)
	r.fill(f)
	return nil
}

// facts are what was counted.
type facts struct {
	tracked       bool // track_commit_timestamp is on
	rows, untimed int64
	unknown       int64 // of the rows: those that do not say which transaction wrote them
	timeless      int64 // of the rows: those of which --from and --to do not know the time
	leftOut       int64 // rows that the WHERE leaves out
	older         int64 // of the rows: those of transactions before one of which rows were sent
	// by table: all rows, NULL in the column to order by, and rows that have one place: see tiedSQL
	of, nulls, tied []int64
	held            int64 // deferred events and dead letters of the slot
}

// count reads every table once, under one snapshot ("": one that is taken now), and judges what it
// finds. then, if any, is called while the snapshot and the locks are held, to read the same rows.
func (r *run) count(ctx context.Context, snapshot string, then func(snapshot string, f facts) error) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	f := facts{of: make([]int64, len(r.tables)), nulls: make([]int64, len(r.tables)), tied: make([]int64, len(r.tables))}
	tx, err := beginRead(ctx, conn, snapshot)
	if err == nil && then != nil {
		snapshot, err = r.keepSnapshot(ctx, tx)
	}
	if err == nil {
		// ids of transactions that another server gave have no commit here
		moved := r.task.movedFrom != "" && r.task.movedFrom != r.id.SystemID
		err = tx.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool AND NOT $3::bool, (SELECT count(*) FROM cdc_relay.retry WHERE slot = $1 AND system_id = $2)
			+ (SELECT count(*) FROM cdc_relay.dead_letter WHERE slot = $1 AND system_id = $2 AND state <> 'purged')`, r.c.Slot, r.id.SystemID, moved).Scan(&f.tracked, &f.held)
	}
	for i := 0; i < len(r.tables) && err == nil; i++ {
		err = r.countTable(ctx, tx, i, &f)
	}
	if err != nil {
		return r.readError("count rows", err)
	}
	if err := r.judge(ctx, f); err != nil || then == nil {
		return err
	}
	return then(snapshot, f)
}

// keepSnapshot exports the snapshot of a transaction, which the server ends if this process is
// frozen, in place of the one that the creation of the slot has exported. That one would be held
// for as long as the replication connection is idle.
func (r *run) keepSnapshot(ctx context.Context, tx pgx.Tx) (snapshot string, err error) {
	err = tx.QueryRow(ctx, `SELECT pg_export_snapshot()`).Scan(&snapshot)
	if err == nil && r.stream != nil {
		_, err = slot.Identify(ctx, r.stream) // any command drops it
	}
	return snapshot, err
}

// countTable adds what is found in a table.
func (r *run) countTable(ctx context.Context, tx pgx.Tx, i int, f *facts) error {
	t := &r.tables[i]
	name := source.QuoteTable(t.Table.Table)
	if err := tableread.Lock(ctx, tx, r.pool, name); err != nil {
		return err
	}
	null, timeless := "false", "false"
	if t.by != nil {
		null = t.by.quoted() + " IS NULL"
	}
	if t.named.time != "" {
		timeless = t.named.time + " IS NULL"
	}
	before := "false" // a row that was sent
	if t.tx != "" && r.task.lost {
		before = t.tx + " < (SELECT max(last_tx) FROM cdc_relay.sent WHERE slot = " + source.QuoteText(r.c.Slot) + " AND at < 'infinity' AND relation = ANY (" + sent.OIDArray(t.family) + "))"
	}
	var rows, untimed, unknown, none, tied, older, leftOut int64
	err := tx.QueryRow(ctx, r.withSQL(t)+`SELECT count(*) FILTER (WHERE ours), count(*) FILTER (WHERE ours AND untimed), count(*) FILTER (WHERE ours AND unknown),
			count(*) FILTER (WHERE ours AND is_null), count(*) FILTER (WHERE ours AND timeless), count(*) FILTER (WHERE ours AND tied), count(*) FILTER (WHERE ours AND older), count(*) FILTER (WHERE ours IS NOT TRUE)
		FROM (SELECT `+r.conditionSQL()+" AS ours, "+r.untimedSQL(t, f.tracked)+" AS untimed, "+t.transactionSQL()+" IS NULL AS unknown, "+null+" AS is_null, "+timeless+" AS timeless, "+r.tiedSQL(t)+" AS tied, "+before+" AS older FROM "+
		t.From+" t WHERE "+r.unsentSQL(t)+r.windowSQL(t)+") t").
		Scan(&rows, &untimed, &unknown, &f.nulls[i], &none, &tied, &older, &leftOut)
	if err != nil {
		return r.asWhereError(err)
	}
	if err := r.nameLeftOut(ctx, tx, t); err != nil {
		return r.asWhereError(err)
	}
	f.of[i], f.tied[i], f.older = rows, tied, f.older+older
	f.rows, f.untimed, f.unknown, f.timeless, f.leftOut = f.rows+rows, f.untimed+untimed, f.unknown+unknown, f.timeless+none, f.leftOut+leftOut
	return tableread.Check(ctx, r.pool, name)
}

// nameLeftOut puts into the report how many rows of a table are not known to be sent, and are left
// out all the same: nobody expects this slot to send those that were there before it, and of those
// that name no transaction nothing is known.
func (r *run) nameLeftOut(ctx context.Context, tx pgx.Tx, t *table) error {
	// else rows of no transaction are refused: see checkKnown
	unsent := r.resend != nil && r.resend.Unsent
	if t.tx == "" || r.report.backfill || r.resend != nil && !r.resend.knowsSent() || t.first == "" && !unsent && r.task.until == 0 {
		return nil
	}
	after := "false" // of an accepted gap: what the slot does not send of it, has a later number
	if r.task.until > 0 {
		after = "NOT " + t.beforeSQL() + " AND NOT (" + r.ofGapSQL(t) + ")"
	}
	if r.resend != nil && r.resend.past != "" {
		after += fmt.Sprintf(" AND pg_visible_in_snapshot((%s)::text::xid8, %s::pg_snapshot)", t.tx, source.QuoteText(r.resend.past))
	}
	var before, unknown, later int64
	err := tx.QueryRow(ctx, r.withSQL(t)+"SELECT count(*) FILTER (WHERE "+t.beforeSQL()+"), count(*) FILTER (WHERE "+t.tx+" IS NULL), count(*) FILTER (WHERE "+after+") FROM "+
		t.From+" t WHERE "+t.notSentSQL()+" AND "+r.conditionSQL()).Scan(&before, &unknown, &later)
	if err != nil {
		return err
	}
	r.name(t, before, "whose transactions the table had before the slot was made are left out")
	r.name(t, later, "are not known to be sent and came after the gap: what the slot does not send of them, `cdc-relay resend --unsent` does")
	if unsent {
		r.name(t, unknown, "that do not say which transaction wrote them are left out: choose them by --where or --id")
	}
	return nil
}

// nameTied puts into the report what of the order is a guess.
func (r *run) nameTied(f facts) {
	what, over := "", ""
	switch r.order {
	case byNamed:
		what = fmt.Sprintf("have the same %s as others of their key: these go as they are stored", r.opt.OrderBy)
		over = "rows of a key with the same " + r.opt.OrderBy + " in several tables go in any order"
	case byCommit:
		what = "have their key and transaction with others: these go in the order of their commands and as they are stored, which is mostly that of the inserts; --order-by takes a column that rises with each row"
		over = "rows of a key that one transaction wrote into several tables go in the order of their commands, which is mostly that of the inserts"
	case unordered, unneeded:
		return
	}
	tables := 0
	for i := range r.tables {
		r.name(&r.tables[i], f.tied[i], what)
		if f.of[i] > 0 {
			tables++
		}
	}
	if tables > 1 {
		r.note(over)
	}
	if f.older > 0 {
		r.note(fmt.Sprintf("%d rows are of transactions before one of which rows were sent: of their keys newer events may have been sent before", f.older))
	}
}

// name puts something about rows of a table into the report.
func (r *run) name(t *table, rows int64, what string) {
	if rows > 0 {
		r.note(fmt.Sprintf("table %s: %d rows %s", t, rows, what))
	}
}

func (r *run) note(what string) {
	if !slices.Contains(r.report.Named, what) { // a lost slot's are counted twice
		r.report.Named = append(r.report.Named, what)
	}
}

// checkKnown refuses to send rows, or to leave them out, of which nobody can say whether they were
// sent, or whether they are of the time that is named.
func (r *run) checkKnown(f facts) error {
	if f.timeless > 0 {
		return usage(fmt.Sprintf("--from and --to: the time of %d rows is not known: no timestamp column has it, and the server does not know when they were committed", f.timeless),
			"choose the rows by --where; with track_commit_timestamp = on the time of later commits is known")
	}
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
