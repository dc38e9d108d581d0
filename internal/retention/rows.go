// Which rows may be deleted: the SQL, and why nothing that was not delivered is among them.
//
// A row may be deleted when
//
//  1. it is in the sent set of our slot: the broker has confirmed its event. See package sent.
//  2. every event of its transaction is settled, and none of them is an open dead letter, whatever
//     its id: an id that a transaction wrote twice, or that was changed since, may name the row of
//     another event of it, and a dead letter of a large row has its values in the table alone.
//  3. it is in the sent set of every other slot that sends its table, or was there before that
//     slot was (publication.Table.First). A slot that is not ready counts like any other, and one
//     of which it is not known yet what it sends counts for every table: what it has not recorded
//     may have to be read from the table. What was there before a slot of another system is not
//     known here, since its numbers are those of other transactions.
//  4. its delivery was recorded long enough ago.
//
// A row that waits in the retry table, or is a dead letter, was not confirmed, so it is in no sent
// set. It is added when it is confirmed, by the statement that removes it from there.
//
// First the rows of a group of parts are found, in one snapshot. That all events of their
// transactions are settled is known before it, so the dead letters that it shows are all that they
// can become. Then they are deleted in batches. Each statement looks again whether a row still has
// the transaction and the id that were delivered, since VACUUM may have put another row in its
// place. A row that somebody changes meanwhile is left to the next pass. A new leader raises the
// epoch, which waits for a statement that has the fence, and the next statement finds it raised.
//
// A part of the sent set goes once none of its rows is left. That is asked after its transactions
// have ended: a row whose transaction still waits, for a synchronous standby, is not visible yet.

package retention

import (
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// ripeSQL lists parts of the sent set of slot $1 that are older than $3 seconds and whose
// transactions the slot is past, as of the snapshot $2, in the order of their age, from ($4, $5)
// on.
const ripeSQL = `
SELECT relation, chunk, n, at::text, extract(epoch FROM now() - at)::float8, pg_column_size(digests)
FROM cdc_relay.sent
WHERE slot = $1::text
	AND at <= now() - make_interval(secs => $3::float8)
	AND (at, n) > ($4::timestamptz, $5::bigint)
	AND ` + ended + `
ORDER BY at, n
LIMIT $6::int`

// ended is the condition that all transactions of a part had ended in the snapshot $2.
const ended = `last_tx < pg_snapshot_xmax($2::pg_snapshot)::text::bigint
	AND NOT EXISTS (SELECT FROM pg_snapshot_xip($2::pg_snapshot) x WHERE x::text::bigint BETWEEN first_tx AND last_tx)`

// findSQL finds the rows of a leaf that a group of parts names, with their digests, and what keeps
// them: a slot that still needs the row, or "" and true for a dead letter of its transaction, or a
// copy that waits and has its values in the table alone. $1 is our slot, $2 the epoch, $3 the
// relation, $4 the chunk, $5 the numbers of the parts, $6 and $7 the OIDs and quoted names of the
// table and all its relatives.
func findSQL(l sent.Leaf, d *sent.Description) string {
	column, oid := "t."+pgx.Identifier{d.Transaction}.Sanitize(), strconv.FormatUint(uint64(l.OID), 10)
	bound := func(of string) string {
		if d.Bigint {
			return "(SELECT " + of + " FROM parts)"
		}
		return "(SELECT " + of + " FROM parts)::text::xid8"
	}
	return dlq.ReadFence + `,
parts AS MATERIALIZED (
	SELECT first_tx, last_tx, digests FROM cdc_relay.sent
	WHERE slot = $1::text AND relation = $3::oid AND chunk = $4::bigint AND n = ANY ($5::bigint[])),
digests AS MATERIALIZED (SELECT DISTINCT unnest(digests) AS digest FROM parts),
dead AS MATERIALIZED (
	SELECT tx FROM cdc_relay.dead_letter
	WHERE state = 'open' AND tx BETWEEN (SELECT min(first_tx) FROM parts) AND (SELECT max(last_tx) FROM parts)
	UNION SELECT tx FROM cdc_relay.retry
	WHERE left_out IS NOT NULL AND tx BETWEEN (SELECT min(first_tx) FROM parts) AND (SELECT max(last_tx) FROM parts)),
others AS MATERIALIZED (
	SELECT s.slot::text AS slot, CASE WHEN of.firsts IS NULL OR s.system_id <> (SELECT system_id FROM cdc_relay.slots WHERE slot = $1::text) THEN '{` + noRows + `}' ELSE of.firsts END AS firsts
	FROM cdc_relay.slots s CROSS JOIN LATERAL (
		SELECT array_agg(coalesce(nullif(e.value->>'first', ''), '` + noRows + `')) AS firsts
		FROM jsonb_each(coalesce(s.sends->'tables', '{}')) e
		WHERE e.key = ANY ($7::text[]) OR (e.value->>'oid')::oid = ANY ($6::oid[])) of
	WHERE s.slot <> $1::text AND (of.firsts IS NOT NULL OR s.state <> 'ready' AND coalesce(s.sends->'tables', '{}') = '{}')),
others_sent AS MATERIALIZED (
	SELECT slot::text, unnest(digests) AS digest FROM cdc_relay.sent
	WHERE slot IN (SELECT slot FROM others) AND at < 'infinity' AND relation = ANY (` + sent.OIDArray(l.Under) + `) AND chunk = $4::bigint)
SELECT m.at, m.digest,
	coalesce((
		SELECT min(o.slot) FROM others o
		WHERE (o.slot, m.digest) NOT IN (SELECT slot, digest FROM others_sent)
			AND EXISTS (SELECT FROM unnest(o.firsts) f WHERE NOT coalesce(pg_visible_in_snapshot(m.tx::text::xid8, f::pg_snapshot), false))), ''),
	m.tx IN (SELECT tx FROM dead)
FROM (
	SELECT t.ctid AS at, ` + sent.TxSQL(column, d.Bigint) + ` AS tx, ` + sent.DigestSQL(sent.TxSQL(column, d.Bigint), d.IDSQL()) + ` AS digest
	FROM ONLY ` + l.Name + ` t
	WHERE ` + column + ` >= ` + bound("min(first_tx)") + `
		AND ` + column + ` <= ` + bound("max(last_tx)") + `
		AND EXISTS (SELECT FROM fence)
		AND t.tableoid = ` + oid + `
		AND ($3::oid = ` + oid + ` OR EXISTS (SELECT FROM pg_partition_tree($3::oid) WHERE relid = ` + oid + `))
	OFFSET 0) m
WHERE m.digest IN (SELECT digest FROM digests)`
}

// noRows is publication.NoRows: a slot that sends all rows.
const noRows = "3:3:"

// removeSQL deletes rows of a leaf: $3 are their ctids, $4 their digests. Its row: whether the
// epoch is still ours, and how many it has deleted.
func removeSQL(l sent.Leaf, d *sent.Description) string {
	column := "t." + pgx.Identifier{d.Transaction}.Sanitize()
	return dlq.WriteFence + `,
chosen AS MATERIALIZED (
	SELECT t.ctid AS at FROM ONLY ` + l.Name + ` t
	WHERE t.ctid = ANY ($3::tid[]) AND t.tableoid = ` + strconv.FormatUint(uint64(l.OID), 10) + `
		AND ` + sent.DigestSQL(sent.TxSQL(column, d.Bigint), d.IDSQL()) + ` = ANY ($4::bigint[])
		AND EXISTS (SELECT FROM fence)
	FOR UPDATE OF t SKIP LOCKED),
gone AS (
	DELETE FROM ONLY ` + l.Name + ` d
	WHERE d.ctid = ANY (array(SELECT at FROM chosen))
	RETURNING 1)
SELECT EXISTS (SELECT FROM fence), (SELECT count(*) FROM gone)`
}

// dropSQL removes parts of which no row is left.
const dropSQL = dlq.WriteFence + `,
gone AS (
	DELETE FROM cdc_relay.sent USING fence
	WHERE slot = $1::text AND relation = $3::oid AND chunk = $4::bigint AND n = ANY ($5::bigint[]))
SELECT EXISTS (SELECT FROM fence)`

// settings are those of each transaction. It waits for no lock. A deletion that is lost in a crash
// of the server is only made again. The checks of the table are planned once.
const settings = `SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '10s'; SET LOCAL synchronous_commit = off; SET LOCAL jit = off;
	SET LOCAL plan_cache_mode = force_generic_plan`

// plan goes before the statements of this file, behind the checks. Tables are read by their
// indexes: nothing is read whole, whatever their statistics say.
const plan = `SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off`

// findPlan is plan for findSQL, which may read some million rows of one transaction.
const findPlan = plan + `; SET LOCAL statement_timeout = '1min'`
