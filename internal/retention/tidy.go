// What keeps the sent set small: parts are merged, and those of rows that somebody else has deleted
// go.

package retention

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

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
