// Regroup, Exchanges and Positions: what a new leader must know of the rows that are there.

package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// loadRows is how many rows a page has at most. They are in memory until all of them were looked
// at, and a statement that writes must end soon, because it keeps the next leader waiting.
const loadRows = 20_000

// loaded is a table to load: all rows of retry, or the dead letters that may block ordering groups.
type loaded struct{ table, which string }

var (
	deferredRows    = loaded{"retry", "true"}
	openDeadLetters = loaded{"dead_letter", "t.state = 'open'"}
)

// behind are the first rows of the table behind a position ($4 to $6), in order.
func (l loaded) behind(limit string) string {
	return `cdc_relay.` + l.table + ` t WHERE ` + ours("t") + ` AND ` + l.which + ` AND (t.incarnation, t.commit_lsn, t.idx) > ($4::bigint, $5::text::pg_lsn, $6::bigint)
			ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT ` + limit
}

// groupedSQL reads whether all rows are grouped as this leader would: the leader just before it
// said so when its term began, and whatever it wrote later was under the same ordering. Any other
// leader in between (a version of the relay that does not write the record, one that ended before
// it did) has raised the epoch, as has an operator who moved rows of another system here.
const groupedSQL = readFence + ` SELECT s.grouped_by = $4::text AND s.grouped_epoch >= $2 - 1 AND $3::text <> '' FROM fence, cdc_relay.slots s WHERE s.slot = $1::text`

// noteGroupedSQL records that all rows are grouped by the ordering of this leader.
const noteGroupedSQL = `UPDATE cdc_relay.slots SET grouped_by = $4::text, grouped_epoch = $2 WHERE slot = $1::text AND epoch = $2 AND $3::text <> '' RETURNING true`

// Regroup implements Store.
func (p *Store) Regroup(ctx context.Context) (highest event.Position, err error) {
	args := []any{p.c.SystemID, p.c.Scope.String()}
	grouped := false
	err = p.read(ctx, "read ordering of rows", groupedSQL, args, func(rows pgx.Rows) error { return rows.Scan(&grouped) })
	if err == nil && !grouped {
		err = errors.Join(p.regroup(ctx, deferredRows), p.regroup(ctx, openDeadLetters))
	}
	if err == nil {
		err = p.change(ctx, "note ordering of rows", noteGroupedSQL, func(storable) []any { return args }, nil)
	}
	if err != nil {
		return highest, err
	}
	list, err := p.positions(ctx, ` ORDER BY t.commit_lsn DESC, t.idx DESC LIMIT $5`, event.Position{}, 1)
	if len(list) > 0 {
		highest = list[0].Position
	}
	return highest, err
}

// regroup looks through a table, page by page, and writes the rows that have the ordering group of
// another ordering. Nobody else changes rows between the two statements of a page: the former
// leader is fenced, and the rest of this one is not running yet.
func (p *Store) regroup(ctx context.Context, table loaded) error {
	sql := readFence + ` SELECT t.n, t.incarnation, t.exchange_or_topic, t.hash, t.keyed, t.fault, t.ordering_group, t.ordered, t.commit_lsn, t.idx FROM fence LEFT JOIN LATERAL (
			SELECT t.n, t.incarnation, t.exchange_or_topic, t.hash, t.keyed, t.fault IS NOT NULL AND t.left_out IS NULL AS fault, t.ordering_group, t.ordered, t.commit_lsn::text AS commit_lsn, t.idx
			FROM ` + table.behind("$7") + `) t ON true`
	write := writeFence + `, regrouped AS (UPDATE cdc_relay.` + table.table + ` t SET ordering_group = x_group, ordered = x_ordered
			FROM fence, unnest($4::bigint[], $5::bigint[], $6::boolean[]) AS x(x_n, x_group, x_ordered) WHERE t.n = x_n AND ` + byNumber("t") + `) SELECT true FROM fence`
	var at store.After // the last row of a page
	for page := loadRows; page == loadRows; {
		page = 0
		var (
			n, groups []int64
			ordereds  []bool
		)
		args := []any{p.c.SystemID, at.Incarnation, at.Position.Commit.String(), int64(at.Position.Index), loadRows}
		err := p.read(ctx, "read ordering groups", sql, args, func(rows pgx.Rows) error {
			var (
				number, exchangeOrTopic, hash, was int64
				ev                                 event.Event
				fault, wasOrdered                  bool
			)
			pos, err := scanPosition(rows, &number, &at.Incarnation, &exchangeOrTopic, &hash, &ev.Ordered, &fault, &was, &wasOrdered)
			if err != nil {
				return err
			}
			page++
			at.Position = pos
			if ev.Position, ev.Hash = pos, uint64(hash); fault {
				ev.Fault = errStored
			}
			if group, ordered := p.c.Scope.Group(&ev, uint64(exchangeOrTopic)); int64(group) != was || ordered != wasOrdered {
				n, groups, ordereds = append(n, number), append(groups, int64(group)), append(ordereds, ordered)
			}
			return nil
		})
		if err == nil && len(n) > 0 {
			err = p.change(ctx, "regroup rows", write, func(storable) []any { return []any{p.c.SystemID, n, groups, ordereds} }, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errStored stands for the fault of a row.
var errStored = errors.New("the row has a fault")

// exchangesSQL goes from each exchange or topic to the next one in the index, at most $6 of them
// from behind one ($4) on. The first look is by the primary key: in a copy of the database all rows
// may be another system's, which the index does not tell apart.
var exchangesSQL = strings.Replace(readFence, "WITH ", "WITH RECURSIVE ", 1) + `, d(exchange_or_topic) AS (
		(SELECT t.exchange_or_topic FROM fence, (SELECT FROM cdc_relay.retry t WHERE ` + ours("t") + ` LIMIT 1) o CROSS JOIN LATERAL (
			SELECT t.exchange_or_topic FROM cdc_relay.retry t WHERE ` + inSlot("t") + ` AND ($5 OR t.exchange_or_topic > $4::bigint) ORDER BY t.exchange_or_topic LIMIT 1) t)
		UNION ALL SELECT t.* FROM d CROSS JOIN LATERAL (
			SELECT t.exchange_or_topic FROM cdc_relay.retry t WHERE ` + inSlot("t") + ` AND t.exchange_or_topic > d.exchange_or_topic ORDER BY t.exchange_or_topic LIMIT 1) t)
	SELECT d.* FROM fence LEFT JOIN (SELECT * FROM d LIMIT $6) d ON true ORDER BY d.exchange_or_topic`

// blockingSQL reads the exchanges and topics of dead letters that block their ordering group.
var blockingSQL = readFence + ` SELECT DISTINCT t.exchange_or_topic FROM fence LEFT JOIN cdc_relay.dead_letter t ON ` + ours("t") + ` AND t.state = 'open' AND t.ordered`

// exchangesPage is how many exchanges and topics one statement reads at most.
const exchangesPage = 10_000

// Exchanges implements Store.
func (p *Store) Exchanges(ctx context.Context) (list []uint64, err error) {
	var last int64
	add := func(rows pgx.Rows) error {
		err := rows.Scan(&last)
		list = append(list, uint64(last))
		return err
	}
	for page := exchangesPage; page == exchangesPage; {
		was := len(list)
		if err := p.read(ctx, "read exchanges", exchangesSQL, []any{p.c.SystemID, last, was == 0, exchangesPage}, add); err != nil {
			return nil, err
		}
		page = len(list) - was
	}
	if p.c.Block {
		err = p.read(ctx, "read exchanges of dead letters", blockingSQL, []any{p.c.SystemID}, add)
	}
	slices.Sort(list)
	return slices.Compact(list), err
}

// Positions implements Store.
func (p *Store) Positions(ctx context.Context, from event.Position, limit int) ([]store.Owned, error) {
	return p.positions(ctx, ` ORDER BY t.commit_lsn, t.idx LIMIT $5`, from, limit)
}

func (p *Store) positions(ctx context.Context, order string, from event.Position, limit int) (list []store.Owned, err error) {
	of := func(table, purged string) string {
		return `(SELECT t.commit_lsn, t.idx, t.id, t.left_out, t.commit_time, ` + purged + ` AS purged FROM cdc_relay.` + table + ` t WHERE ` + ours("t") + ` AND t.incarnation = $4
			AND (t.commit_lsn, t.idx) >= ($6::text::pg_lsn, $7::bigint)` + order + `)`
	}
	tables := of("retry", "false") + ` UNION ALL ` + of("dead_letter", "t.state = 'purged'")
	sql := readFence + ` SELECT t.purged, sha256(t.id), t.id IS NULL AND t.left_out IS NOT NULL, (extract(epoch FROM t.commit_time) * 1000000)::bigint, t.commit_lsn::text, t.idx
		FROM fence LEFT JOIN LATERAL (SELECT * FROM (` + tables + `) t` + order + `) t ON true
		ORDER BY t.commit_lsn, t.idx`
	args := []any{p.c.SystemID, p.c.Incarnation, limit, from.Commit.String(), int64(from.Index)}
	err = p.read(ctx, "read positions", sql, args, func(rows pgx.Rows) error {
		var o store.Owned
		o.Position, err = scanPosition(rows, &o.Purged, &o.ID, &o.LeftOut, &o.Committed)
		list = append(list, o)
		return err
	})
	return list, err
}

// scanPosition reads commit_lsn as text and idx, after the targets in before.
func scanPosition(rows pgx.Rows, before ...any) (pos event.Position, err error) {
	var (
		commit string
		index  int64
	)
	if err := rows.Scan(append(before, &commit, &index)...); err != nil {
		return pos, err
	}
	pos.Index = uint32(index)
	pos.Commit, err = pglogrepl.ParseLSN(commit)
	return pos, err
}
