// In which order the rows become events.

package recovery

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// The orders, as the report names them.
const (
	byCommit  order = "commit timestamps"
	byNamed   order = "column"
	unordered order = "unknown"
	unneeded  order = "not kept (delivery.ordering: none)"
)

// order is what rows are ordered by.
//
// Commit timestamps are the order of the commits, but for transactions that commit at the same
// time: a timestamp is taken before the commit record is written. Transactions that wait for each
// other, because they change the same row, are never swapped.
type order string

// chooseOrder returns the order of what was counted. Without commit timestamps for all of it, it is
// unknown: ids of transactions say when they began, and places in the table say nothing.
func chooseOrder(opt Options, f facts, tables []table, fix string) (order, error) {
	switch {
	case opt.OrderBy != "":
		for i, nulls := range f.nulls {
			if nulls > 0 {
				return "", usage(fmt.Sprintf("column %q of table %s is NULL in %d rows: it gives no order", opt.OrderBy, tables[i], nulls),
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
		return "", usage(fmt.Sprintf("order unknown: %d of %d rows have no commit timestamp, or were changed since; track_commit_timestamp may have been off when they were committed, or they came with a dump", f.untimed, f.rows), fix)
	}
	return "", usage(fmt.Sprintf("order unknown: track_commit_timestamp is off, and %d rows would be sent in any order", f.rows), fix)
}

const orderFix = "name a column that rises with each commit of a key: --order-by %s; or, if nobody counts on the order: --unordered"

// sql returns what rows of several tables are merged by, and the ORDER BY of one.
func (o order) sql(t *table, merged bool) (key, sort string) {
	key = "0::bigint"
	switch o {
	case byCommit:
		return t.commitTimeSQL(true), t.commitSQL()
	case byNamed:
		if merged {
			key = t.by.keySQL()
		}
		return key, t.by.quoted()
	case unordered, unneeded:
	}
	// the best there is: transactions by their beginning
	return "coalesce(" + t.transactionSQL() + ", 0)", t.transactionSQL()
}

// transactionSQL is the transaction that wrote a row; NULL: it is not known.
func (t *table) transactionSQL() string { return cmp.Or(t.tx, "NULL::bigint") }

// commitSQL is when a row was committed; NULL: it is not known. The server refuses ids that it has
// not given yet, and knows the last 2^31 at most.
//
// A row that came with a dump has a number that was given to another transaction here, or will be:
// one that is not committed before the row was there is not its own. Where rows may have come so,
// the row's version must be of the very commit. What a subscription has applied has the time of
// the other server, and so none.
func (t *table) commitSQL() string {
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

// untimedSQL is whether the order of a row is not known: its commit, or its place among the rows of
// its key and transaction, of which another one was changed since. The number of the command is
// that of who wrote the row last. A table that was written again has all rows of a transaction in
// the order of before.
func (r *run) untimedSQL(t *table, tracked bool) string {
	sql := t.commitTimeSQL(tracked) + " IS NULL"
	if tracked && t.tx != "" && t.by == nil && r.opt.Scope != event.Free {
		sql += " OR min(t.xmin::text) OVER same <> max(t.xmin::text) OVER same AND bool_or(pg_xact_commit_timestamp(t.xmin) IS DISTINCT FROM " + t.commitSQL() + ") OVER same"
	}
	return sql
}

// tiedSQL is whether another row of the operator's condition has the place of a row: of those of a
// key that one transaction wrote, or that have the same value to order by, the server does not say
// which came first. The number of a command and the place in the table mostly do; not those of one
// INSERT into free space, nor of rows that their own transaction changed, or tried to.
func (r *run) tiedSQL(t *table) string {
	if r.opt.Scope == event.Free {
		return "false"
	}
	ordered := "true"
	if key := t.partSQL(t.Mapping.Key); r.opt.Scope == event.PerKey {
		ordered = "coalesce(" + key + ", '') <> ''"
	}
	return ordered + " AND count(*) FILTER (WHERE " + r.conditionSQL() + ") OVER same > 1"
}

// windowSQL are the rows of a row's ordering group that have its place in the order.
func (r *run) windowSQL(t *table) string {
	place := t.transactionSQL()
	if t.by != nil {
		place = t.by.quoted()
	}
	if r.opt.Scope == event.PerKey {
		place += ", " + t.partSQL(t.Mapping.Aggregate) + ", " + t.partSQL(t.Mapping.Key)
	}
	return " WINDOW same AS (PARTITION BY " + place + ")"
}

// partSQL is the text of a part of a row's event, by the output function of its type. NULL: the
// table has no column for it.
func (t *table) partSQL(names decode.Names) string {
	texts := []string{"NULL"}
	for _, name := range names.Any {
		for _, c := range t.Columns {
			if c.Name == name {
				column := "t." + source.QuoteName(name)
				texts = append(texts, "CASE num_nonnulls("+column+") WHEN 1 THEN "+tableread.TextSQL(column, c.TypeOID == pgtype.BPCharOID)+" END")
			}
		}
	}
	return "coalesce(" + strings.Join(texts, ", ") + ")::text"
}

// commitTimeSQL is commitSQL in microseconds.
func (t *table) commitTimeSQL(tracked bool) string {
	if !tracked {
		return "NULL::bigint"
	}
	return "(extract(epoch FROM " + t.commitSQL() + ") * 1000000)::bigint"
}

// byColumn is a column to order by.
type byColumn struct{ name, kind string }

func (b *byColumn) quoted() string { return "t." + source.QuoteName(b.name) }

// keySQL is the column's value as a number, or as a text whose bytes have its order.
func (b *byColumn) keySQL() string {
	switch b.kind {
	case "smallint", "integer", "bigint":
		return b.quoted() + "::bigint"
	case "uuid":
		return b.quoted() + "::text"
	default:
		return "(extract(epoch FROM " + b.quoted() + ") * 1000000)::bigint"
	}
}

// ownTime is the column of a table that says when a row was inserted, by its default, or else by
// being its only timestamp; "": there is none.
func (r *run) ownTime(ctx context.Context, t *table) (name string, err error) {
	err = r.pool.QueryRow(ctx, `SELECT coalesce((
			SELECT attname::text FROM (
				SELECT attname, attnum, count(*) OVER () AS n, coalesce(pg_get_expr(adbin, adrelid) ~* 'now\(\)|current_timestamp|(statement|clock|transaction)_timestamp\(\)', false) AS timed
				FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
				WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND `+tableread.BaseTypeSQL("atttypid")+` IN ('timestamptz'::regtype, 'timestamp'::regtype)) c
			WHERE timed OR n = 1 ORDER BY timed DESC, attnum LIMIT 1), '')`, t.OID).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("read the columns of %s: %w", t, err)
	}
	return name, nil
}

// orderFix is what to do where the order is not known.
func (r *run) orderFix(ctx context.Context) (string, error) {
	such := ""
	for i := range r.tables {
		name, err := r.ownTime(ctx, &r.tables[i])
		switch {
		case err != nil:
			return "", err
		case name == "" || such != "" && such != name:
			return fmt.Sprintf(orderFix, "COLUMN"), nil
		}
		such = name
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
func (r *run) readByColumn(ctx context.Context, t decode.Table) (*byColumn, error) {
	b := &byColumn{name: r.opt.OrderBy}
	var own, sortable bool
	err := r.pool.QueryRow(ctx, `SELECT format_type(y.oid, NULL), y.typnamespace = 'pg_catalog'::regnamespace AND a.attgenerated <> 'v',
			EXISTS (SELECT FROM pg_opclass o JOIN pg_am m ON m.oid = o.opcmethod WHERE m.amname = 'btree' AND o.opcdefault AND (o.opcintype = y.oid
				OR EXISTS (SELECT FROM pg_cast c WHERE c.castsource = y.oid AND c.casttarget = o.opcintype AND c.castmethod = 'b')))
		FROM pg_attribute a JOIN pg_type y ON y.oid = `+tableread.BaseTypeSQL("a.atttypid")+` WHERE a.attrelid = $1 AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped`,
		t.OID, b.name).Scan(&b.kind, &own, &sortable)
	fix := "name a column that rises with each commit of a key"
	var before *byColumn // of another table
	for i := range r.tables {
		if r.tables[i].by != nil {
			before = r.tables[i].by
		}
	}
	switch {
	case source.IsNoRows(err):
		return nil, usage(fmt.Sprintf("--order-by: table %s has no column %q", t, b.name), fix)
	case err != nil:
		return nil, fmt.Errorf("read the columns of %s: %w", t, err)
	case !own || !sortable:
		return nil, usage(fmt.Sprintf("--order-by: column %q of table %s has type %s, whose values have no order of PostgreSQL's own", b.name, t, b.kind), fix)
	case len(r.c.Tables) > 1 && comparableKinds[b.kind] == "":
		return nil, usage(fmt.Sprintf("--order-by: column %q of table %s has type %s, which cannot be compared with other tables", b.name, t, b.kind),
			"name a column of an integer type, date, timestamp or uuid")
	case before != nil && comparableKinds[before.kind] != comparableKinds[b.kind]:
		return nil, usage(fmt.Sprintf("--order-by: column %q of table %s has type %s, and that of another table has type %s", b.name, t, b.kind, before.kind), "name a column of one type")
	}
	return b, nil
}
