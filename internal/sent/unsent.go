// Which rows of a whole table are not known to be sent.

package sent

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// UnsentSQL reads the rows of a table, quoted, that slot $1 is not known to have sent under one of
// the relations $2. Its columns: tx and digest, which are NULL if the row does not say which
// transaction wrote it, and here. Rows that came from another server are left out if an event waits
// or is a dead letter under their id, whatever its table.
//
// here is false for a row that came from another server, and true for one that may have been
// written on this one. It serves to know less: of a row that may have been written here nothing is
// taken from what was true there. It is one whose number this server has given since the schema
// cdc_relay came to it, and not after the row was there. Some rows of a dump have such numbers,
// too. The row of a system column in pg_attribute is as old as its table here: no ALTER changes it.
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
		tableread.WholeXID("a.xmin"), DigestSQL("m.tx", "m.id"), tx, d.IDSQL(), tableread.WholeXID("t.xmin"), table)
}

// UnsentPartsSQL groups the rows of UnsentSQL: their number, and as a part of the set has them
// those that came from another server and can be recorded; of others there is no digest.
func (d *Description) UnsentPartsSQL(table string) string {
	return fmt.Sprintf(`
SELECT count(*), coalesce(min(tx), 0), coalesce(max(tx), 0), CASE WHEN moved THEN array_agg(digest) ELSE '{}' END
FROM (
	SELECT *, digest IS NOT NULL AND NOT here AS moved,
		(row_number() OVER (PARTITION BY tx >> %[1]d, digest IS NOT NULL AND NOT here) - 1) / %[2]d AS part
	FROM (%[3]s) u) u
GROUP BY tx >> %[1]d, moved, part`, ChunkBits, maxPart, d.UnsentSQL(table))
}

// Tells reports whether each row of the table says which transaction wrote it, but for those from
// before it had the column.
func (d *Description) Tells() bool {
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
