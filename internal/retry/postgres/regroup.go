// RegroupRows, ExchangesWithRows and PositionsFrom: what a new leader must know of the rows that
// are there.

package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// loadRows is how many rows a page has at most. They are in memory until all of them were looked
// at, and a statement that writes must end soon, because it keeps the next leader waiting.
const loadRows = 20_000

// loadBytes is about how much a page has of what decides places.
const loadBytes = 8 << 20

// loadedTable is a table to load: all rows of retry, or the dead letters that may block ordering
// groups.
type loadedTable struct{ table, condition string }

var (
	deferredRows    = loadedTable{"retry", "true"}
	openDeadLetters = loadedTable{"dead_letter", "t.state = 'open'"}
)

// rowsAfterSQL are the first rows of the table behind a position ($4 to $6), in order.
func (l loadedTable) rowsAfterSQL(limit string) string {
	return `cdc_relay.` + l.table + ` t WHERE ` + oursSQL("t") + ` AND ` + l.condition + ` AND (t.incarnation, t.commit_lsn, t.idx) > ($4::bigint, $5::text::pg_lsn, $6::bigint)
			ORDER BY t.incarnation, t.commit_lsn, t.idx LIMIT ` + limit
}

// groupedSQL reads by what all rows are grouped and placed, and whether that is certain: the leader
// just before this one said so when its term began, and whatever it wrote later was by the same.
// Any other leader in between, which ended before it did, has raised the epoch, as has an operator
// who moved rows of another system here.
const groupedSQL = readFence + ` SELECT s.grouped_by, s.grouped_epoch >= $2 - 1 AND $3::text <> '' FROM fence, cdc_relay.slots s WHERE s.slot = $1::text`

// noteGroupedSQL records that all rows are grouped and placed as by this leader.
const noteGroupedSQL = `UPDATE cdc_relay.slots SET grouped_by = $4::text, grouped_epoch = $2 WHERE slot = $1::text AND epoch = $2 AND $3::text <> '' RETURNING true`

// RegroupRows implements Store.
func (p *Store) RegroupRows(ctx context.Context) (highest event.Position, err error) {
	var was string
	certain, by := false, p.cfg.Places.GroupedBy(p.cfg.Scope, p.cfg.Keys)
	err = p.runRead(ctx, "read ordering of rows", groupedSQL, []any{p.cfg.SystemID}, func(rows pgx.Rows) error { return rows.Scan(&was, &certain) })
	if err == nil && (was != by || !certain) {
		err = p.regroupAll(ctx, p.cfg.Places.SwitchSince(was))
	}
	if err == nil {
		err = p.runWrite(ctx, "note ordering of rows", noteGroupedSQL, func(storable) []any { return []any{p.cfg.SystemID, by} }, nil)
	}
	if err != nil {
		return highest, err
	}
	list, err := p.positionsOrdered(ctx, ` ORDER BY t.commit_lsn DESC, t.idx DESC LIMIT $5`, event.Position{}, 1)
	if len(list) > 0 {
		highest = list[0].Position
	}
	return highest, err
}

// regroupAll looks through both tables. Whatever ends it, the next leader does it again: a row that
// has its place already keeps it.
func (p *Store) regroupAll(ctx context.Context, s store.Switch) error {
	for _, table := range []loadedTable{deferredRows, openDeadLetters} {
		if err := p.regroupTable(ctx, table, &s); err != nil {
			return err
		}
	}
	if s.Sink {
		if err := p.refuseElsewhere(ctx, &s); err != nil {
			return err
		}
	}
	if s.Placed+s.Kept+s.Cancelled > 0 && p.cfg.Places.Switched != nil {
		p.cfg.Places.Switched(s)
	}
	return nil
}

// regroupTable looks through a table, page by page, and writes the rows that have the ordering
// group of another ordering, or a place that means nothing now. Nobody else changes rows between
// the two statements of a page: the former leader is fenced, and the rest of this one is not
// running yet.
func (p *Store) regroupTable(ctx context.Context, table loadedTable, s *store.Switch) error {
	sql, places, none := regroupSQL(table), p.cfg.Places, new(regrouped).arrays()
	write := writeFence + `, regrouped AS (UPDATE cdc_relay.` + table.table + ` t SET ordering_group = x_group, ordered = x_ordered,
				exchange_or_topic = x_exchange_or_topic, dest = x_dest, route_name = x_name, routing_key = x_key
			FROM fence, ` + none.table(4, none.names) + ` WHERE t.n = x_n AND ` + byNumberSQL("t") + `) SELECT true FROM fence`
	var at store.RowPosition // the last row of a page
	for page := 1; page > 0; {
		var changed regrouped
		var large []*store.Row // of which nothing that decides its group or place was read yet
		page = 0
		look := func(row *store.Row) {
			route, counted := row.Event.Route, s
			place := places != nil && (s.Sink || s.Templates || route.Name == nil || (route.RoutingKey != nil) != places.Keyed)
			if row.Resend != 0 {
				counted = &store.Switch{Sink: s.Sink} // it is no deferred event
			}
			placed := place && places.PlaceRow(row, counted)
			group, ordered := p.cfg.Scope.Group(&row.Event, row.ExchangeOrTopic)
			if row.Resend != 0 {
				group = event.Resent(group, row.Resend)
			}
			if placed || group != row.Group || ordered != row.Ordered {
				row.Group, row.Ordered, row.Event = group, ordered, event.Event{Route: row.Event.Route}
				changed = append(changed, row)
			}
		}
		args := []any{p.cfg.SystemID, at.Incarnation, at.Position.Commit.String(), int64(at.Position.Index), loadRows, loadBytes, p.limits.largeFrom}
		err := p.runRead(ctx, "read ordering groups", sql, args, func(rows pgx.Rows) error {
			row, size, err := p.scanRegrouped(rows)
			if err != nil {
				return err
			}
			page++
			at = store.RowPosition{Incarnation: row.Incarnation, Position: row.Event.Position}
			if row.Dead = table == openDeadLetters; p.limits.isLarge(size) {
				large = append(large, row)
			} else {
				look(row)
			}
			return nil
		})
		for _, row := range large {
			var whole *store.Row
			if err == nil {
				whole, err = p.readLarge(ctx, row)
			}
			if errors.Is(err, errColumns) { // as scanRegrouped
				whole, err = row, nil
			}
			if whole != nil {
				look(whole)
			}
		}
		if err == nil && len(changed) > 0 {
			err = p.runWrite(ctx, "regroup rows", write, func(storable) []any { return append([]any{p.cfg.SystemID}, changed.arrays().values...) }, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// What is read of a row: what its group depends on, and its place. placing are the columns that may
// decide a place, and of a key its digest. Of a row that has much in them they are read when it is
// its turn.
var (
	placingColumns  = []string{"id", "aggregate", "key", "type", "columns"}
	groupingColumns = strings.Fields("incarnation commit_lsn idx n ordering_group exchange_or_topic dest hash keyed ordered bytes route_name routing_key fault left_out resend")

	regroupFields = slices.DeleteFunc(slices.Clone(fields), func(f field) bool {
		return !slices.Contains(placingColumns, f.name) && !slices.Contains(groupingColumns, f.name)
	})
)

// regroupSQL reads a page: $7 rows, or $8 bytes of what decides their places; of a row with more
// than $9 of it none.
func regroupSQL(table loadedTable) string {
	size, list := "0", "t.n, t.size"
	for _, f := range regroupFields {
		switch {
		case slices.Contains(placingColumns, f.name):
			size += " + coalesce(octet_length(t." + f.name + "), 0)"
			list += ", CASE WHEN t.size <= $9::bigint THEN t." + f.name + " END"
		case f.name == "commit_lsn":
			list += ", t.commit_lsn::text"
		default:
			list += ", t." + f.name
		}
	}
	return readFence + ` SELECT ` + list + ` FROM fence LEFT JOIN LATERAL (
			SELECT s.*, sum(s.size) OVER (ORDER BY s.incarnation, s.commit_lsn, s.idx) - s.size AS before FROM (
				SELECT t.*, (` + size + `)::bigint AS size FROM ` + table.rowsAfterSQL("$7") + `) s) t
			ON t.before <= $8::bigint ORDER BY t.incarnation, t.commit_lsn, t.idx`
}

// scanRegrouped reads a row of regroupSQL. One whose columns are damaged is placed without them: it
// cannot be sent, and must not keep the others from it.
func (p *Store) scanRegrouped(rows pgx.Rows) (row *store.Row, size int64, err error) {
	var r tableRow
	targets := []any{nil, &size}
	for _, f := range regroupFields {
		targets = append(targets, f.target(&r))
	}
	if err = rows.Scan(targets...); err != nil {
		return nil, 0, err
	}
	if row, err = p.decodeRow(&r, 0, nil); errors.Is(err, errColumns) {
		r.columns = nil
		row, err = p.decodeRow(&r, 0, nil)
	}
	return row, size, err
}

// regrouped are rows whose group or place has changed.
type regrouped []*store.Row

// arrays are the parameters of the statement that writes them.
func (list *regrouped) arrays() *arrays {
	var a arrays
	a.add("x_n", "bigint", valuesOf(*list, func(r *store.Row) int64 { return r.N }))
	a.add("x_group", "bigint", valuesOf(*list, func(r *store.Row) int64 { return int64(r.Group) }))
	a.add("x_ordered", "boolean", valuesOf(*list, func(r *store.Row) bool { return r.Ordered }))
	a.add("x_exchange_or_topic", "bigint", valuesOf(*list, func(r *store.Row) int64 { return int64(r.ExchangeOrTopic) }))
	a.add("x_dest", "bigint", valuesOf(*list, func(r *store.Row) int64 { return int64(r.Dest) }))
	a.add("x_name", "bytea", valuesOf(*list, func(r *store.Row) []byte { return r.Event.Route.Name }))
	a.add("x_key", "bytea", valuesOf(*list, func(r *store.Row) []byte { return r.Event.Route.RoutingKey }))
	return &a
}

// refuseElsewhere ends the operators' requests and jobs that name a place of another kind of sink:
// the names would be taken for some of this one.
func (p *Store) refuseElsewhere(ctx context.Context, s *store.Switch) error {
	const elsewhere = `slot = $1 AND t.system_id = $3 AND (t.route_name IS NOT NULL OR t.routing_key IS NOT NULL)`
	sql := writeFence + `, failed AS (UPDATE cdc_relay.request t SET state = 'failed', result = $4::text, done_at = now() FROM fence
			WHERE t.` + elsewhere + ` AND t.state = 'waiting' RETURNING t.*),
		cancelled AS (UPDATE cdc_relay.bulk t SET state = 'cancelled', closed_at = now(), filter = NULL FROM fence
			WHERE t.` + elsewhere + ` AND t.closed_at IS NULL RETURNING t.*),
		noted AS (INSERT INTO cdc_relay.audit (slot, system_id, who, action, n, why, result, request)
			SELECT t.slot, t.system_id, t.who, t.kind, t.n, t.reason, t.result, t.id FROM failed t
			UNION ALL SELECT t.slot, t.system_id, '` + dlq.Itself + `', 'cancel', 0, $4::text, 'job ' || t.job, NULL FROM cancelled t)
		SELECT (SELECT count(*) FROM cancelled) FROM fence`
	why := "it names a place of " + s.From + ", and the relay sends to " + p.cfg.Places.Sink + " now: request it again"
	return p.runWrite(ctx, "end requests for another broker", sql, func(storable) []any { return []any{p.cfg.SystemID, why} }, func(r pgx.Rows) error { return r.Scan(&s.Cancelled) })
}

// exchangesSQL goes from each exchange or topic to the next one in the index, at most $6 of them
// from behind one ($4) on. The first look is by the primary key: in a copy of the database all rows
// may be another system's, which the index does not tell apart.
var exchangesSQL = strings.Replace(readFence, "WITH ", "WITH RECURSIVE ", 1) + `, d(exchange_or_topic) AS (
		(SELECT t.exchange_or_topic FROM fence, (SELECT FROM cdc_relay.retry t WHERE ` + oursSQL("t") + ` LIMIT 1) o CROSS JOIN LATERAL (
			SELECT t.exchange_or_topic FROM cdc_relay.retry t WHERE ` + inSlotSQL("t") + ` AND ($5 OR t.exchange_or_topic > $4::bigint) ORDER BY t.exchange_or_topic LIMIT 1) t)
		UNION ALL SELECT t.* FROM d CROSS JOIN LATERAL (
			SELECT t.exchange_or_topic FROM cdc_relay.retry t WHERE ` + inSlotSQL("t") + ` AND t.exchange_or_topic > d.exchange_or_topic ORDER BY t.exchange_or_topic LIMIT 1) t)
	SELECT d.* FROM fence LEFT JOIN (SELECT * FROM d LIMIT $6) d ON true ORDER BY d.exchange_or_topic`

// blockingSQL reads the exchanges and topics of dead letters that block their ordering group.
var blockingSQL = readFence + ` SELECT DISTINCT t.exchange_or_topic FROM fence LEFT JOIN cdc_relay.dead_letter t ON ` + oursSQL("t") + ` AND t.state = 'open' AND t.ordered`

// exchangesPage is how many exchanges and topics one statement reads at most.
const exchangesPage = 10_000

// ExchangesWithRows implements Store.
func (p *Store) ExchangesWithRows(ctx context.Context) (list []uint64, err error) {
	var last int64
	add := func(rows pgx.Rows) error {
		err := rows.Scan(&last)
		list = append(list, uint64(last))
		return err
	}
	for page := exchangesPage; page == exchangesPage; {
		was := len(list)
		if err := p.runRead(ctx, "read exchanges", exchangesSQL, []any{p.cfg.SystemID, last, was == 0, exchangesPage}, add); err != nil {
			return nil, err
		}
		page = len(list) - was
	}
	if p.cfg.Block {
		err = p.runRead(ctx, "read exchanges of dead letters", blockingSQL, []any{p.cfg.SystemID}, add)
	}
	slices.Sort(list)
	return slices.Compact(list), err
}

// missingSQL is served by the index retry_no_exchange: its cost is by rows that were refused so.
// It reads no more exchanges than the relay can pause.
var missingSQL = readFence + ` SELECT t.* FROM fence LEFT JOIN (SELECT DISTINCT ON (t.exchange_or_topic) t.exchange_or_topic, t.destination, t.error
		FROM cdc_relay.retry t WHERE ` + oursSQL("t") + ` AND t.reason = '` + string(sink.NoExchange) + `' ORDER BY t.exchange_or_topic, t.n LIMIT 10000) t ON true`

// MissingExchanges implements Store.
func (p *Store) MissingExchanges(ctx context.Context) (list []store.MissingExchange, err error) {
	err = p.runRead(ctx, "read missing exchanges", missingSQL, []any{p.cfg.SystemID}, func(rows pgx.Rows) error {
		var m store.MissingExchange
		var exchange int64
		err := rows.Scan(&exchange, &m.Destination, &m.Text)
		m.ExchangeOrTopic = uint64(exchange)
		list = append(list, m)
		return err
	})
	return list, err
}

// PositionsFrom implements Store.
func (p *Store) PositionsFrom(ctx context.Context, from event.Position, limit int) ([]store.StoredPosition, error) {
	return p.positionsOrdered(ctx, ` ORDER BY t.commit_lsn, t.idx LIMIT $5`, from, limit)
}

// positionsOrdered lists positions of both tables from one on: the first limit in an order.
func (p *Store) positionsOrdered(ctx context.Context, order string, from event.Position, limit int) (list []store.StoredPosition, err error) {
	of := func(table, purged string) string {
		return `(SELECT t.commit_lsn, t.idx, t.id, t.left_out, t.commit_time, ` + purged + ` AS purged FROM cdc_relay.` + table + ` t WHERE ` + oursSQL("t") + ` AND t.incarnation = $4
			AND (t.commit_lsn, t.idx) >= ($6::text::pg_lsn, $7::bigint)` + order + `)`
	}
	tables := of("retry", "false") + ` UNION ALL ` + of("dead_letter", "t.state = 'purged'")
	sql := readFence + ` SELECT t.purged, sha256(t.id), t.id IS NULL AND t.left_out IS NOT NULL, (extract(epoch FROM t.commit_time) * 1000000)::bigint, t.commit_lsn::text, t.idx
		FROM fence LEFT JOIN LATERAL (SELECT * FROM (` + tables + `) t` + order + `) t ON true
		ORDER BY t.commit_lsn, t.idx`
	args := []any{p.cfg.SystemID, p.cfg.Incarnation, limit, from.Commit.String(), int64(from.Index)}
	err = p.runRead(ctx, "read positions", sql, args, func(rows pgx.Rows) error {
		var o store.StoredPosition
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
