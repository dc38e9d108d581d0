// Which rows may be deleted: the SQL, and why nothing that is not delivered is among them.
//
// A row may be deleted when
//
//  1. the transaction that wrote it is below progress.settled_xid of every slot that sends its
//     table. A slot that is not ready, that is of another system, or whose settled_xid is not known
//     has settled nothing. "Settled" is I2: the broker has confirmed the event, or its row is in
//     the retry table or among the dead letters. The relay records it after that, in this database.
//  2. no row of the retry table and no open dead letter of any slot has its id, or may have it.
//     Such a row is not delivered, or may need the outbox's row for a replay.
//  3. its transaction is in no interval that an operator has accepted as missing and that is not
//     recovered: cdc-relay recover would read it from the table. Nor in one that was recovered
//     with a condition, which may have left it out.
//  4. for one of the slots at least it was there to be sent: rows from before a table was added to
//     a slot, or from before a slot that was made with --no-backfill, are left to whoever is
//     responsible for them (publication.Table.Since). So are those of a partition from before it
//     was attached, and those of one that is detached: see links.
//  5. it is old enough.
//
// All of this is read in the snapshot of the statement that deletes. An event's row moves from the
// retry table to the dead letters in one transaction, and leaves them after the broker's confirm.
// So whoever sees the settled_xid of 1 sees the row of an event that is settled and not delivered,
// in one table or the other. That is true after a crash at any point, as every statement is a
// transaction of its own, and after a promotion or a restore: the standby has all three as of one
// moment of the primary. The confirms that settled_xid stands for cannot be undone by it.
//
// What is concurrent: a row that another transaction updates has a new xmin, above every
// settled_xid, and its new version waits until the old rules hold for it. A new leader raises the
// epoch, which waits for a statement that has the fence, and the next statement finds it raised.
// What a second relay begins to send after the snapshot it reads from the WAL, whatever the table
// still has. Its slot sends what is committed after it was made, and init --backfill copies what
// the table has.

package retention

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

// boundSQL reads up to which transaction rows are settled by all who send them, as b: settled
// is 0 if that is not known; since is the first transaction from which on one of them sends all
// rows (publication.Table.Since; where that is not known, the last one that there can be);
// slots are all slots, and next is the next transaction. retries, dead_letters and gaps say whether
// there is any at all: on a healthy day there is none, and no row need be looked for. $1 is our
// slot, $3 and $4 the OIDs and the quoted names of the table and all its relatives.
//
// A record of another system counts as one that has settled nothing: after pg_upgrade or a restore
// it waits for an operator, and what its slot has not sent may be in the table alone.
const boundSQL = `
holders AS MATERIALIZED (
	SELECT
		s.slot::text AS slot,
		of.since,
		CASE WHEN s.state = 'ready' AND s.system_id = coalesce(
				(SELECT o.system_id FROM cdc_relay.slots o WHERE o.slot = $1::text), s.system_id)
			THEN p.settled_xid::text::bigint
		END AS settled
	FROM cdc_relay.slots s
		LEFT JOIN cdc_relay.progress p ON p.slot = s.slot
		CROSS JOIN LATERAL (
			SELECT count(*) AS n, max(coalesce(nullif((e.value->>'since')::bigint, 0), 9223372036854775807)) AS since
			FROM jsonb_each(coalesce(s.sends->'tables', '{}')) e
			WHERE e.key = ANY ($4::text[]) OR (e.value->>'oid')::oid = ANY ($3::oid[])) of
	WHERE of.n > 0),
b AS MATERIALIZED (
	SELECT
		CASE WHEN bool_and(settled IS NOT NULL) AND bool_or(slot = $1::text)
			THEN min(settled)
			ELSE 0
		END AS settled,
		coalesce(min(since), 9223372036854775807) AS since,
		array(SELECT slot::text FROM cdc_relay.slots) AS slots,
		pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next,
		EXISTS (SELECT FROM cdc_relay.retry) AS retries,
		EXISTS (SELECT FROM cdc_relay.dead_letter WHERE state = 'open') AS dead_letters,
		EXISTS (SELECT FROM cdc_relay.gap WHERE recovered_at IS NULL OR left_out) AS gaps
	FROM holders)`

// rowsSQL is the SQL of a leaf's rows: parts of the two statements. Alias t is the row.
type rowsSQL struct {
	leaf string   // quoted
	root uint32   // the OID of the table that the leaf is, or is a partition of
	ids  []string // columns of t, quoted: the first that is not NULL has the event's id
	at   string   // the row's time
	xid  string   // the row's transaction, with its epoch
	keep bool     // rows are kept for a time
}

// newRowsSQL makes the SQL for a leaf whose id and time are in columns. No column of the time: that
// of the commit counts, when the server keeps it. A time that timestamptz has no room for must not
// fail the statement: what is far away is infinite.
func newRowsSQL(leaf string, root uint32, id, at []string, keep bool) rowsSQL {
	s := rowsSQL{
		leaf: leaf,
		root: root,
		xid:  strings.ReplaceAll(tableread.WholeXID("t.xmin"), "next", "(SELECT next FROM b)"),
		at:   "CASE WHEN current_setting('track_commit_timestamp')::bool THEN pg_xact_commit_timestamp(t.xmin) END",
		keep: keep,
	}
	for _, name := range id {
		s.ids = append(s.ids, pgx.Identifier{name}.Sanitize())
	}
	var parts []string
	for _, name := range at {
		parts = append(parts, fmt.Sprintf(`CASE
				WHEN %[1]s > '9000-01-01' THEN 'infinity'
				WHEN %[1]s < '4000-01-01 BC' THEN '-infinity'
				ELSE %[1]s::timestamptz END`, "t."+pgx.Identifier{name}.Sanitize()))
	}
	s.at = "coalesce(" + strings.Join(append(parts, s.at), ", ") + ")"
	return s
}

// id is the SQL of the event's id, as the retry table has it.
//
// In a database of another encoding than UTF-8 an id of other characters than ASCII counts as not
// known: it may have no equivalent, and one such row must not fail the statement.
//
// The output function of the id's type, which format calls, is never its owner's: a base type is a
// superuser's, and the output of all others is PostgreSQL's own.
func (s rowsSQL) id() string {
	var parts []string
	for _, name := range s.ids {
		parts = append(parts, fmt.Sprintf("CASE WHEN t.%[1]s IS NOT NULL THEN format('%%s', t.%[1]s) END", name))
	}
	text := "coalesce(" + strings.Join(append(parts, "NULL"), ", ") + ")"
	return "CASE WHEN getdatabaseencoding() = 'UTF8' OR " + text + ` COLLATE "C" ~ '^[\x01-\x7f]*$' THEN convert_to(` + text + ", 'UTF8') END"
}

// old is the SQL of 5. $7 is the age in seconds. The database's clock alone decides. A row of
// unknown time is old enough when its transaction is below $8: see samples.
func (s rowsSQL) old() string {
	if !s.keep {
		return "($7::float8 = 0 AND $8::bigint >= 0)"
	}
	return "coalesce(" + s.at + " <= now() - make_interval(secs => $7::float8), " + s.xid + " < $8::bigint)"
}

// read is a FROM item t that computes time and transaction of each row once, and the SQL of its
// rows.
func (s rowsSQL) read() (from string, of rowsSQL) {
	of = s
	of.ids, of.at, of.xid = nil, "t.at", "t.xid"
	columns := ""
	for i, name := range s.ids {
		of.ids = append(of.ids, "id"+strconv.Itoa(i))
		columns += ", t." + name + " AS " + of.ids[i]
	}
	return `(SELECT ` + s.at + ` AS at, ` + s.xid + ` AS xid` + columns + s.from() + `
		OFFSET 0) t`, of
}

// settled is the SQL of 1 and 4.
func (s rowsSQL) settled() string {
	return s.xid + " < (SELECT settled FROM b) AND " + s.xid + " >= (SELECT since FROM b) AND " +
		s.xid + " > (SELECT attached FROM links)"
}

// links is the SQL of the newest transaction that attached the leaf, a parent of it, or the table:
// NULL if the leaf is no partition of the table any more. A row of a partition is sent if it was
// written after that, so what the same transaction has written may not be sent. A partition that
// is made as one has the transaction that made it. After pg_upgrade or a restore of a dump it is
// that one, which is too new.
func (s rowsSQL) links() string {
	xid := strings.ReplaceAll(tableread.WholeXID("i.xmin"), "next", "(SELECT next FROM b)")
	return fmt.Sprintf(`,
links AS MATERIALIZED (
	WITH RECURSIVE up AS (
		SELECT '%s'::regclass::oid AS oid, 0::bigint AS xid
		UNION ALL SELECT i.inhparent, %s FROM up JOIN pg_inherits i ON i.inhrelid = up.oid)
	SELECT CASE WHEN bool_or(oid = %d) THEN max(xid) END AS attached FROM up)`,
		strings.ReplaceAll(s.leaf, "'", "''"), xid, s.root)
}

// longestID bounds, in bytes, the ids that are looked for. A dead letter may lack a longer one:
// of a row over source.max_event_bytes the stream is read without values above 4 KiB, as the
// server stores them.
const longestID = 2 << 10

// held is the SQL of what 2 and 3 exclude. A row without an id, or with one that is too long, may
// have the id of any event that is deferred or dead: it waits while there is one. An event without
// an id is a dead letter itself, so its row waits for the operator.
//
// OFFSET 0 and the empty string keep the planner from reading all rows, or all open dead letters,
// of a slot: the rows are found by the indexes on the id.
func (s rowsSQL) held() string {
	id := func(table string) string {
		return `EXISTS (
			SELECT FROM cdc_relay.` + table + ` f
			WHERE f.slot = ANY ((SELECT slots FROM b)::text[])
				AND substring(f.id, 1, 200) = substring(` + s.id() + `, 1, 200)
				AND f.id = ` + s.id()
	}
	deferred := id("retry") + " OFFSET 0)"
	dead := id("dead_letter") + " AND f.state || '' = 'open' OFFSET 0)"
	missing := `EXISTS (
			SELECT FROM cdc_relay.gap g
			WHERE g.slot = ANY ((SELECT slots FROM b)::text[])
				AND (g.recovered_at IS NULL OR g.left_out)
				AND g.system_id = (SELECT o.system_id FROM cdc_relay.slots o WHERE o.slot = $1::text)
				AND coalesce(g.from_xid::text::bigint <= ` + s.xid + `, true)
				AND coalesce(g.until_xid::text::bigint > ` + s.xid + `, true)
			OFFSET 0)`
	return `(
		(SELECT retries OR dead_letters FROM b) AND (
			coalesce(octet_length(` + s.id() + `) > ` + strconv.Itoa(longestID) + `, true)
			OR (SELECT retries FROM b) AND ` + deferred + `
			OR (SELECT dead_letters FROM b) AND ` + dead + `)
		OR (SELECT gaps FROM b) AND ` + missing + ")"
}

// oldAndSettled is the SQL of 1, 4 and 5, which are asked before the rest: they cost less.
func (s rowsSQL) oldAndSettled() string { return s.old() + " AND " + s.settled() }

// from is the FROM of both statements: the rows of the blocks from $5 to $6, without the latter.
func (s rowsSQL) from() string {
	return `
	FROM ONLY ` + s.leaf + ` t
	WHERE t.ctid >= $5::tid
		AND t.ctid < $6::tid
		AND EXISTS (SELECT FROM fence)`
}

// look is the statement that looks at blocks and changes nothing. Its row is, after whether the
// epoch is still ours, what findings has, in this order.
func (s rowsSQL) look() string {
	from, of := s.read()
	return dlq.ReadFence + ", " + boundSQL + s.links() + `
SELECT
	EXISTS (SELECT FROM fence),
	count(*),
	count(*) FILTER (WHERE old AND settled AND NOT held),
	count(*) FILTER (WHERE old AND settled AND held),
	count(*) FILTER (WHERE above),
	count(*) FILTER (WHERE old AND above),
	count(*) FILTER (WHERE NOT old AND settled),
	least(extract(epoch FROM min(at) FILTER (WHERE NOT old AND isfinite(at))) - extract(epoch FROM now()) + $7::float8, 1e9)::float8,
	least(extract(epoch FROM now()) - extract(epoch FROM min(at) FILTER (WHERE old AND above AND isfinite(at))) - $7::float8, 1e9)::float8,
	(SELECT settled FROM b)
FROM (
	SELECT
		at,
		` + of.old() + ` AS old,
		` + of.settled() + ` AS settled,
		` + of.xid + ` >= (SELECT settled FROM b) AS above,
		CASE WHEN ` + of.oldAndSettled() + ` THEN ` + of.held() + ` END AS held
	FROM ` + from + `
	OFFSET 0) r`
}

// remove is the statement that deletes up to $9 rows of blocks. Its row, after whether the epoch is
// still ours: how many it has deleted. A row that somebody else has locked is left for later.
func (s rowsSQL) remove() string {
	return dlq.WriteFence + ", " + boundSQL + s.links() + `,
chosen AS MATERIALIZED (
	SELECT t.ctid AS at` +
		s.from() + `
		AND CASE WHEN ` + s.oldAndSettled() + ` THEN NOT ` + s.held() + ` ELSE false END
	LIMIT $9::int
	FOR UPDATE OF t SKIP LOCKED),
gone AS (
	DELETE FROM ONLY ` + s.leaf + ` d
	WHERE d.ctid = ANY (array(SELECT at FROM chosen))
	RETURNING 1)
SELECT EXISTS (SELECT FROM fence), (SELECT count(*) FROM gone)`
}

// plan are the settings of a transaction with these statements. Its tables are read by their
// indexes, block by block: nothing is read whole, whatever their statistics say. It waits for no
// lock. A deletion that is lost in a crash of the server is only made again.
const plan = `SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '10s'; SET LOCAL synchronous_commit = off;
	SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off`
