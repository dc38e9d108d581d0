// The columns of the retry table and of the dead letters: how a row is written to them and read. A
// new column needs a migration, a field of tableRow, a line in fields, and its place in encodeRow
// and decodeRow.

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// tableRow is a row as the columns hold it that retry and dead_letter have in common.
type tableRow struct {
	incarnation                        int64
	commit                             string
	index, n                           int64
	group, exchangeOrTopic, dest, hash int64
	keyed, ordered                     bool
	attempts                           int32
	bytes                              int64
	first, last                        *time.Time
	class, reason                      string
	errorText, destination             string
	fullText                           *string // nil: errorText has all of it
	routeName, routingKey              []byte
	commitTime, eventTime              time.Time
	id, aggregate, key, typ            []byte
	payloadKind                        int16
	payload, traceparent, headers      []byte
	columns, fault, raw                []byte
	leftOut                            *string
	relation, tx                       *int64 // event.Origin; nil: not known
	resend                             *int64
}

// field is one of those columns: its name, the element type of the array in which its values are
// sent, and how to access it in a tableRow.
type field struct {
	name, typ string
	target    func(*tableRow) any       // for Scan
	array     func(list []tableRow) any // for unnest
}

func column[T any](name, typ string, at func(*tableRow) *T) field {
	return field{
		name: name, typ: typ,
		target: func(r *tableRow) any { return at(r) },
		array: func(list []tableRow) any {
			values := make([]T, len(list))
			for i := range list {
				values[i] = *at(&list[i])
			}
			return values
		},
	}
}

// fields are the columns in common. A pg_lsn is sent as text, because the driver has no arrays of
// that type.
var fields = []field{
	column("incarnation", "bigint", func(r *tableRow) *int64 { return &r.incarnation }),
	column("commit_lsn", "text", func(r *tableRow) *string { return &r.commit }),
	column("idx", "bigint", func(r *tableRow) *int64 { return &r.index }),
	column("n", "bigint", func(r *tableRow) *int64 { return &r.n }),
	column("ordering_group", "bigint", func(r *tableRow) *int64 { return &r.group }),
	column("exchange_or_topic", "bigint", func(r *tableRow) *int64 { return &r.exchangeOrTopic }),
	column("dest", "bigint", func(r *tableRow) *int64 { return &r.dest }),
	column("hash", "bigint", func(r *tableRow) *int64 { return &r.hash }),
	column("keyed", "boolean", func(r *tableRow) *bool { return &r.keyed }),
	column("ordered", "boolean", func(r *tableRow) *bool { return &r.ordered }),
	column("attempts", "integer", func(r *tableRow) *int32 { return &r.attempts }),
	column("bytes", "bigint", func(r *tableRow) *int64 { return &r.bytes }),
	column("first_failed_at", "timestamptz", func(r *tableRow) **time.Time { return &r.first }),
	column("failed_at", "timestamptz", func(r *tableRow) **time.Time { return &r.last }),
	column("class", "text", func(r *tableRow) *string { return &r.class }),
	column("reason", "text", func(r *tableRow) *string { return &r.reason }),
	column("error", "text", func(r *tableRow) *string { return &r.errorText }),
	column("error_text", "text", func(r *tableRow) **string { return &r.fullText }),
	column("destination", "text", func(r *tableRow) *string { return &r.destination }),
	column("route_name", "bytea", func(r *tableRow) *[]byte { return &r.routeName }),
	column("routing_key", "bytea", func(r *tableRow) *[]byte { return &r.routingKey }),
	column("commit_time", "timestamptz", func(r *tableRow) *time.Time { return &r.commitTime }),
	column("event_time", "timestamptz", func(r *tableRow) *time.Time { return &r.eventTime }),
	column("id", "bytea", func(r *tableRow) *[]byte { return &r.id }),
	column("aggregate", "bytea", func(r *tableRow) *[]byte { return &r.aggregate }),
	column("key", "bytea", func(r *tableRow) *[]byte { return &r.key }),
	column("type", "bytea", func(r *tableRow) *[]byte { return &r.typ }),
	column("payload_kind", "smallint", func(r *tableRow) *int16 { return &r.payloadKind }),
	column("payload", "bytea", func(r *tableRow) *[]byte { return &r.payload }),
	column("traceparent", "bytea", func(r *tableRow) *[]byte { return &r.traceparent }),
	column("headers", "bytea", func(r *tableRow) *[]byte { return &r.headers }),
	column("columns", "bytea", func(r *tableRow) *[]byte { return &r.columns }),
	column("fault", "bytea", func(r *tableRow) *[]byte { return &r.fault }),
	column("raw", "bytea", func(r *tableRow) *[]byte { return &r.raw }),
	column("left_out", "text", func(r *tableRow) **string { return &r.leftOut }),
	column("relation", "bigint", func(r *tableRow) **int64 { return &r.relation }),
	column("tx", "bigint", func(r *tableRow) **int64 { return &r.tx }),
	column("resend", "bigint", func(r *tableRow) **int64 { return &r.resend }),
}

// heavyColumns are the columns that are needed only to send the event. Lists of requests leave them
// out.
var heavyColumns = map[string]bool{"payload": true, "headers": true, "columns": true, "raw": true}

// fieldNames lists the columns, for INSERT.
func fieldNames() string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// fieldList lists the columns of alias, for SELECT. instead has other expressions for some of them.
func fieldList(alias string, instead map[string]string) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = alias + "." + f.name
		if other, ok := instead[f.name]; ok {
			list[i] = other
		}
	}
	return strings.Join(list, ", ")
}

// encodeRow returns the row as it is stored.
func (p *Store) encodeRow(row *store.Row, as storable) tableRow {
	ev := &row.Event
	shape := p.shapes.encoded(ev.Shape)
	r := tableRow{
		incarnation: row.Incarnation, commit: ev.Position.Commit.String(), index: int64(ev.Position.Index), n: row.N,
		group: int64(row.Group), exchangeOrTopic: int64(row.ExchangeOrTopic), dest: int64(row.Dest), hash: int64(ev.Hash),
		keyed: ev.Ordered, ordered: row.Ordered, attempts: int32(row.Attempts), bytes: int64(ev.Size() + len(ev.Raw) + len(shape)),
		first: nilIfZero(row.First), last: nilIfZero(row.Last),
		errorText: as.errorText(row.Text), fullText: as.fullText(row.Text), destination: as(store.BoundedText(row.Destination, store.TextSize)),
		commitTime: ev.CommitTime, eventTime: ev.Time,
		id: ev.ID, aggregate: ev.Aggregate, key: ev.Key, typ: ev.Type,
		payloadKind: int16(ev.PayloadKind), payload: ev.Payload, traceparent: ev.Traceparent, headers: ev.Headers,
		columns: dlq.AppendShape(dlq.AppendColumns(nil, p.cfg.Columns, ev.Columns), shape), raw: ev.Raw,
	}
	r.class, r.reason = store.RefusalColumns(row.Class, row.Reason)
	if ev.Route != nil {
		r.routeName, r.routingKey = ev.Route.Name, ev.Route.RoutingKey
	}
	if relation := int64(ev.Origin.Relation); relation != 0 {
		r.relation = &relation
	}
	if tx := int64(ev.Origin.Tx); tx != 0 {
		r.tx = &tx
	}
	if row.Resend != 0 {
		r.resend = &row.Resend
	}
	if ev.Fault != nil {
		r.fault = []byte(ev.Fault.Error())
	}
	if ev.LeftOut != nil {
		// The size is that of the whole row, because a replay reads it.
		r.leftOut, r.bytes, r.fault = &ev.LeftOut.Table, ev.LeftOut.Bytes, []byte(sink.RowFault(ev).Text)
	}
	return r
}

// decodeRow returns the row that r stores. deferredAt and next are in seconds from now.
func (p *Store) decodeRow(r *tableRow, deferredAt float64, next *float64) (*store.Row, error) {
	commit, err := pglogrepl.ParseLSN(r.commit)
	if err != nil {
		return nil, err
	}
	columns, shape, err := readColumns(r.columns, p.cfg.Columns)
	if err != nil {
		return nil, fmt.Errorf("row %d: %w", r.n, err)
	}
	now := time.Now()
	row := &store.Row{
		N: r.n, Incarnation: r.incarnation, Bytes: r.bytes,
		Event: event.Event{
			Position: event.Position{Commit: commit, Index: uint32(r.index)}, CommitTime: r.commitTime.UTC(), Time: r.eventTime.UTC(),
			ID: r.id, Aggregate: r.aggregate, Key: r.key, Type: r.typ,
			Payload: r.payload, PayloadKind: event.PayloadKind(r.payloadKind), Traceparent: r.traceparent, Headers: r.headers,
			Columns: columns, Shape: p.shapes.parsed(shape), Route: &event.Route{Name: r.routeName, RoutingKey: r.routingKey},
			Ordered: r.keyed, Hash: uint64(r.hash), Raw: r.raw,
		},
		Group: uint64(r.group), Ordered: r.ordered, ExchangeOrTopic: uint64(r.exchangeOrTopic), Dest: uint64(r.dest),
		Class: classOf(r.class), Reason: sink.Reason(r.reason), Text: r.errorText, Destination: r.destination, Attempts: int(r.attempts),
		First: timeOrZero(r.first), Last: timeOrZero(r.last), DeferredAt: now.Add(seconds(deferredAt)),
	}
	if len(r.key) > 0 && r.keyed && p.cfg.Keys != nil { // regroupTable reads some keys later
		row.Event.Hash = p.cfg.Keys.Of(r.aggregate, r.key)
	}
	if r.relation != nil {
		row.Event.Origin.Relation = uint32(*r.relation)
	}
	if r.tx != nil {
		row.Event.Origin.Tx = uint64(*r.tx)
	}
	if r.resend != nil {
		row.Resend, row.Event.Replay = *r.resend, true
	}
	if next != nil {
		row.NextAttempt = now.Add(seconds(*next))
	}
	switch {
	case r.leftOut != nil:
		row.Event.LeftOut = &event.LeftOut{Table: *r.leftOut, Bytes: r.bytes}
	case r.fault != nil:
		row.Event.Fault = errors.New(string(r.fault))
	}
	return row, nil
}

func classOf(name string) sink.Class {
	for _, c := range []sink.Class{sink.Transient, sink.Permanent} {
		if c.String() == name {
			return c
		}
	}
	return sink.Destination
}

func nilIfZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// rowExpressions returns the expressions that scanRow reads, for a row of retry (dead: of
// dead_letter) with that alias. The heavy columns are read where the condition full holds.
func rowExpressions(alias string, dead bool, full string) string {
	instead := map[string]string{"commit_lsn": alias + ".commit_lsn::text"}
	if full != "true" {
		for name := range heavyColumns {
			instead[name] = "CASE WHEN " + full + " THEN " + alias + "." + name + " END"
		}
	}
	next := "extract(epoch FROM " + alias + ".next_attempt - now())::float8"
	if dead {
		next = "NULL::float8"
	}
	return fieldList(alias, instead) + ", extract(epoch FROM " + alias + ".deferred_at - now())::float8 AS deferred_in, " + next + " AS next_in"
}

// scanRow reads a row of rowExpressions; more are the targets of the columns before it.
func (p *Store) scanRow(rows pgx.Rows, more ...any) (*store.Row, error) {
	var (
		r        tableRow
		deferred float64
		next     *float64
	)
	for _, f := range fields {
		more = append(more, f.target(&r))
	}
	if err := rows.Scan(append(more, &deferred, &next)...); err != nil {
		return nil, err
	}
	return p.decodeRow(&r, deferred, next)
}

var errColumns = errors.New("column \"columns\" is damaged: it is not as a relay writes it")

// readColumns returns the values of the columns with these names, nil for a column that b lacks,
// and the shape, nil when b has none. They alias b.
func readColumns(b []byte, names []string) (values [][]byte, shape []byte, err error) {
	if len(names) > 0 {
		values = make([][]byte, len(names))
	}
	shape, ok := dlq.EachColumn(b, func(name, value []byte) {
		for i := range names {
			if names[i] == string(name) {
				values[i] = value
			}
		}
	})
	if !ok {
		return nil, nil, errColumns
	}
	return values, shape, nil
}

// shapes gives the rows of a table one shape, as the stream does, and each shape one text. Both are
// kept because rows are read and written by the thousand.
type shapes struct {
	mu    sync.Mutex
	read  map[string]*event.Shape // nil: it is no shape
	texts map[*event.Shape][]byte
}

// maxShapes bounds each map: tables are altered, and described again.
const maxShapes = 256

// parsed is the shape that a row has stored. It is nil also for a text that this version cannot
// read, as one that a later version wrote: the row keeps it, and its event is refused by an encoder
// that needs it, as one that was deferred without a shape.
func (s *shapes) parsed(text []byte) *event.Shape {
	if text == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	shape, known := s.read[string(text)]
	if known {
		return shape
	}
	if shape, err := event.ParseShape(text); err == nil {
		return remember(&s.read, string(text), shape)
	}
	return remember(&s.read, string(text), nil)
}

// encoded is the stored form of a shape; nil for no shape. It is not to be changed.
func (s *shapes) encoded(shape *event.Shape) []byte {
	if shape == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := s.texts[shape]; text != nil {
		return text
	}
	return remember(&s.texts, shape, event.AppendShape(nil, shape))
}

// remember adds a value to a map of at most maxShapes and returns it.
func remember[K comparable, V any](m *map[K]V, key K, value V) V {
	if *m == nil || len(*m) >= maxShapes {
		*m = map[K]V{}
	}
	(*m)[key] = value
	return value
}
