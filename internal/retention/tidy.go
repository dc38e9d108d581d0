// What keeps the sent set small: parts are merged, and those of rows that somebody else has deleted
// go.

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
	"github.com/cdc-relay/cdc-relay/internal/tableread"
)

const (
	tidyEvery  = time.Minute
	tidyChunks = 1000 // that are merged, or looked at, at once
)

// mergeable lists relations and chunks of slot $1 of which several parts were recorded within the
// same ten minutes, of the last hour: a part is written with each report, ten times a second at
// most. Parts are not merged over a longer time, because the newest decides when they are deleted.
const mergeableSQL = `
SELECT relation, chunk, array_agg(n), ''
FROM cdc_relay.sent
WHERE slot = $1::text AND at BETWEEN now() - interval '1 hour' AND now() - interval '1 minute'
GROUP BY relation, chunk, floor(extract(epoch FROM at) / 600)
HAVING count(*) > 1 AND sum(pg_column_size(digests)) < 262144
LIMIT $2::int`

// mergeSQL makes one part of several: $1 slot, $2 epoch, $3 relation, $4 chunk, $5 their numbers.
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

// oldSQL lists chunks of slot $1 from ($3, $4) on that were recorded an hour ago, or by an
// operator's word, and whose transactions the slot is past, as of the snapshot $2, with the
// relation's name ("": it is gone).
const oldSQL = `
SELECT relation, chunk, array_agg(n), coalesce((SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = relation), '')
FROM cdc_relay.sent
WHERE slot = $1::text
	AND (relation, chunk) > ($3::oid, $4::bigint)
	AND (at < now() - interval '1 hour' OR at = 'infinity')
	AND ` + ended + `
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

var chunkBits = strconv.Itoa(sent.ChunkBits)

// forgetSQL has purged dead letters go whose rows are no longer there: see
// retry/postgres.expireSQL.
var forgetSQL = dlq.WriteFence + `,
forgotten AS (
	UPDATE cdc_relay.dead_letter SET digest = NULL FROM fence
	WHERE slot = $1::text AND relation::oid = $3::oid AND tx >> ` + chunkBits + ` = $4::bigint AND n = ANY ($5::bigint[]))
SELECT EXISTS (SELECT FROM fence)`

// tidy merges parts, and drops those of which no row is in the tables, a page at a time; and so the
// digests of purged dead letters.
func (r *Retention) tidy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if r.cfg.Keep >= time.Hour || !r.cfg.Delete { // else they go before
		if err := r.merge(ctx); err != nil {
			return err
		}
	}
	if r.past.end == 0 {
		return nil
	}
	if err := r.dropOrphans(ctx, oldSQL, dropSQL, &r.looked); err != nil {
		return err
	}
	return r.dropOrphans(ctx, purgedSQL, forgetSQL, &r.lookedPurged)
}

func (r *Retention) merge(ctx context.Context) error {
	list, err := r.chunks(ctx, mergeableSQL, r.cfg.Slot, tidyChunks)
	if err != nil {
		return err
	}
	for _, of := range list {
		if err := r.change(ctx, mergeSQL, of); err != nil {
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

func (r *Retention) chunks(ctx context.Context, sql string, args ...any) ([]chunkParts, error) {
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

func (r *Retention) change(ctx context.Context, sql string, of chunkParts) error {
	var ours bool
	err := r.cfg.Pool.QueryRow(ctx, sql, r.cfg.Slot, r.cfg.Epoch, of.Relation, of.Chunk, of.Numbers).Scan(&ours)
	if err == nil && !ours {
		return dlq.Fenced(r.cfg.Slot, r.cfg.Epoch)
	}
	return err
}

// dropOrphans looks at the next page of what a statement lists, and at the first again after the
// last.
func (r *Retention) dropOrphans(ctx context.Context, listSQL, dropSQL string, looked *chunkParts) error {
	list, err := r.chunks(ctx, listSQL, r.cfg.Slot, r.past.snapshot, looked.Relation, looked.Chunk, tidyChunks)
	if err != nil {
		return err
	}
	*looked = chunkParts{}
	if len(list) == tidyChunks {
		*looked = list[len(list)-1]
	}
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(of chunkParts) bool { return of.Relation != list[0].Relation })
		if n < 0 {
			n = len(list)
		}
		empty, err := r.empty(ctx, list[:n])
		if err != nil {
			return err
		}
		for _, of := range empty {
			if err := r.change(ctx, dropSQL, of); err != nil {
				return err
			}
		}
		list = list[n:]
	}
	return nil
}

// empty are those chunks of one relation of which no row is there. Of a table that is not
// configured, or may not be read, none is.
func (r *Retention) empty(ctx context.Context, list []chunkParts) (empty []chunkParts, err error) {
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
	column, kind := pgx.Identifier{d.Transaction}.Sanitize(), "xid8"
	if d.Bigint {
		kind = "bigint"
	}
	err = tableread.Read(ctx, r.cfg.Pool, name, func(tx pgx.Tx) error {
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
	if refusal, _ := tableread.IsRefusal(err); refusal != nil || passes(err) || sqlClass(err, "42501") {
		empty, err = nil, nil
	}
	return empty, err
}

const (
	// unsentCap is where counting ends, in rows of a table.
	unsentCap    = 10_000
	unsentChunks = 200 // that are looked at in a table, a minute
)

// unsent counts the rows of one table that the slot is past and that are not known to be sent: not
// in the sent set, not deferred, no dead letter.
type unsent struct {
	chunk  int64           // to look at next
	excess map[int64]int64 // such rows, by their chunk
	nulls  int64           // rows that do not say which transaction wrote them
}

func (u *unsent) rows() int64 {
	rows := u.nulls
	for n := range maps.Values(u.excess) {
		rows += n
	}
	return min(rows, unsentCap)
}

// countUnsent goes on with each table, and after the last chunk begins again. It counts chunk by
// chunk, by the index on the transaction. A table that may not be read is left out.
func (r *Retention) countUnsent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := r.look(ctx); err != nil || r.past.end == 0 {
		return err
	}
	counts := map[string]int64{}
	var failed error
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
			u = &unsent{excess: map[int64]int64{}}
			r.unsent[t.String()] = u
		}
		name := pgx.Identifier{t.Schema, t.Name}.Sanitize()
		err = tableread.Read(ctx, r.cfg.Pool, name, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, plan); err != nil {
				return err
			}
			return u.count(ctx, tx, name, &d, r.cfg.Slot, r.past)
		})
		if refusal, _ := tableread.IsRefusal(err); refusal != nil || passes(err) || sqlClass(err, "42501") {
			continue
		}
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("count the unsent rows of %s: %w", t, err))
		}
		counts[t.String()] = u.rows()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counted = counts
	return failed
}

// countable reports whether a table has the column, and an index on it everywhere.
func countable(d *sent.Description) bool {
	return d.Transaction != "" && !slices.ContainsFunc(d.Leaves, func(l sent.Leaf) bool { return !l.Indexed })
}

// moment is a snapshot, and where the WAL ended after it was taken: what had ended in it was
// committed below that.
type moment struct {
	snapshot string
	end      int64 // no transaction from it on had ended; 0: no moment
	at       pglogrepl.LSN
}

// look finds out which transactions the slot is past: those that had ended at the last look, once
// everything up to the end of the WAL of then is settled.
func (r *Retention) look(ctx context.Context) error {
	if r.seen.end > 0 && r.cfg.Settled() < r.seen.at {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	past := r.seen
	err := r.cfg.Pool.QueryRow(ctx, `SELECT s::text, pg_snapshot_xmax(s)::text::bigint, pg_current_wal_insert_lsn() FROM pg_current_snapshot() s`).
		Scan(&r.seen.snapshot, &r.seen.end, &r.seen.at)
	if err != nil {
		return fmt.Errorf("read the end of the WAL: %w", err)
	}
	r.past = past
	return nil
}

// count counts the rows without a transaction, and those of the next chunks, for at most a second.
func (u *unsent) count(ctx context.Context, tx pgx.Tx, name string, d *sent.Description, slot string, past moment) error {
	column := "t." + pgx.Identifier{d.Transaction}.Sanitize()
	err := tx.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM `+name+` t WHERE `+column+` IS NULL LIMIT `+strconv.Itoa(unsentCap)+`) t`).Scan(&u.nulls)
	if err != nil {
		return err
	}
	kind := "xid8"
	if d.Bigint {
		kind = "bigint"
	}
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
			u.forget(u.chunk, 1<<62) // nothing is there, or nothing that the slot is past
			u.chunk = 0
			return nil
		}
		if err != nil {
			return err
		}
		u.forget(u.chunk, *chunk)
		var n int64
		if err := tx.QueryRow(ctx, countSQL, slot, d.Family, *chunk, strconv.FormatInt(first, 10), strconv.FormatInt(first+1<<sent.ChunkBits, 10), past.snapshot, d.Names).Scan(&n); err != nil {
			if sqlClass(err, "57014") { // too many rows: the next round goes on behind them
				u.chunk = *chunk + 1
			}
			return err
		}
		u.forget(*chunk, *chunk+1)
		if n > 0 && len(u.excess) < unsentCap {
			u.excess[*chunk] = n
		}
		if u.chunk = *chunk + 1; time.Since(began) > time.Second {
			return nil
		}
	}
	return nil
}

// forget forgets what was counted in the chunks from one to another, without the latter.
func (u *unsent) forget(from, to int64) {
	maps.DeleteFunc(u.excess, func(chunk, _ int64) bool { return chunk >= from && chunk < to })
}
