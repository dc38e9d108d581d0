// What the catalogue knows of a table's columns and its Relation frame does not: NOT NULL, defaults, what a domain stands for.

package replication

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// shaped completes the shape of a table that the stream has described, and gives it back to the decoder. It asks for the table
// as it is now, as Debezium does, which may be later than the rows that come: what is not there any more is taken to be
// optional and without default.
func (r *reading) shaped(shape *outbox.Shape, oid uint32) error {
	r.t.line.Wake(true) // what was read need not wait for the catalogue
	if err := completeShape(r.ctx, r.pool, shape, oid); err != nil {
		if r.ctx.Err() != nil {
			return errReadCut
		}
		return err
	}
	return r.decoder.Shaped(oid, shape)
}

func completeShape(ctx context.Context, q querier, shape *outbox.Shape, oid uint32) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	rows, err := q.Query(ctx, `SELECT a.attname, a.attnotnull OR t.typtype = 'd' AND t.typnotnull, pg_get_expr(d.adbin, d.adrelid), a.atttypid, b.oid, b.typmod
		FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		CROSS JOIN LATERAL (
			WITH RECURSIVE down AS (
				SELECT t.oid, t.typtype, t.typbasetype, a.atttypmod AS typmod, t.typtypmod, 0 AS depth
				UNION ALL SELECT n.oid, n.typtype, n.typbasetype, down.typtypmod, n.typtypmod, down.depth + 1
					FROM down JOIN pg_type n ON n.oid = down.typbasetype WHERE down.typtype = 'd')
			SELECT oid, typmod FROM down ORDER BY depth DESC LIMIT 1) b
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped`, oid)
	if err != nil {
		return fmt.Errorf("read the shape of table %s.%s: %w", shape.Schema, shape.Table, err)
	}
	var now outbox.ColumnShape
	var declared uint32
	_, err = pgx.ForEachRow(rows, []any{&now.Name, &now.NotNull, &now.Default, &declared, &now.TypeOID, &now.Typmod}, func() error {
		i := slices.IndexFunc(shape.Columns, func(c outbox.ColumnShape) bool { return c.Name == now.Name })
		if i < 0 {
			return nil
		}
		c := &shape.Columns[i]
		c.NotNull, c.Default = now.NotNull, now.Default
		if c.TypeOID == declared && now.TypeOID != declared { // a domain
			c.TypeOID, c.Typmod = now.TypeOID, now.Typmod
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the shape of table %s.%s: %w", shape.Schema, shape.Table, err)
	}
	return nil
}
