// The columns by which rows can be put into the order of their commits. recover and resend read
// rows from the table, which has no commit order, and a column that only looks right would give the
// events of a key in the wrong order. So a column is judged by its default.

package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// defaultsSQL reads the columns of the table $1, quoted, and of its partitions, because a row that
// is written into a partition itself has that partition's defaults. value is the default as the
// server prints it; "" means that there is none, or that the column is generated. counts is true
// for an identity, and for the next value of a sequence that gives no numbers in advance: such a
// column rises in the order in which it is asked.
//
// began is true for a default that is set when the transaction, or its statement, begins. Two
// transactions that wait for one lock may commit in the other order. clock_timestamp() and a
// sequence are asked when the row is written, which is after the lock.
var defaultsSQL = `WITH tree AS (SELECT to_regclass($1)::oid AS oid UNION SELECT relid FROM pg_partition_tree(to_regclass($1))),
	columns AS (SELECT a.attrelid, a.attname::text AS name, a.attnum, a.attidentity <> '' AS identity, ` + sent.BaseTypeSQL("a.atttypid") + ` AS type,
		CASE a.attgenerated WHEN '' THEN coalesce(pg_get_expr(d.adbin, d.adrelid), y.typdefault, '') ELSE '' END AS value,
		EXISTS (SELECT FROM pg_depend x JOIN pg_sequence s ON s.seqrelid IN (x.objid, x.refobjid) AND s.seqincrement > 0 AND s.seqcache = 1 AND NOT s.seqcycle
			WHERE x.classid = 'pg_class'::regclass AND x.objid = s.seqrelid AND x.refclassid = 'pg_class'::regclass AND x.refobjid = a.attrelid AND x.refobjsubid = a.attnum AND x.deptype = 'i'
				OR x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid AND x.refclassid = 'pg_class'::regclass AND x.refobjid = s.seqrelid AND pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%') AS counts
		FROM tree JOIN pg_attribute a ON a.attrelid = tree.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type y ON y.oid = a.atttypid
			LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum),
	defaults AS (SELECT *, value ~* '\m(now|transaction_timestamp|statement_timestamp|txid_current|pg_current_xact_id)\(\)|\m(current_timestamp|localtimestamp|current_date|current_time|localtime)\M|''(now|today|tomorrow|yesterday)''::' AS began FROM columns)
`

// BeginDefault returns a default that is set when the transaction begins, of the column or of a
// column from which it is generated, as the server prints the default. of is the table or partition
// that has it, quoted where that is needed. "" means that there is no such default. What a trigger
// or a user's function sets is not seen.
func BeginDefault(ctx context.Context, q source.Querier, t decode.Table, column string) (value, of string, err error) {
	err = q.QueryRow(ctx, defaultsSQL+`SELECT value, attrelid::regclass::text FROM defaults WHERE began
			AND (name = $2 OR EXISTS (SELECT FROM pg_attribute g JOIN pg_attrdef x ON x.adrelid = g.attrelid AND x.adnum = g.attnum
				-- of the expression; before PostgreSQL 15 of the column itself
				JOIN pg_depend p ON (p.classid = 'pg_attrdef'::regclass AND p.objid = x.oid OR p.classid = 'pg_class'::regclass AND p.objid = g.attrelid AND p.objsubid = g.attnum)
					AND p.refclassid = 'pg_class'::regclass
				WHERE g.attrelid = defaults.attrelid AND g.attname = $2 AND g.attgenerated <> '' AND p.refobjid = g.attrelid AND p.refobjsubid = defaults.attnum))
			ORDER BY attrelid <> to_regclass($1), attrelid LIMIT 1`,
		source.QuoteTable(t), column).Scan(&value, &of)
	if source.IsNoRows(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read the defaults of %s: %w", t, err)
	}
	return value, of, nil
}

// RisingColumn returns a column of all tables that rises with each commit of a key, if whoever
// writes a key takes a lock first: the column's default is a sequence or clock_timestamp(). Of
// several tables only a column with the time is returned, because two sequences have no common
// order. "" means that there is no such column.
func RisingColumn(ctx context.Context, q source.Querier, tables []decode.Table) (column string, err error) {
	for i, t := range tables {
		var name string
		// the other partitions have the same default, or none
		err := q.QueryRow(ctx, defaultsSQL+`SELECT coalesce((SELECT name FROM defaults
				WHERE (type = 'timestamptz'::regtype OR NOT $2 AND type IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)) AND name ~ '^\w+$'
				GROUP BY name HAVING NOT bool_or(began) AND bool_or(attrelid = to_regclass($1) AND (counts OR value = 'clock_timestamp()'))
					AND count(DISTINCT value) FILTER (WHERE value <> '') + bool_or(identity)::int = 1
				ORDER BY bool_or(counts) DESC, min(attnum) LIMIT 1), '')`, source.QuoteTable(t), len(tables) > 1).Scan(&name)
		if err != nil {
			return "", fmt.Errorf("read the defaults of %s: %w", t, err)
		}
		if i > 0 && name != column {
			return "", nil
		}
		column = name
	}
	return column, nil
}

// OrderFlag is the flag, to be put behind the names of recover and resend, by which they know the
// order of rows. It is "" if the server tracks the times of commits, because the commands then know
// the order of the commits.
func OrderFlag(ctx context.Context, q source.Querier, tables []decode.Table) (string, error) {
	var tracked bool
	if err := q.QueryRow(ctx, `SELECT current_setting('track_commit_timestamp')::bool`).Scan(&tracked); err != nil || tracked {
		return "", err
	}
	column, err := RisingColumn(ctx, q, tables)
	switch {
	case err != nil:
		return "", err
	case column == "":
		return " --order-by COLUMN", nil
	}
	return " --order-by " + column, nil
}

// WithOrder adds a flag of OrderFlag to the command recover wherever a text names it.
func WithOrder(text, flag string) string {
	const command = "cdc-relay recover"
	return strings.ReplaceAll(text, command, command+flag)
}
