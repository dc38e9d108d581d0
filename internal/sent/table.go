// What the catalogue says of an outbox table, and the SQL that follows from it: the statements that
// name a row as the stream does, and those that make the column of the transaction with its index
// and trigger.

package sent

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/jackc/pgx/v5"
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
	Usable bool   // the role has USAGE on the schema, without which it cannot name the table
	// Family has the OIDs of the table, its parents and its partitions: whoever sends one of them
	// sends rows of the table
	Family []uint32
	Names  []string // quoted as schema.Sends has them
	ID     []string // those columns of the configuration that exist
	Padded []bool   // by ID: the column is of type char(n)
	// Transaction is the column of the row's transaction; "" means that no such column has the
	// right type
	Transaction string
	// Unfit is a column with such a name and a wrong type, with that type; "" means that there is
	// none
	Unfit  string
	Bigint bool   // its type is bigint, else xid8
	Leaves []Leaf // the tables that have the rows
}

// Leaf is a table with rows: the outbox table or a partition of it.
type Leaf struct {
	OID       uint32
	Name      string   // quoted
	Ancestors []uint32 // the relations as which the stream may name it: itself, and its parents
	Indexed   bool     // it has a valid btree index that begins with the transaction
	// Defaults and Triggered say by what a row gets its transaction: by the column's default, and
	// by the trigger, which sets it whatever the INSERT says
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
	SELECT attname::text AS name, ` + BaseTypeSQL("atttypid") + ` AS base, format_type(atttypid, atttypmod) AS kind
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

// Describe reads from the catalogue what a table is. The OID of the answer is 0 if there is no such
// table.
func Describe(ctx context.Context, q Querier, t Table) (d Description, err error) {
	err = q.QueryRow(ctx, describeSQL, t.Schema, t.Name, t.ID, t.Transaction).
		Scan(&d.OID, &d.Usable, &d.Family, &d.Names, &d.ID, &d.Padded, &d.Transaction, &d.Bigint, &d.Unfit)
	if err != nil {
		return d, fmt.Errorf("read what %s is: %w", t, err)
	}
	rows, err := q.Query(ctx, leavesSQL, d.OID, d.Transaction, Column{Name: d.Transaction}.TriggerName())
	if err != nil {
		return d, fmt.Errorf("read the partitions of %s: %w", t, err)
	}
	d.Leaves, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Leaf, err error) {
		return l, row.Scan(&l.OID, &l.Name, &l.Ancestors, &l.Indexed, &l.Defaults, &l.Triggered)
	})
	if err != nil {
		return d, fmt.Errorf("read the partitions of %s: %w", t, err)
	}
	return d, nil
}

// IDSQL is the SQL of the event's id, as the stream has it, in UTF-8.
func (d *Description) IDSQL() string {
	parts := []string{}
	for i, name := range d.ID {
		column := "t." + pgx.Identifier{name}.Sanitize()
		parts = append(parts, "CASE WHEN "+column+" IS NOT NULL THEN "+TextSQL(column, d.Padded[i])+" END")
	}
	text := "coalesce(" + strings.Join(append(parts, "NULL"), ", ") + ")"
	return "convert_to(" + text + ", 'UTF8')"
}

// TxSQL is the SQL of a row's transaction as a bigint. column is of type bigint, or else xid8. An
// xid8 beyond bigint, which no server ever gives, becomes NULL: one such row must not fail the
// statement.
func TxSQL(column string, bigint bool) string {
	if bigint {
		return column
	}
	return "CASE WHEN " + column + " <= '9223372036854775807'::xid8 THEN " + column + "::text::bigint END"
}

// OIDArray is the SQL of an array of OIDs.
func OIDArray(oids []uint32) string {
	return strings.ReplaceAll(fmt.Sprintf("'{%v}'::oid[]", strings.Trim(fmt.Sprint(oids), "[]")), " ", ",")
}

// UnsentSQL reads the rows of a table, quoted, that slot $1 is not known to have sent under one of
// the relations $2. Its columns are tx and digest, which are NULL if the row does not say which
// transaction wrote it, and here. A row that came from another server is left out if an event
// waits, or is a dead letter, under the row's id, whatever its table.
//
// here is false for a row that came from another server, and true for a row that may have been
// written on this one. The caller knows less of rows that may have been written here: what an
// operator said of the other server does not hold for them. A row may have been written here if its
// number was given by this server since the schema cdc_relay came to it, and not after the row was
// there. Some rows of a dump have such numbers, too. The row of a system column in pg_attribute is
// as old as its table here, because no ALTER changes it.
func (d *Description) UnsentSQL(table string) string {
	tx := "NULL::bigint"
	if d.Transaction != "" {
		tx = TxSQL("t."+pgx.Identifier{d.Transaction}.Sanitize(), d.Bigint)
	}
	return fmt.Sprintf(`
WITH recorded AS MATERIALIZED (
	SELECT DISTINCT unnest(digests) AS digest FROM cdc_relay.sent WHERE slot = $1::text AND relation = ANY ($2::oid[])),
held AS MATERIALIZED (
	SELECT id FROM cdc_relay.retry WHERE slot = $1::text UNION SELECT id FROM cdc_relay.dead_letter WHERE slot = $1::text),
server AS MATERIALIZED (
	SELECT next, %[1]s AS came
	FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next) n, pg_attribute a
	WHERE attrelid = 'cdc_relay.slots'::regclass AND attnum = -1)
SELECT r.tx, r.digest, r.here
FROM (
	SELECT m.tx, m.id, %[2]s AS digest, coalesce(m.tx > came AND m.tx < next AND m.tx <= m.last, false) AS here
	FROM (SELECT %[3]s AS tx, %[4]s AS id, server.*, %[5]s AS last FROM %[6]s t, server OFFSET 0) m) r
WHERE NOT EXISTS (SELECT FROM recorded c WHERE c.digest = r.digest) AND (r.here OR NOT EXISTS (SELECT FROM held h WHERE h.id = r.id))`,
		WholeXIDSQL("a.xmin"), DigestSQL("m.tx", "m.id"), tx, d.IDSQL(), WholeXIDSQL("t.xmin"), table)
}

// UnsentPartsSQL groups the rows of UnsentSQL as parts of the sent set are grouped, and returns the
// number of rows of each group. Groups of rows that came from another server and can be recorded
// have their digests; other groups have none.
func (d *Description) UnsentPartsSQL(table string) string {
	return fmt.Sprintf(`
SELECT count(*), coalesce(min(tx), 0), coalesce(max(tx), 0), CASE WHEN moved THEN array_agg(digest) ELSE '{}' END
FROM (
	SELECT *, digest IS NOT NULL AND NOT here AS moved,
		(row_number() OVER (PARTITION BY tx >> %[1]d, digest IS NOT NULL AND NOT here) - 1) / %[2]d AS part
	FROM (%[3]s) u) u
GROUP BY tx >> %[1]d, moved, part`, ChunkBits, maxPart, d.UnsentSQL(table))
}

// AllRowsTell reports whether each row of the table says which transaction wrote it, apart from
// rows that are older than the column.
func (d *Description) AllRowsTell() bool {
	if d.Transaction == "" {
		return false
	}
	for _, l := range d.Leaves {
		if !l.Triggered {
			return false
		}
	}
	return true
}

// Column is the column of a table that has the row's transaction, for the SQL that makes it.
type Column struct {
	Schema, Table, Name string
	Bigint              bool // its type is bigint, for tools that do not know xid8
}

// quoted are the names of the table and the column as SQL.
func (c Column) quoted() (table, column string) {
	return pgx.Identifier{c.Schema, c.Table}.Sanitize(), pgx.Identifier{c.Name}.Sanitize()
}

// DefaultSQL is the SQL of the column's default: the transaction that runs, with its epoch.
func (c Column) DefaultSQL() string {
	if c.Bigint {
		return "pg_catalog.pg_current_xact_id()::text::bigint"
	}
	return "pg_catalog.pg_current_xact_id()"
}

// TypeSQL is the SQL of the column's type.
func (c Column) TypeSQL() string {
	if c.Bigint {
		return "bigint"
	}
	return "xid8"
}

// AddSQL adds the column. In rows that are there already it stays NULL, whoever wrote them: if ADD
// COLUMN had the default, they would all get the transaction of this statement.
func (c Column) AddSQL() string {
	table, column := c.quoted()
	return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s, ALTER COLUMN %[2]s SET DEFAULT %[4]s", table, column, c.TypeSQL(), c.DefaultSQL())
}

// IndexSQL makes the index by which retention finds rows; on is "ON", "ON ONLY" or
// "CONCURRENTLY ON". PostgreSQL chooses a name that is free.
func (c Column) IndexSQL(on string) string {
	table, column := c.quoted()
	return fmt.Sprintf("CREATE INDEX %s %s (%s)", on, table, column)
}

// TriggerName is the trigger's name. It sorts behind the names of other triggers, so that those run
// first.
func (c Column) TriggerName() string { return shortName("zz_cdc_relay_" + c.Name) }

// FunctionName is the name of the trigger's function, in the table's schema. Each table has a
// function of its own, because two tables may have two owners.
func (c Column) FunctionName() string { return shortName("cdc_relay_" + c.Table + "_set_" + c.Name) }

// quotedFunction is the trigger's function as SQL, with its schema.
func (c Column) quotedFunction() string { return pgx.Identifier{c.Schema, c.FunctionName()}.Sanitize() }

// functionSQL makes the trigger's function. If somebody else has already made a function of this
// name, CREATE OR REPLACE leaves it theirs: they could change later what every INSERT into the
// table runs, as the role that inserts. So the second statement makes the current role its owner.
func (c Column) functionSQL() []string {
	_, column := c.quoted()
	return []string{
		fmt.Sprintf("CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.%s := %s; RETURN NEW; END $$", c.quotedFunction(), column, c.DefaultSQL()),
		fmt.Sprintf("ALTER FUNCTION %s() OWNER TO CURRENT_USER", c.quotedFunction()),
	}
}

// triggerSQL makes the trigger. Its condition lets it run only for rows that it changes. ENABLE
// ALWAYS makes it run for the rows of a subscription too.
func (c Column) triggerSQL() []string {
	table, column := c.quoted()
	trigger := pgx.Identifier{c.TriggerName()}.Sanitize()
	return []string{
		fmt.Sprintf("CREATE OR REPLACE TRIGGER %s BEFORE INSERT ON %s FOR EACH ROW WHEN (NEW.%s IS DISTINCT FROM %s) EXECUTE FUNCTION %s()", trigger, table, column, c.DefaultSQL(), c.quotedFunction()),
		fmt.Sprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s", table, trigger),
	}
}

// TriggerSQL makes the function and the trigger that set the column at each INSERT, whatever value
// the statement has: a row that is inserted again, from a copy, by a subscription or with NULL, is
// a row of the transaction that inserts it. The first statement replaces the function and takes its
// ownership in one transaction, so that the new function never runs while somebody else owns it.
func (c Column) TriggerSQL() []string {
	return append([]string{"DO $do$ BEGIN " + strings.Join(c.functionSQL(), "; ") + "; END $do$"}, c.triggerSQL()...)
}

// TableSQL makes the index and the trigger of a table that was created with the column. A table
// that has the trigger already stays as it is, and so does one whose column has not our default.
func (c Column) TableSQL() string {
	table, _ := c.quoted()
	return fmt.Sprintf(`DO $do$ BEGIN
    IF EXISTS (SELECT FROM pg_attribute JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
            WHERE attrelid = %[1]s::regclass AND attname = %[2]s AND atttypid = '%[4]s'::regtype
                AND pg_get_expr(adbin, adrelid) LIKE '%%pg_current_xact_id()%%')
        AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = %[1]s::regclass AND tgname = %[3]s)
    THEN
        IF NOT EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
                WHERE indrelid = %[1]s::regclass AND attname = %[2]s AND indpred IS NULL)
        THEN
            %[5]s;
        END IF;
        %[6]s;
    END IF;
END $do$`, quoteText(table), quoteText(c.Name), quoteText(c.TriggerName()), c.TypeSQL(), c.IndexSQL("ON"), strings.Join(append(c.functionSQL(), c.triggerSQL()...), ";\n        "))
}

// quoteText is s as an SQL string literal.
func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// shortName is a name that PostgreSQL does not cut. A name of more than 63 bytes ends with a
// checksum of the whole name, so that the names for two tables differ.
func shortName(name string) string {
	const longest = 63
	if len(name) <= longest {
		return name
	}
	sum := fmt.Sprintf("_%08x", crc32.ChecksumIEEE([]byte(name)))
	return strings.ToValidUTF8(name[:longest-len(sum)], "") + sum
}
