// What keeps the sent set itself small: parts of the set are merged, and parts are dropped whose
// rows somebody else has deleted. The count of unsent rows is here too, because it goes through the
// tables in the same way.

package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

const (
	tidyEvery  = time.Minute
	tidyChunks = 1000 // chunks that are merged, or examined, at once
)

// mergeableSQL lists relations and chunks of slot $1 with several parts that were recorded within
// the same ten minutes of the last hour, because a part is written with each report, up to ten
// times a second. Parts are not merged over a longer time, because the newest entry of a part
// decides when the whole part is deleted.
const mergeableSQL = `
SELECT relation, chunk, array_agg(n), ''
FROM cdc_relay.sent
WHERE slot = $1::text AND at BETWEEN now() - interval '1 hour' AND now() - interval '1 minute'
GROUP BY relation, chunk, floor(extract(epoch FROM at) / 600)
HAVING count(*) > 1 AND sum(pg_column_size(digests)) < 262144
LIMIT $2::int`

// mergeSQL makes one part of several. $1 is the slot, $2 the epoch, $3 the relation, $4 the chunk,
// and $5 are the numbers of the parts.
const mergeSQL = dlq.WriteFence + `,
old AS (
	DELETE FROM cdc_relay.sent s USING fence
	WHERE s.slot = $1::text AND s.relation = $3::oid AND s.chunk = $4::bigint AND s.n = ANY ($5::bigint[])
	RETURNING s.*),
merged AS (
	INSERT INTO cdc_relay.sent (slot, relation, chunk, first_tx, last_tx, digests, at)
	SELECT $1::text, $3::oid, $4::bigint, min(first_tx), max(last_tx), (SELECT array_agg(DISTINCT d) FROM old o, unnest(o.digests) d), max(at)
	FROM old HAVING count(*) > 0)
SELECT EXISTS (SELECT FROM fence)`

// oldSQL lists chunks of slot $1 behind ($3, $4), with the relation's name ("" if the relation is
// gone). The chunks were recorded an hour ago, or by an operator's word, and the slot is past their
// transactions: these had ended in the snapshot $2.
const oldSQL = `
SELECT relation, chunk, array_agg(n), coalesce((SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = relation), '')
FROM cdc_relay.sent
WHERE slot = $1::text
	AND (relation, chunk) > ($3::oid, $4::bigint)
	AND (at < now() - interval '1 hour' OR at = 'infinity')
	AND ` + partsEnded + `
GROUP BY relation, chunk
ORDER BY relation, chunk
LIMIT $5::int`

// purgedSQL lists, as oldSQL does, purged dead letters that still have the digest of their row.
var purgedSQL = `
SELECT relation::oid, tx >> ` + chunkBits + `, array_agg(dl.n), coalesce((SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = relation::oid), '')
FROM cdc_relay.dead_letter dl
WHERE slot = $1::text AND state = 'purged' AND digest IS NOT NULL
	AND (relation::oid, tx >> ` + chunkBits + `) > ($3::oid, $4::bigint)
	AND tx < pg_snapshot_xmax($2::pg_snapshot)::text::bigint
GROUP BY 1, 2, relation
ORDER BY 1, 2
LIMIT $5::int`

// chunkBits is sent.ChunkBits for the SQL of this file.
var chunkBits = strconv.Itoa(sent.ChunkBits)

// forgetSQL forgets the digests of purged dead letters whose rows are no longer in the table. Until
// then the digest protects the row: see retry/postgres.expireSQL.
var forgetSQL = dlq.WriteFence + `,
forgotten AS (
	UPDATE cdc_relay.dead_letter SET digest = NULL FROM fence
	WHERE slot = $1::text AND relation::oid = $3::oid AND tx >> ` + chunkBits + ` = $4::bigint AND n = ANY ($5::bigint[]))
SELECT EXISTS (SELECT FROM fence)`

// tidySent merges parts of the sent set, and drops those of which no row is left in the tables, one
// page at each call. It does the same with the digests of purged dead letters.
func (r *Retention) tidySent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if r.cfg.Keep >= time.Hour || !r.cfg.Delete { // else they go before
		if err := r.mergeParts(ctx); err != nil {
			return err
		}
	}
	if r.settledLook.end == 0 {
		return nil
	}
	if err := r.dropOrphans(ctx, oldSQL, dropSQL, &r.tidiedChunk); err != nil {
		return err
	}
	return r.dropOrphans(ctx, purgedSQL, forgetSQL, &r.tidiedPurged)
}

// mergeParts merges the parts that mergeableSQL lists.
func (r *Retention) mergeParts(ctx context.Context) error {
	list, err := r.listChunks(ctx, mergeableSQL, r.cfg.Slot, tidyChunks)
	if err != nil {
		return err
	}
	for _, of := range list {
		if err := r.changeParts(ctx, mergeSQL, of); err != nil {
			return err
		}
	}
	return nil
}

// chunkParts are parts of one relation and chunk.
type chunkParts struct {
	Relation uint32
	Chunk    int64
	Numbers  []int64
	Name     string // quoted; "": the relation is gone
}

// listChunks runs mergeableSQL, oldSQL or purgedSQL.
func (r *Retention) listChunks(ctx context.Context, sql string, args ...any) ([]chunkParts, error) {
	rows, err := r.cfg.Pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read cdc_relay.sent: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[chunkParts])
	if err != nil {
		return nil, fmt.Errorf("read cdc_relay.sent: %w", err)
	}
	return list, nil
}

// changeParts runs mergeSQL, dropSQL or forgetSQL on some parts, if this relay still leads.
func (r *Retention) changeParts(ctx context.Context, sql string, of chunkParts) error {
	var ours bool
	err := r.cfg.Pool.QueryRow(ctx, sql, r.cfg.Slot, r.cfg.Epoch, of.Relation, of.Chunk, of.Numbers).Scan(&ours)
	return r.fencedUnless(ours, err)
}

// dropOrphans drops, by dropSQL, those chunks of the next page of listSQL whose rows are gone.
// tidied is the last chunk of the page before; it is set back after the last page, so that the next
// call begins again.
func (r *Retention) dropOrphans(ctx context.Context, listSQL, dropSQL string, tidied *chunkParts) error {
	list, err := r.listChunks(ctx, listSQL, r.cfg.Slot, r.settledLook.snapshot, tidied.Relation, tidied.Chunk, tidyChunks)
	if err != nil {
		return err
	}
	*tidied = chunkParts{}
	if len(list) == tidyChunks {
		*tidied = list[len(list)-1]
	}
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(of chunkParts) bool { return of.Relation != list[0].Relation })
		if n < 0 {
			n = len(list)
		}
		empty, err := r.emptyChunks(ctx, list[:n])
		if err != nil {
			return err
		}
		for _, of := range empty {
			if err := r.changeParts(ctx, dropSQL, of); err != nil {
				return err
			}
		}
		list = list[n:]
	}
	return nil
}

// emptyChunks returns those chunks of one relation of which no row is left: all of them if the
// relation is gone. It returns none of a table that is not configured, or that may not be read,
// because nothing is known of the table's rows.
func (r *Retention) emptyChunks(ctx context.Context, list []chunkParts) (empty []chunkParts, err error) {
	name := list[0].Name
	if name == "" {
		return list, nil
	}
	i := -1
	var d sent.Description
	for _, t := range r.cfg.Tables {
		if d, err = sent.Describe(ctx, r.cfg.Pool, t); err != nil {
			return nil, err
		}
		if i = slices.Index(d.Family, list[0].Relation); i >= 0 {
			break
		}
	}
	if i < 0 || !countable(&d) {
		return nil, nil
	}
	column, kind := pgx.Identifier{d.Transaction}.Sanitize(), sent.Column{Bigint: d.Bigint}.TypeSQL()
	err = sent.ReadTable(ctx, r.cfg.Pool, name, func(tx pgx.Tx) error {
		for _, of := range list {
			first, next := strconv.FormatInt(of.Chunk<<sent.ChunkBits, 10), strconv.FormatInt((of.Chunk+1)<<sent.ChunkBits, 10)
			var some bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+name+` WHERE `+column+` >= '`+first+`'::`+kind+` AND `+column+` < '`+next+`'::`+kind+`)`).Scan(&some); err != nil {
				return err
			}
			if !some {
				empty = append(empty, of)
			}
		}
		return nil
	})
	if mayNotBeRead(err) {
		return nil, nil
	}
	return empty, err
}

// mayNotBeRead reports whether tidying leaves a table out after this error: the table is refused, a
// right is missing, or the error goes away by itself.
func mayNotBeRead(err error) bool {
	refusal, _ := sent.IsRefusal(err)
	return refusal != nil || isPassing(err) || sqlClass(err, "42501")
}

const (
	// unsentCap is how many unsent rows of a table are counted at most.
	unsentCap    = 10_000
	unsentChunks = 200 // chunks of a table that are counted at a time, once a minute
)

// unsentCount counts the rows of one table that the slot is past and that are not known to be sent:
// they are not in the sent set, not deferred, and no dead letters.
type unsentCount struct {
	chunk  int64           // the chunk that is counted next
	excess map[int64]int64 // unsent rows, by their chunk
	nulls  int64           // rows that do not say which transaction wrote them
}

// rows is the number of unsent rows that were counted, at most unsentCap.
func (u *unsentCount) rows() int64 {
	rows := u.nulls
	for n := range maps.Values(u.excess) {
		rows += n
	}
	return min(rows, unsentCap)
}

// countUnsent goes on counting in each table, chunk by chunk, by the index on the transaction.
// After the last chunk of a table it begins again. A table that may not be read is left out.
func (r *Retention) countUnsent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := r.lookAtEnd(ctx); err != nil || r.settledLook.end == 0 {
		return err
	}
	counts := map[string]int64{}
	gaps, failed := dlq.New(r.cfg.Pool, r.cfg.Slot).OpenGaps(ctx)
	for _, t := range r.cfg.Tables {
		d, err := sent.Describe(ctx, r.cfg.Pool, t)
		if err != nil {
			return err
		}
		if !countable(&d) {
			continue
		}
		u := r.unsent[t.String()]
		if u == nil {
			u = &unsentCount{excess: map[int64]int64{}}
			r.unsent[t.String()] = u
		}
		name := pgx.Identifier{t.Schema, t.Name}.Sanitize()
		err = sent.ReadTable(ctx, r.cfg.Pool, name, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, planSettings); err != nil {
				return err
			}
			return u.countChunks(ctx, tx, name, &d, r.cfg.Slot, r.settledLook)
		})
		if mayNotBeRead(err) {
			continue
		}
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("count the unsent rows of %s: %w", t, err))
		}
		counts[t.String()] = u.rows()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted, r.gaps, r.seenAt = counts, gaps, time.Now()
	return failed
}

// countable reports whether a table has the column of the transaction, and an index on it in every
// leaf: only such a table is read.
func countable(d *sent.Description) bool {
	return d.Transaction != "" && !slices.ContainsFunc(d.Leaves, func(l sent.Leaf) bool { return !l.Indexed })
}

// look is a snapshot, and the end of the WAL that was read after it. Every transaction that had
// ended in the snapshot was committed below that position. So once the slot has settled everything
// up to the position, it has settled all these transactions.
type look struct {
	snapshot string        // as PostgreSQL's text
	end      int64         // its xmax: no transaction from it on had ended; 0: there is no look
	at       pglogrepl.LSN // the end of the WAL after it
}

// lookAtEnd takes a new look once the slot is past the last one: everything up to the end of the
// WAL of then is settled, so all transactions that had ended then are settled, too.
func (r *Retention) lookAtEnd(ctx context.Context) error {
	if r.lastLook.end > 0 && r.cfg.Settled() < r.lastLook.at {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	past := r.lastLook
	err := r.cfg.Pool.QueryRow(ctx, `SELECT s::text, pg_snapshot_xmax(s)::text::bigint, pg_current_wal_insert_lsn() FROM pg_current_snapshot() s`).
		Scan(&r.lastLook.snapshot, &r.lastLook.end, &r.lastLook.at)
	if err != nil {
		return fmt.Errorf("read the end of the WAL: %w", err)
	}
	r.settledLook = past
	return nil
}

// countChunks counts the rows without a transaction, and the unsent rows of the next chunks, for
// about a second.
func (u *unsentCount) countChunks(ctx context.Context, tx pgx.Tx, name string, d *sent.Description, slot string, past look) error {
	column := "t." + pgx.Identifier{d.Transaction}.Sanitize()
	err := tx.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM `+name+` t WHERE `+column+` IS NULL LIMIT `+strconv.Itoa(unsentCap)+`) t`).Scan(&u.nulls)
	if err != nil {
		return err
	}
	kind := sent.Column{Bigint: d.Bigint}.TypeSQL()
	next := `SELECT (` + sent.TxSQL(column, d.Bigint) + ` >> ` + strconv.Itoa(sent.ChunkBits) + `) FROM ` + name + ` t WHERE ` + column + ` >= $1::text::` + kind + ` ORDER BY ` + column + ` LIMIT 1`
	id := d.IDSQL()
	// for each row by an index, and not by a join with the whole table
	other := func(table, condition string) string {
		return `(SELECT count(*) FROM (SELECT FROM cdc_relay.` + table + ` f WHERE f.slot = $1::text AND ` + condition + ` LIMIT 1) f) = 0`
	}
	const same = "(f.relation IS NULL OR f.relation::oid = ANY ($2::oid[]))"
	// a copy that goes elsewhere has no relation
	const byID = "substring(f.id, 1, 200) = substring(m.id, 1, 200) AND f.id = m.id AND (f.tx IS NULL OR f.tx = m.tx) AND (f.resend IS NULL OR f.relation IS NOT NULL) AND " + same
	countSQL := `
WITH digests AS MATERIALIZED (
	SELECT DISTINCT unnest(digests) AS digest FROM cdc_relay.sent
	WHERE slot = $1::text AND relation = ANY ($2::oid[]) AND chunk = $3::bigint),
first AS MATERIALIZED ( -- see schema.OutboxTable.First: nobody expects the slot to send what was there before it
	SELECT coalesce(nullif(e.value->>'first', ''), '` + noRows + `')::pg_snapshot AS first FROM cdc_relay.slots s, jsonb_each(coalesce(s.sends->'tables', '{}')) e
	WHERE s.slot = $1::text AND e.key = ANY ($7::text[]) AND (e.value->>'oid')::oid = ANY ($2::oid[]) LIMIT 1)
SELECT count(*) FROM (
	SELECT FROM (
		SELECT ` + id + ` AS id, ` + sent.TxSQL(column, d.Bigint) + ` AS tx, ` + sent.DigestSQL(sent.TxSQL(column, d.Bigint), id) + ` AS digest FROM ` + name + ` t
		WHERE ` + column + ` >= $4::text::` + kind + ` AND ` + column + ` < $5::text::` + kind + `
			AND pg_visible_in_snapshot(` + column + `::text::xid8, $6::pg_snapshot)
			AND NOT coalesce(pg_visible_in_snapshot(` + column + `::text::xid8, (SELECT first FROM first)), false) OFFSET 0) m
	WHERE (m.digest IS NULL OR m.digest NOT IN (SELECT digest FROM digests)) AND ` + other("retry", byID) + `
		AND ` + other("dead_letter", byID) + ` AND ` + other("dead_letter", "f.digest = m.digest AND "+same) + `
	LIMIT ` + strconv.Itoa(unsentCap) + `) m`
	began := time.Now()
	for range unsentChunks {
		var chunk *int64
		rows, err := tx.Query(ctx, next, strconv.FormatInt(u.chunk<<sent.ChunkBits, 10))
		if err != nil {
			return err
		}
		chunk, err = pgx.CollectOneRow(rows, pgx.RowTo[*int64])
		first := int64(0)
		if chunk != nil {
			first = *chunk << sent.ChunkBits
		}
		if errors.Is(err, pgx.ErrNoRows) || err == nil && (chunk == nil || first >= past.end) {
			u.forgetChunks(u.chunk, 1<<62) // nothing is there, or nothing that the slot is past
			u.chunk = 0
			return nil
		}
		if err != nil {
			return err
		}
		u.forgetChunks(u.chunk, *chunk)
		var n int64
		if err := tx.QueryRow(ctx, countSQL, slot, d.Family, *chunk, strconv.FormatInt(first, 10), strconv.FormatInt(first+1<<sent.ChunkBits, 10), past.snapshot, d.Names).Scan(&n); err != nil {
			if sqlClass(err, "57014") { // too many rows: the next round goes on behind them
				u.chunk = *chunk + 1
			}
			return err
		}
		u.forgetChunks(*chunk, *chunk+1)
		if n > 0 && len(u.excess) < unsentCap {
			u.excess[*chunk] = n
		}
		if u.chunk = *chunk + 1; time.Since(began) > time.Second {
			return nil
		}
	}
	return nil
}

// forgetChunks forgets what was counted in the chunks from one up to, and without, another, before
// they are counted again or because they are gone.
func (u *unsentCount) forgetChunks(from, to int64) {
	maps.DeleteFunc(u.excess, func(chunk, _ int64) bool { return chunk >= from && chunk < to })
}
