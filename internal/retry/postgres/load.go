// Load and Positions read the tables at the start of a term.

package postgres

import (
	"context"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// groupExpression and orderedExpression are Scope.Group as expressions on a row.
func groupExpression(s store.Scope, alias string) string {
	digest := [...]string{
		store.PerKey: alias + `.hash # ` + alias + `.exchange_or_topic`, store.PerExchangeOrTopic: alias + `.exchange_or_topic`,
		store.Free: `(` + alias + `.commit_lsn - '0/0'::pg_lsn)::bigint # (` + alias + `.idx << 31) # ` + alias + `.exchange_or_topic`,
	}[s]
	return `coalesce(nullif(` + digest + `, 0), 1)`
}

func orderedExpression(s store.Scope, alias string) string {
	return [...]string{store.PerKey: alias + `.keyed`, store.PerExchangeOrTopic: `(` + alias + `.fault IS NULL)`, store.Free: `false`}[s]
}

// The limits of a page of Load: the number of rows, and the bytes of their keys (one key more at
// most). The rows of a page are in memory until all of them are counted, and a statement that
// writes must end soon, because it keeps the next leader waiting.
const (
	loadRows  = 20_000
	loadBytes = 8 << 20
)

// pageEnd is the last position of a page.
type pageEnd struct {
	incarnation int64
	position    event.Position
}

// loaded is a table to load: all rows of retry, or the dead letters that block ordering groups.
type loaded struct{ table, which string }

// page is the rows of a table from a position on, with the ordering groups of the present ordering.
func (l loaded) page(s store.Scope) string {
	return `, page AS MATERIALIZED (SELECT t.*, sum(t.size) OVER (ORDER BY t.incarnation, t.commit_lsn, t.idx) - t.size AS before FROM (
			SELECT t.incarnation, t.commit_lsn, t.idx, t.n, t.exchange_or_topic, t.ordering_group AS was, t.ordered AS was_ordered, ` + groupExpression(s, "t") + ` AS ordering_group,
				` + orderedExpression(s, "t") + ` AS ordered, t.aggregate, t.key, t.hash, t.keyed, t.route_name, t.routing_key,
				coalesce(octet_length(t.aggregate), 0) + coalesce(octet_length(t.key), 0) AS size
			FROM cdc_relay.` + l.table + ` t WHERE ` + ours("t") + ` AND ` + l.which + ` AND (t.incarnation, t.commit_lsn, t.idx) > ($4::bigint, $5::text::pg_lsn, $6::bigint)
			ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT $7) t, fence)`
}

// countSQL reads the last position of a page, whether rows of it were deferred under another
// ordering, the number of rows of each ordering group, and one of these rows as an example.
func (l loaded) countSQL(s store.Scope) string {
	return readFence + l.page(s) + `,
		counts AS (SELECT p.*, count(*) OVER w AS rows, row_number() OVER w AS i FROM page p WHERE p.ordered AND p.before < $8
			WINDOW w AS (PARTITION BY p.ordering_group, p.exchange_or_topic)),
		last AS (SELECT p.incarnation, p.commit_lsn::text AS commit, p.idx, bool_or(p.ordering_group <> p.was OR p.ordered <> p.was_ordered) OVER () AS others
			FROM page p WHERE p.before < $8
			ORDER BY p.incarnation DESC, p.commit_lsn DESC, p.idx DESC LIMIT 1)
		SELECT last.incarnation, last.commit, last.idx, last.others, c.ordering_group, c.exchange_or_topic, c.rows, c.aggregate, c.key, c.hash, c.keyed, c.route_name, c.routing_key
		FROM fence LEFT JOIN last ON true LEFT JOIN counts c ON c.i = 1`
}

// regroupSQL gives the rows of a page that were deferred under another ordering the ordering group
// of the present one.
func (l loaded) regroupSQL(s store.Scope) string {
	return writeFence + l.page(s) + `,
		regrouped AS (UPDATE cdc_relay.` + l.table + ` t SET ordering_group = p.ordering_group, ordered = p.ordered FROM page p
			WHERE t.n = p.n AND p.before < $8 AND (p.ordering_group <> p.was OR p.ordered <> p.was_ordered))
		SELECT true FROM fence`
}

// Load implements Store. each is called after a page was read, not during the statement, because it
// may wait for a broker.
func (p *Store) Load(ctx context.Context, each func(store.Count) error) (highest event.Position, err error) {
	tables := []loaded{{"retry", "true"}}
	if p.c.Block {
		tables = append(tables, loaded{"dead_letter", "t.state = 'open'"})
	}
	for _, table := range tables {
		var at pageEnd
		for more := true; more; {
			var counts []store.Count
			if counts, more, err = p.loadPage(ctx, table, &at); err != nil {
				return highest, err
			}
			for _, c := range counts {
				if err := each(c); err != nil {
					return highest, err
				}
			}
		}
	}
	list, err := p.positions(ctx, ` ORDER BY t.commit_lsn DESC, t.idx DESC LIMIT $5`, event.Position{}, 1)
	if len(list) > 0 {
		highest = list[0].Position
	}
	return highest, err
}

// loadPage reads a page and moves at to its end; more is false when it has no rows. Rows that were
// deferred under another ordering are written. Nobody else changes rows between the two statements:
// the former leader is fenced, and the rest of this one is not running yet.
func (p *Store) loadPage(ctx context.Context, table loaded, at *pageEnd) (counts []store.Count, more bool, err error) {
	args, others := []any{p.c.SystemID, at.incarnation, at.position.Commit.String(), int64(at.position.Index), loadRows, loadBytes}, false
	err = p.read(ctx, "load counts", table.countSQL(p.c.Scope), args, func(rows pgx.Rows) error {
		var (
			c                            store.Count
			group, exchangeOrTopic, hash int64
			route                        event.Route
			ev                           = &c.Event
			commit                       string
			index                        int64
		)
		to := []any{&at.incarnation, &commit, &index, &others, &group, &exchangeOrTopic, &c.Rows, &ev.Aggregate, &ev.Key, &hash, &ev.Ordered, &route.Name, &route.RoutingKey}
		counted := rows.RawValues()[4] != nil
		if !counted {
			clear(to[4:])
		}
		if more {
			clear(to[:4]) // each row has the end of the page
		}
		err := rows.Scan(to...)
		if err == nil && !more {
			at.position.Index = uint32(index)
			at.position.Commit, err = pglogrepl.ParseLSN(commit)
		}
		more = true
		if err == nil && counted {
			c.Group, c.ExchangeOrTopic, ev.Hash, ev.Route = uint64(group), uint64(exchangeOrTopic), uint64(hash), &route
			counts = append(counts, c)
		}
		return err
	})
	if err == nil && others {
		err = p.change(ctx, "regroup rows", table.regroupSQL(p.c.Scope), func(storable) []any { return args }, nil)
	}
	return counts, more, err
}

// Positions implements Store.
func (p *Store) Positions(ctx context.Context, from event.Position, limit int) ([]store.Owned, error) {
	return p.positions(ctx, ` ORDER BY t.commit_lsn, t.idx LIMIT $5`, from, limit)
}

func (p *Store) positions(ctx context.Context, order string, from event.Position, limit int) (list []store.Owned, err error) {
	of := func(table, purged string) string {
		return `(SELECT t.commit_lsn, t.idx, t.id, ` + purged + ` AS purged FROM cdc_relay.` + table + ` t WHERE ` + ours("t") + ` AND t.incarnation = $4
			AND (t.commit_lsn, t.idx) >= ($6::text::pg_lsn, $7::bigint)` + order + `)`
	}
	tables := of("retry", "false") + ` UNION ALL ` + of("dead_letter", "t.state = 'purged'")
	sql := readFence + ` SELECT t.purged, sha256(t.id), t.commit_lsn::text, t.idx
		FROM fence LEFT JOIN LATERAL (SELECT * FROM (` + tables + `) t` + order + `) t ON true
		ORDER BY t.commit_lsn, t.idx`
	args := []any{p.c.SystemID, p.c.Incarnation, limit, from.Commit.String(), int64(from.Index)}
	err = p.read(ctx, "read positions", sql, args, func(rows pgx.Rows) error {
		var o store.Owned
		o.Position, err = scanPosition(rows, &o.Purged, &o.ID)
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
