// An outbox table as operators' searches read it: which columns it has, and SQL that reads them
// without running code of the table's owner.

package dlq

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// outboxTable is an outbox table with those of the configured columns that it really has.
type outboxTable struct {
	Outbox
	name    string // quoted
	columns map[string]outboxColumn
}

type outboxColumn struct {
	quoted string // with the alias t
	// kind is the type, for a domain its base type. It has no length, because a cast to a length
	// would cut a longer value: format_type needs -1 for that, as NULL means one character.
	kind     string
	own      bool // the type is PostgreSQL's own, so comparing runs no code of the table's owner
	computed bool // the column is computed when it is read
}

// outboxColumnsSQL reads the columns $2 of the table $1.
var outboxColumnsSQL = `SELECT attname::text, format_type(y.oid, -1), typnamespace = 'pg_catalog'::regnamespace, attgenerated = 'v'
	FROM pg_attribute JOIN pg_type y ON y.oid = ` + sent.BaseTypeSQL("atttypid") + `
	WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attname = ANY ($2::text[])`

// querier is the pool, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// describeOutbox reads the columns of a table and their types. A table that does not exist has no
// columns.
func describeOutbox(ctx context.Context, q querier, o Outbox) (t outboxTable, err error) {
	t = outboxTable{Outbox: o, name: pgx.Identifier{o.Schema, o.Table}.Sanitize()}
	t.columns, err = t.readColumns(ctx, q)
	return t, err
}

func (t *outboxTable) readColumns(ctx context.Context, q querier) (map[string]outboxColumn, error) {
	columns := map[string]outboxColumn{}
	rows, err := q.Query(ctx, outboxColumnsSQL, t.name, slices.Concat(t.ID, t.Key, t.Aggregate, t.Type, t.Transaction, t.Timestamp))
	if err == nil {
		var name string
		var c outboxColumn
		_, err = pgx.ForEachRow(rows, []any{&name, &c.kind, &c.own, &c.computed}, func() error {
			c.quoted = "t." + pgx.Identifier{name}.Sanitize()
			columns[name] = c
			return nil
		})
	}
	return columns, explain("read the columns of "+t.name, err)
}

// checkUnaltered returns a *sent.Refusal if the columns are no longer what they were: a cast to a
// type that a column has got since could run code of the table's owner.
func (t *outboxTable) checkUnaltered(ctx context.Context, of pgx.Tx) error {
	now, err := t.readColumns(ctx, of)
	if err == nil && !maps.Equal(now, t.columns) {
		return &sent.Refusal{Table: t.name, Why: "was altered while it was read"}
	}
	return err
}

// present returns those of names that the table has, in their order.
func (t *outboxTable) present(names []string) (list []string) {
	for _, name := range names {
		if _, is := t.columns[name]; is {
			list = append(list, name)
		}
	}
	return list
}

// textOf returns SQL for a column that is not NULL, as text. It runs no code of the table's owner.
func (c *outboxColumn) textOf() string { return sent.TextSQL(c.quoted, c.kind == "bpchar") }

// firstText returns SQL for the first of some columns that is not NULL, as text. It is NULL when
// there is none.
func (t *outboxTable) firstText(names []string) string {
	parts := []string{}
	for _, name := range t.present(names) {
		c := t.columns[name]
		parts = append(parts, "CASE WHEN "+c.quoted+" IS NOT NULL THEN "+c.textOf()+" END")
	}
	return "coalesce(" + strings.Join(append(parts, "NULL"), ", ") + ")"
}

// transaction returns SQL for the row's transaction as bigint, and the name of its column. They are
// NULL and "" when there is none.
func (t *outboxTable) transaction() (sql, column string) {
	for _, name := range t.present(t.Transaction) {
		if c := t.columns[name]; c.own && (c.kind == "xid8" || c.kind == "bigint") {
			return sent.TxSQL(c.quoted+"::text::xid8", false), name // which works for both types
		}
	}
	return "NULL::bigint", ""
}

// timestamp returns SQL for the time in the row if a column for it has a type of times, and NULL
// otherwise.
func (t *outboxTable) timestamp() string {
	for _, name := range t.present(t.Timestamp) {
		if c := t.columns[name]; c.kind == "timestamp with time zone" && !c.computed {
			return "CASE WHEN isfinite(" + c.quoted + ") THEN " + c.quoted + " END"
		}
	}
	return "NULL::timestamptz"
}
