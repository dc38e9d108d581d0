// Completes a table's shape from the catalogue: NOT NULL, defaults, and the base types of domains,
// which a Relation frame does not contain.

package publication

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// CompleteShape fills in, in the columns of shape, what the catalogue has of the table with that
// OID, and waits for the answer for source.AnswerTimeout at most.
func CompleteShape(ctx context.Context, q source.Querier, shape *event.Shape, oid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, source.AnswerTimeout)
	defer cancel()
	names, types, typmods := make([]string, len(shape.Columns)), make([]uint32, len(shape.Columns)), make([]int32, len(shape.Columns))
	for i, c := range shape.Columns {
		names[i], types[i], typmods[i] = c.Name, c.TypeOID, c.Typmod
	}
	rows, err := q.Query(ctx, `SELECT f.n - 1, coalesce(a.attnotnull OR t.typtype = 'd' AND t.typnotnull, false), pg_get_expr(d.adbin, d.adrelid),
			coalesce(b.oid, f.type), coalesce(b.typmod, f.typmod),
			CASE WHEN b.typtype = 'e' THEN array(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = b.oid ORDER BY e.enumsortorder) END,
			coalesce(b.typname = 'citext', false), coalesce(CASE WHEN b.typtype <> 'e' THEN format_type(b.oid, NULL) END, '')
		FROM unnest($2::text[], $3::oid[], $4::int4[]) WITH ORDINALITY f(name, type, typmod, n)
		LEFT JOIN LATERAL (
			WITH RECURSIVE down AS (
				SELECT y.oid, y.typname, y.typtype, y.typbasetype, f.typmod AS typmod, y.typtypmod, 0 AS depth FROM pg_type y WHERE y.oid = f.type
				UNION ALL SELECT y.oid, y.typname, y.typtype, y.typbasetype, down.typtypmod, y.typtypmod, down.depth + 1
					FROM down JOIN pg_type y ON y.oid = down.typbasetype WHERE down.typtype = 'd')
			SELECT oid, typname, typtype, typmod FROM down ORDER BY depth DESC LIMIT 1) b ON true
		LEFT JOIN pg_attribute a ON a.attrelid = $1 AND a.attname = f.name AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum`, oid, names, types, typmods)
	if err != nil {
		return fmt.Errorf("read the shape of table %s.%s: %w", shape.Schema, shape.Table, err)
	}
	var i int
	var now event.ColumnShape
	var citext bool
	known := pgtype.NewMap()
	_, err = pgx.ForEachRow(rows, []any{&i, &now.NotNull, &now.Default, &now.TypeOID, &now.Typmod, &now.Labels, &citext, &now.Type}, func() error {
		c := &shape.Columns[i]
		c.NotNull, c.Default = now.NotNull, now.Default
		c.TypeOID, c.Typmod, c.Labels = now.TypeOID, now.Typmod, slices.Clone(now.Labels)
		if citext { // to Debezium a text, whose default it does not read
			c.TypeOID, c.Typmod, c.Default = pgtype.TextOID, -1, nil
		}
		// a dead letter would have its OID without the number
		if _, ok := known.TypeForOID(c.TypeOID); !ok && c.TypeOID != pgtype.TimetzOID {
			c.Type = now.Type
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the shape of table %s.%s: %w", shape.Schema, shape.Table, err)
	}
	return nil
}
