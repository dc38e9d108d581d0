// Counting the rows before anything is changed, and finding an order for them.

package repair

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/schema"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// prepareTables finds the configured tables and what they are; first: a missing one is a wrong
// configuration, and not a loss.
func (r *run) prepareTables(ctx context.Context, first bool) (err error) {
	if r.c.Tables, err = schema.FindTables(ctx, r.pool, r.c, first); err != nil {
		return err
	}
	if err := slot.CheckReadable(ctx, r.pool, r.c); err != nil {
		return err
	}
	r.tables, err = r.describeTables(ctx)
	return err
}

// judgeCounts decides by the counts whether the rows are sent, and in which order.
func (r *run) judgeCounts(ctx context.Context, f counts) error {
	if r.resend != nil && f.rows > dlq.MaxResent {
		fix := "narrow the choice, such as by --from and --to"
		if r.resend.Gap != 0 { // it is sent as a whole
			fix = "stop the relay and run `cdc-relay recover`, which takes any number"
		}
		return usageStop(fmt.Sprintf("%d rows are chosen, and one resend takes %d at most", f.rows, dlq.MaxResent), fix)
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
	r.fillReport(f)
	return nil
}

// counts are the results of counting the rows.
type counts struct {
	tracked  bool  // commit timestamps can be used: track_commit_timestamp is on
	rows     int64 // that are to be sent
	untimed  int64 // of the rows: those whose order is not known: see untimedSQL
	unknown  int64 // of the rows: those that do not say which transaction wrote them
	timeless int64 // of the rows: those whose time is not known, for --from and --to
	leftOut  int64 // rows that the WHERE leaves out
	older    int64 // of the rows: those of transactions before one of which rows were sent
	held     int64 // deferred events and dead letters of the slot
	// By table: rows, those with NULL in the column to order by, and those that share their place
	// with others: see tiedSQL.
	of, nulls, tied []int64
}

// countRows counts the rows of every table, under one snapshot ("": one that is taken now), and
// judges the counts. then, unless nil, is called while the snapshot and the locks are held, to read
// the same rows.
func (r *run) countRows(ctx context.Context, snapshot string, then func(snapshot string, f counts) error) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	f := counts{of: make([]int64, len(r.tables)), nulls: make([]int64, len(r.tables)), tied: make([]int64, len(r.tables))}
	tx, err := r.beginRead(ctx, conn, snapshot)
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
	if err := r.judgeCounts(ctx, f); err != nil || then == nil {
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

// countTable adds the counts of table i to f.
func (r *run) countTable(ctx context.Context, tx pgx.Tx, i int, f *counts) error {
	t := &r.tables[i]
	name := source.QuoteTable(t.Table.Table)
	if err := sent.LockTable(ctx, tx, r.pool, name); err != nil {
		return err
	}
	null, timeless := "false", "false"
	if t.orderBy != nil {
		null = t.orderBy.quoted() + " IS NULL"
	}
	if t.resendBy.time != "" {
		timeless = t.resendBy.time + " IS NULL"
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
	if t.tx == "" && !r.report.backfill && r.resend == nil { // --where chooses the rows
		r.addRowsNote(t, rows, "do not say which transaction wrote them, since the table has no column for it: "+addColumnFix)
	}
	return sent.CheckTable(ctx, r.pool, name)
}

// addColumnFix is what makes known which rows are sent of a table that lacks the column.
const addColumnFix = "run the SQL of `cdc-relay init --add-transaction-column`, so that it is known from then on"

// nameLeftOut puts into the report how many rows of a table are not known to be sent, and are left
// out all the same: nobody expects this slot to send those that were there before it, and of those
// that name no transaction nothing is known.
func (r *run) nameLeftOut(ctx context.Context, tx pgx.Tx, t *outboxTable) error {
	// else rows of no transaction are refused: see checkKnown
	unsent := r.resend != nil && r.resend.Unsent
	if t.tx == "" || r.report.backfill || r.resend != nil && !r.resend.knowsSent() || t.first == "" && !unsent && r.task.until == 0 {
		return nil
	}
	after := "false" // of an accepted gap: what the slot does not send of it, has a later number
	if r.task.until > 0 {
		after = "NOT " + t.beforeSQL() + " AND NOT (" + r.ofGapSQL(t) + ")"
	}
	if r.resend != nil && r.resend.pastSnapshot != "" {
		after += fmt.Sprintf(" AND pg_visible_in_snapshot((%s)::text::xid8, %s::pg_snapshot)", t.tx, source.QuoteText(r.resend.pastSnapshot))
	}
	var before, unknown, later int64
	err := tx.QueryRow(ctx, r.withSQL(t)+"SELECT count(*) FILTER (WHERE "+t.beforeSQL()+"), count(*) FILTER (WHERE "+t.tx+" IS NULL), count(*) FILTER (WHERE "+after+") FROM "+
		t.From+" t WHERE "+t.notSentSQL()+" AND "+r.conditionSQL()).Scan(&before, &unknown, &later)
	if err != nil {
		return err
	}
	r.addRowsNote(t, before, "whose transactions the table had before the slot was made are left out")
	r.addRowsNote(t, later, "are not known to be sent and came after the gap: what the slot does not send of them, `cdc-relay resend --unsent` does")
	if unsent {
		r.addRowsNote(t, unknown, "that do not say which transaction wrote them are left out: choose them by --where or --id")
	}
	return nil
}

// nameTied puts into the report for which rows the order is a guess.
func (r *run) nameTied(f counts) {
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
		r.addRowsNote(&r.tables[i], f.tied[i], what)
		if f.of[i] > 0 {
			tables++
		}
	}
	if tables > 1 {
		r.addNote(over)
	}
	if f.older > 0 {
		r.addNote(fmt.Sprintf("%d rows are of transactions before one of which rows were sent: of their keys newer events may have been sent before", f.older))
	}
}

// addRowsNote puts a sentence about some rows of a table into the report, if there are any.
func (r *run) addRowsNote(t *outboxTable, rows int64, what string) {
	if rows > 0 {
		r.addNote(fmt.Sprintf("table %s: %d rows %s", t, rows, what))
	}
}

// addNote puts a sentence into the report, once.
func (r *run) addNote(what string) {
	if !slices.Contains(r.report.Named, what) { // a lost slot's are counted twice
		r.report.Named = append(r.report.Named, what)
	}
}

// checkKnown refuses to send rows, or to leave them out, of which nobody can say whether they were
// sent, or whether they are of the time that is named.
func (r *run) checkKnown(f counts) error {
	if f.timeless > 0 {
		return usageStop(fmt.Sprintf("--from and --to: the time of %d rows is not known: no timestamp column has it, and the server does not know when they were committed", f.timeless),
			"choose the rows by --where; with track_commit_timestamp = on the time of later commits is known")
	}
	if r.report.backfill || r.resend == nil && r.opt.Where != "" || r.resend != nil && !r.resend.knowsSent() {
		return nil
	}
	for i := range r.tables {
		t := &r.tables[i]
		switch {
		case t.tx == "" && r.resend != nil:
			return usageStop(fmt.Sprintf("table %s has no column for the transaction that wrote a row (outbox.transaction): which rows were sent is not known", t),
				"choose the rows by --id, --key, --from and --to or --where; and "+addColumnFix)
		case t.tx == "":
			return usageStop(fmt.Sprintf("table %s has no column for the transaction that wrote a row (outbox.transaction): which rows were sent is not known", t),
				"choose the rows: --where EXPR, or --where true for all; and "+addColumnFix)
		}
	}
	if f.unknown > 0 && !r.opt.DryRun && r.resend != nil && r.resend.Gap != 0 {
		return usageStop(fmt.Sprintf("%d of %d rows do not say which transaction wrote them: whether they were sent is not known", f.unknown, f.rows),
			"send what you choose with --where, and close the gap: `cdc-relay resend --gap N --none --reason TEXT`")
	}
	if f.unknown > 0 && !r.opt.DryRun && r.resend == nil { // --unsent leaves them out
		return usageStop(fmt.Sprintf("%d of %d rows do not say which transaction wrote them: whether they were sent is not known", f.unknown, f.rows),
			"choose the rows: --where true sends them too, and --where 'tx IS NOT NULL' leaves them out, with the name of your column")
	}
	return nil
}

// The orders, as the report names them.
const (
	byCommit  order = "commit timestamps"
	byNamed   order = "column"
	unordered order = "unknown"
	unneeded  order = "not kept (delivery.ordering: none)"
)

// order is the order in which rows are copied.
//
// Commit timestamps are the order of the commits, but for transactions that commit at the same
// time: a timestamp is taken before the commit record is written. Transactions that wait for each
// other, because they change the same row, are never swapped.
type order string

// chooseOrder returns the order of what was counted. Without commit timestamps for all of it, it is
// unknown: ids of transactions say when they began, and places in the table say nothing.
func chooseOrder(opt RecoverOptions, f counts, tables []outboxTable, fix string) (order, error) {
	switch {
	case opt.OrderBy != "":
		for i, nulls := range f.nulls {
			if nulls > 0 {
				return "", usageStop(fmt.Sprintf("column %q of table %s is NULL in %d rows: it gives no order", opt.OrderBy, tables[i], nulls),
					"order by another column, narrow the rows, or use --unordered")
			}
		}
		return byNamed, nil
	case opt.Scope == event.Free:
		return unneeded, nil
	case f.tracked && f.untimed == 0:
		return byCommit, nil
	case opt.Unordered || f.rows <= 1 || opt.DryRun:
		return unordered, nil
	case f.tracked:
		return "", usageStop(fmt.Sprintf("order unknown: %d of %d rows have no commit timestamp, or were changed since; track_commit_timestamp may have been off when they were committed, or they came with a dump", f.untimed, f.rows), fix)
	}
	return "", usageStop(fmt.Sprintf("order unknown: track_commit_timestamp is off, and %d rows would be sent in any order", f.rows), fix)
}

const (
	orderFix    = "name a column that rises with each commit of a key: --order-by %s; or, if nobody counts on the order: --unordered"
	noColumnFix = "name a column that rises with each commit of a key, as one that is filled from a sequence or by clock_timestamp(): --order-by COLUMN; " +
		"or, if nobody counts on the order: --unordered. The order of later commits is known with track_commit_timestamp = on"
)

// sortSQL returns the SQL of the key by which rows of several tables are merged, and the ORDER BY
// of one table.
func (o order) sortSQL(t *outboxTable, merged bool) (key, sort string) {
	key = "0::bigint"
	switch o {
	case byCommit:
		return t.commitTimeSQL(true), t.commitSQL()
	case byNamed:
		if merged {
			key = t.orderBy.keySQL()
		}
		return key, t.orderBy.quoted()
	case unordered, unneeded:
	}
	// the best there is: transactions by their beginning
	return "coalesce(" + t.transactionSQL() + ", 0)", t.transactionSQL()
}

// transactionSQL is the SQL of the transaction that wrote a row; NULL: it is not known.
func (t *outboxTable) transactionSQL() string { return cmp.Or(t.tx, "NULL::bigint") }

// commitSQL is the SQL of the time at which a row was committed; NULL: it is not known. The server
// refuses ids that it has not given yet, and knows the last 2^31 at most.
//
// A row that came with a dump has the number of another transaction of this server, past or future.
// If that was committed after the row's version was written, it is not the row's own. Where rows
// may have come with a dump, both commits must even have the same time. Of what a subscription
// applied the timestamp is the other server's, so it is not used.
func (t *outboxTable) commitSQL() string {
	if t.tx == "" {
		return "NULL::timestamptz"
	}
	at, as := "(SELECT o.timestamp FROM pg_xact_commit_timestamp_origin(("+t.tx+" & 4294967295)::text::xid) o WHERE o.roident = 0)", "<="
	if t.restored {
		as = "="
	}
	return "CASE WHEN " + t.tx + " >= 3 AND (SELECT " + t.tx + " BETWEEN next - 2147483648 AND next - 1 FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n)" +
		" THEN (SELECT c.at FROM (SELECT " + at + " AS at) c WHERE c.at " + as + " pg_xact_commit_timestamp(t.xmin)) END"
}

// untimedSQL is the condition that the order of a row is not known: the time of its commit, or its
// place among the rows of its key and transaction. The place is the place of the command that wrote
// the row last. So it is lost if one of these rows was changed since; if the whole table was
// rewritten, all of them are in their old order.
func (r *run) untimedSQL(t *outboxTable, tracked bool) string {
	sql := t.commitTimeSQL(tracked) + " IS NULL"
	if tracked && t.tx != "" && t.orderBy == nil && r.opt.Scope != event.Free {
		sql += " OR min(t.xmin::text) OVER same <> max(t.xmin::text) OVER same AND bool_or(pg_xact_commit_timestamp(t.xmin) IS DISTINCT FROM " + t.commitSQL() + ") OVER same"
	}
	return sql
}

// tiedSQL is the condition that a row shares its place in the order with another row that is to be
// sent: both are of one key, and of one transaction or with the same value to order by. Which came
// first is then a guess, from the number of the command and the place in the table. It is wrong for
// rows that one INSERT wrote into free space, and for rows that their own transaction changed, or
// tried to.
func (r *run) tiedSQL(t *outboxTable) string {
	if r.opt.Scope == event.Free {
		return "false"
	}
	ordered := "true"
	if key := t.partSQL(t.Mapping.Key); r.opt.Scope == event.PerKey {
		ordered = "coalesce(" + key + ", '') <> ''"
	}
	return ordered + " AND count(*) FILTER (WHERE " + r.conditionSQL() + ") OVER same > 1"
}

// windowSQL is the window "same": the rows of a row's ordering group that share its place.
func (r *run) windowSQL(t *outboxTable) string {
	place := t.transactionSQL()
	if t.orderBy != nil {
		place = t.orderBy.quoted()
	}
	if r.opt.Scope == event.PerKey {
		place += ", " + t.partSQL(t.Mapping.Aggregate) + ", " + t.partSQL(t.Mapping.Key)
	}
	return " WINDOW same AS (PARTITION BY " + place + ")"
}

// partSQL is the SQL of the text of a part of a row's event, by the output function of its type;
// NULL: the table has no column for it.
func (t *outboxTable) partSQL(names decode.Names) string {
	texts := []string{"NULL"}
	for _, name := range names.Any {
		for _, c := range t.Columns {
			if c.Name == name {
				column := "t." + source.QuoteName(name)
				texts = append(texts, "CASE num_nonnulls("+column+") WHEN 1 THEN "+sent.TextSQL(column, c.TypeOID == pgtype.BPCharOID)+" END")
			}
		}
	}
	return "coalesce(" + strings.Join(texts, ", ") + ")::text"
}

// commitTimeSQL is commitSQL in microseconds.
func (t *outboxTable) commitTimeSQL(tracked bool) string {
	if !tracked {
		return "NULL::bigint"
	}
	return "(extract(epoch FROM " + t.commitSQL() + ") * 1000000)::bigint"
}

// orderColumn is a column to order by.
type orderColumn struct{ name, kind string }

func (b *orderColumn) quoted() string { return "t." + source.QuoteName(b.name) }

// keySQL is the column's value as a number, or as a text whose bytes have its order.
func (b *orderColumn) keySQL() string {
	switch b.kind {
	case "smallint", "integer", "bigint":
		return b.quoted() + "::bigint"
	case "uuid":
		return b.quoted() + "::text"
	default:
		return "(extract(epoch FROM " + b.quoted() + ") * 1000000)::bigint"
	}
}

// ownTime is the column of a table that says when a row was inserted; "": there is none.
func (r *run) ownTime(ctx context.Context, t *outboxTable) (name string, err error) {
	err = r.pool.QueryRow(ctx, "SELECT coalesce("+sent.OwnTimeSQL("$1::oid")+", '')", t.OID).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("read the columns of %s: %w", t, err)
	}
	return name, nil
}

// orderFix is the fix where the order of the commits is not known.
func (r *run) orderFix(ctx context.Context) (string, error) {
	tables := make([]decode.Table, len(r.tables))
	for i := range r.tables {
		tables[i] = r.tables[i].Table.Table
	}
	such, err := schema.RisingColumn(ctx, r.pool, tables)
	if err != nil || such == "" {
		return noColumnFix, err
	}
	return fmt.Sprintf(orderFix, such), nil
}

// comparableKinds are the types whose values can be compared over tables, with those of their kind.
var comparableKinds = map[string]string{
	"smallint": "number", "integer": "number", "bigint": "number", "uuid": "uuid",
	"timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz", "date": "date",
}

// readByColumn finds the column to order by. Its type, of a domain the base type, must be one of
// PostgreSQL's own: to compare values of another may run code of the table's owner.
func (r *run) readByColumn(ctx context.Context, t decode.Table) (*orderColumn, error) {
	b := &orderColumn{name: r.opt.OrderBy}
	var own, sortable bool
	err := r.pool.QueryRow(ctx, `SELECT format_type(y.oid, NULL), y.typnamespace = 'pg_catalog'::regnamespace AND a.attgenerated <> 'v',
			EXISTS (SELECT FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod WHERE m.amname = 'btree' AND o.opcdefault AND (o.opcintype = y.oid
				OR EXISTS (SELECT FROM pg_cast c WHERE c.castsource = y.oid AND c.casttarget = o.opcintype AND c.castmethod = 'b')))
		FROM pg_attribute a JOIN pg_type y ON y.oid = `+sent.BaseTypeSQL("a.atttypid")+` WHERE a.attrelid = $1 AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped`,
		t.OID, b.name).Scan(&b.kind, &own, &sortable)
	fix := "name a column that rises with each commit of a key"
	var before *orderColumn // of another table
	for i := range r.tables {
		if r.tables[i].orderBy != nil {
			before = r.tables[i].orderBy
		}
	}
	switch {
	case source.IsNoRows(err):
		return nil, usageStop(fmt.Sprintf("--order-by: table %s has no column %q", t, b.name), fix)
	case err != nil:
		return nil, fmt.Errorf("read the columns of %s: %w", t, err)
	case !own || !sortable:
		return nil, usageStop(fmt.Sprintf("--order-by: column %q of table %s has type %s, whose values have no order of PostgreSQL's own", b.name, t, b.kind), fix)
	case len(r.c.Tables) > 1 && comparableKinds[b.kind] == "":
		return nil, usageStop(fmt.Sprintf("--order-by: column %q of table %s has type %s, which cannot be compared with other tables", b.name, t, b.kind),
			"name a column of an integer type, date, timestamp or uuid")
	case before != nil && comparableKinds[before.kind] != comparableKinds[b.kind]:
		return nil, usageStop(fmt.Sprintf("--order-by: column %q of table %s has type %s, and that of another table has type %s", b.name, t, b.kind, before.kind), "name a column of one type")
	}
	began, of, err := schema.BeginDefault(ctx, r.pool, t, b.name)
	if err != nil || began == "" {
		return b, err
	}
	what := fmt.Sprintf("column %q has the default %s in table %s, which is set when a transaction begins: one that began first and committed last, as it waited for a lock, goes first", b.name, began, of)
	if !r.opt.OrderByBegin {
		return nil, usageStop("--order-by: "+what, "order by a column that is filled from a sequence or by clock_timestamp(); or accept this order: add --order-by-begin. "+
			"The order of later commits is known with track_commit_timestamp = on")
	}
	r.addNote(what + " (--order-by-begin)")
	return b, nil
}
