// What the catalogue says of an outbox table.

package sent

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Table is an outbox table, and the names that its columns may have.
type Table struct {
	Schema, Name    string
	ID, Transaction []string
}

// String is the table as schema.name.
func (t Table) String() string { return t.Schema + "." + t.Name }

// Description is what the catalogue says of an outbox table.
type Description struct {
	OID    uint32 // 0: the table does not exist
	Usable bool   // the role has USAGE on its schema, without which it cannot name the table
	// of the table, its parents and its partitions: whoever sends one of them sends rows of it
	Family []uint32
	Names  []string // quoted as publication.State has them
	ID     []string // those columns of the configuration that exist
	Padded []bool   // of char(n)
	// the column of the row's transaction; "": there is none of the right type
	Transaction string
	Unfit       string // a column of that name of another type, with its type; "": there is none
	Bigint      bool   // its type is bigint, else xid8
	Leaves      []Leaf // the tables that have the rows
}

// Leaf is a table with rows: the outbox table or a partition of it.
type Leaf struct {
	OID     uint32
	Name    string   // quoted
	Under   []uint32 // the relations as which the stream may name it: itself, and its parents
	Indexed bool     // it has a valid btree index that begins with the transaction
	// rows get their transaction whatever an INSERT says: by the column's default, and by the
	// trigger
	Defaults, Triggered bool
}

// describeSQL finds the table by the names in the catalogue: to_regclass fails for a role without
// USAGE on the schema. $1 and $2 are its schema and name, $3 the columns of the id, $4 of the
// transaction.
var describeSQL = `
WITH root AS (
	SELECT c.oid, relnamespace
	FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
	WHERE nspname = $1::text AND relname = $2::text),
relatives AS (
	SELECT oid FROM root
	UNION SELECT relid FROM root, pg_partition_tree(root.oid)
	UNION SELECT relid FROM root, pg_partition_ancestors(root.oid) relid),
columns AS (
	SELECT attname::text AS name, ` + tableread.BaseTypeSQL("atttypid") + ` AS base, format_type(atttypid, atttypmod) AS kind
	FROM pg_attribute JOIN root ON attrelid = root.oid
	WHERE attnum > 0 AND NOT attisdropped AND attgenerated <> 'v'),
transaction AS (
	SELECT name, base = 'bigint'::regtype AS bigint FROM columns
	WHERE name = ANY ($4::text[]) AND base IN ('xid8'::regtype, 'bigint'::regtype)
	ORDER BY array_position($4::text[], name) LIMIT 1)
SELECT
	coalesce((SELECT oid FROM root), 0),
	coalesce((SELECT has_schema_privilege(relnamespace, 'USAGE') FROM root), false),
	array(SELECT oid FROM relatives WHERE oid IS NOT NULL),
	array(
		SELECT '"' || replace(nspname, '"', '""') || '"."' || replace(relname, '"', '""') || '"'
		FROM relatives r
			JOIN pg_class c ON c.oid = r.oid
			JOIN pg_namespace n ON n.oid = relnamespace),
	array(
		SELECT name FROM columns
		WHERE name = ANY ($3::text[])
		ORDER BY array_position($3::text[], name)),
	array(
		SELECT base = 'bpchar'::regtype FROM columns
		WHERE name = ANY ($3::text[])
		ORDER BY array_position($3::text[], name)),
	coalesce((SELECT name FROM transaction), ''),
	coalesce((SELECT bigint FROM transaction), false),
	coalesce((
		SELECT format('%I of type %s', name, kind) FROM columns
		WHERE name = ANY ($4::text[]) AND NOT EXISTS (SELECT FROM transaction)
		ORDER BY array_position($4::text[], name) LIMIT 1), '')`

// leavesSQL reads the tables with rows that $1, an OID, is or is the parent of. $2 is the column of
// the transaction, $3 the name of its trigger.
const leavesSQL = `
WITH tree AS (SELECT $1::oid AS oid UNION SELECT relid FROM pg_partition_tree($1::oid))
SELECT
	c.oid,
	format('%I.%I', nspname, relname),
	array(SELECT c.oid UNION SELECT relid::oid FROM pg_partition_ancestors(c.oid) relid),
	EXISTS (
		SELECT FROM pg_index i
			JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
			JOIN pg_class x ON x.oid = i.indexrelid
			JOIN pg_am ON pg_am.oid = x.relam
		WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = $2::text AND amname = 'btree'),
	EXISTS (
		SELECT FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
		WHERE d.adrelid = c.oid AND a.attname = $2::text AND pg_get_expr(d.adbin, d.adrelid) LIKE '%pg_current_xact_id()%'),
	EXISTS (
		SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = tgfoid
		WHERE tgrelid = c.oid AND tgname = $3::text AND tgenabled = 'A' AND tgtype & 7 = 7 -- a row, before, INSERT
			AND prosrc LIKE '%pg_current_xact_id()%'
			AND (tgqual IS NULL OR pg_get_triggerdef(t.oid) LIKE '%pg_current_xact_id()%'))
FROM tree
	JOIN pg_class c ON c.oid = tree.oid
	JOIN pg_namespace n ON n.oid = relnamespace
WHERE relkind = 'r'
ORDER BY c.oid`

// Describe reads what a table is.
func Describe(ctx context.Context, q Querier, t Table) (d Description, err error) {
	err = q.QueryRow(ctx, describeSQL, t.Schema, t.Name, t.ID, t.Transaction).
		Scan(&d.OID, &d.Usable, &d.Family, &d.Names, &d.ID, &d.Padded, &d.Transaction, &d.Bigint, &d.Unfit)
	if err != nil {
		return d, fmt.Errorf("read what %s is: %w", t, err)
	}
	rows, err := q.Query(ctx, leavesSQL, d.OID, d.Transaction, Column{Name: d.Transaction}.Trigger())
	if err != nil {
		return d, fmt.Errorf("read the partitions of %s: %w", t, err)
	}
	d.Leaves, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Leaf, err error) {
		return l, row.Scan(&l.OID, &l.Name, &l.Under, &l.Indexed, &l.Defaults, &l.Triggered)
	})
	if err != nil {
		return d, fmt.Errorf("read the partitions of %s: %w", t, err)
	}
	return d, nil
}

// IDSQL is the SQL of the event's id, as the stream has it, in UTF-8.
//
// In a database of another encoding than UTF-8 an id of other characters than ASCII is none: it may
// have no equivalent, and one such row must not fail the statement. It is not known to be sent.
func (d *Description) IDSQL() string {
	parts := []string{}
	for i, name := range d.ID {
		column := "t." + pgx.Identifier{name}.Sanitize()
		parts = append(parts, "CASE WHEN "+column+" IS NOT NULL THEN "+tableread.TextSQL(column, d.Padded[i])+" END")
	}
	text := "coalesce(" + strings.Join(append(parts, "NULL"), ", ") + ")"
	return "CASE WHEN getdatabaseencoding() = 'UTF8' OR " + text + ` COLLATE "C" ~ '^[\x01-\x7f]*$' THEN convert_to(` + text + ", 'UTF8') END"
}

// TxSQL is the SQL of a row's transaction as a bigint, of a column that is one or an xid8. A number
// beyond bigint, which no server ever gives, is NULL: one such row must not fail the statement.
func TxSQL(column string, bigint bool) string {
	if bigint {
		return column
	}
	return "CASE WHEN " + column + " <= '9223372036854775807'::xid8 THEN " + column + "::text::bigint END"
}

// OIDArray is SQL of an array.
func OIDArray(oids []uint32) string {
	return strings.ReplaceAll(fmt.Sprintf("'{%v}'::oid[]", strings.Trim(fmt.Sprint(oids), "[]")), " ", ",")
}
