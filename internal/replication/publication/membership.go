// The SQL that tells whether and how the publication sends a table, by the rows of the catalogue.

package publication

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// sentSQL is a subquery for LATERAL with a row if publication $1 sends c, a row of pg_class: its
// row filter, the attribute numbers of its column list, and whether stored generated columns are
// sent without one. bySchema is set when the server has publications of whole schemas, which came
// with row filters and column lists.
//
// pg_publication_tables has the same answers, but opens every table of the publication for them:
// it would wait for whoever has locked any (VACUUM FULL, ALTER TABLE), and the relay with it. No
// lock of a table is taken here, but that of c when it has a row filter. The rules are those of
// pg_get_publication_tables:
//
//   - FOR ALL TABLES has what is publishable; with publish_via_partition_root no partitions, else
//     no partitioned tables.
//   - Otherwise, with publish_via_partition_root, a table must be listed or in a listed schema
//     itself, and no table that it is a partition of may be. Else one of them is enough, and
//     partitioned tables do not count.
//   - Row filter and column list are those of the table's own membership, and do not apply when the
//     publication also has all tables or the table's schema.
func sentSQL(bySchema bool) string {
	filter, inSchema := "''", func(string) string { return "false" }
	if bySchema {
		filter, inSchema = "coalesce(pg_get_expr(r.prqual, r.prrelid), '')", func(class string) string {
			return "EXISTS (SELECT FROM pg_publication_namespace s WHERE s.pnpubid = b.oid AND s.pnnspid = " + class + ".relnamespace)"
		}
	}
	return `SELECT true AS sent, ` + filter + ` AS filter, nullif(to_jsonb(r)->'prattrs', 'null') AS attnums,
			coalesce(to_jsonb(b)->>'pubgencols' = 's', false) AS stored
		FROM pg_publication b
		CROSS JOIN LATERAL (SELECT coalesce(bool_or(k.oid = c.oid), false) AS itself, coalesce(bool_or(k.oid <> c.oid), false) AS above FROM pg_class k
			WHERE k.oid IN (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) a(relid))
				AND (EXISTS (SELECT FROM pg_publication_rel l WHERE l.prpubid = b.oid AND l.prrelid = k.oid)
					OR pg_relation_is_publishable(k.oid) AND ` + inSchema("k") + `)) named
		LEFT JOIN pg_publication_rel r ON r.prpubid = b.oid AND r.prrelid = c.oid AND NOT b.puballtables AND NOT ` + inSchema("c") + `
		WHERE b.pubname = $1 AND CASE
			WHEN b.puballtables THEN pg_relation_is_publishable(c.oid) AND CASE WHEN b.pubviaroot THEN NOT c.relispartition ELSE c.relkind = 'r' END
			WHEN b.pubviaroot THEN named.itself AND NOT named.above
			ELSE (named.itself OR named.above) AND c.relkind <> 'p' END`
}

// knowsSchemas reports whether the server has publications of whole schemas: PostgreSQL 15 and
// later.
func knowsSchemas(ctx context.Context, q source.Querier) (yes bool, err error) {
	if err := q.QueryRow(ctx, `SELECT to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL`).Scan(&yes); err != nil {
		return false, fmt.Errorf("look for pg_publication_namespace: %w", err)
	}
	return yes, nil
}
