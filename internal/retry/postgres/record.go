// record: a row as the columns of the tables.

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// record is a row as the columns that retry and dead_letter have in common hold it.
type record struct {
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
	routeName, routingKey              []byte
	commitTime, eventTime              time.Time
	id, aggregate, key, typ            []byte
	payloadKind                        int16
	payload, traceparent, headers      []byte
	columns, fault, raw                []byte
}

// field is one of those columns: its name, the type of the array its values are sent in, and where
// a record has it.
type field struct {
	name, typ string
	target    func(*record) any       // for Scan
	array     func(list []record) any // for unnest
}

func column[T any](name, typ string, at func(*record) *T) field {
	return field{
		name: name, typ: typ,
		target: func(r *record) any { return at(r) },
		array: func(list []record) any {
			values := make([]T, len(list))
			for i := range list {
				values[i] = *at(&list[i])
			}
			return values
		},
	}
}

// fields are the columns in common. pg_lsn, of which the driver knows no arrays, goes as text.
var fields = []field{
	column("incarnation", "bigint", func(r *record) *int64 { return &r.incarnation }),
	column("commit_lsn", "text", func(r *record) *string { return &r.commit }),
	column("idx", "bigint", func(r *record) *int64 { return &r.index }),
	column("n", "bigint", func(r *record) *int64 { return &r.n }),
	column("ordering_group", "bigint", func(r *record) *int64 { return &r.group }),
	column("exchange_or_topic", "bigint", func(r *record) *int64 { return &r.exchangeOrTopic }),
	column("dest", "bigint", func(r *record) *int64 { return &r.dest }),
	column("hash", "bigint", func(r *record) *int64 { return &r.hash }),
	column("keyed", "boolean", func(r *record) *bool { return &r.keyed }),
	column("ordered", "boolean", func(r *record) *bool { return &r.ordered }),
	column("attempts", "integer", func(r *record) *int32 { return &r.attempts }),
	column("bytes", "bigint", func(r *record) *int64 { return &r.bytes }),
	column("first_failed_at", "timestamptz", func(r *record) **time.Time { return &r.first }),
	column("failed_at", "timestamptz", func(r *record) **time.Time { return &r.last }),
	column("class", "text", func(r *record) *string { return &r.class }),
	column("reason", "text", func(r *record) *string { return &r.reason }),
	column("error", "text", func(r *record) *string { return &r.errorText }),
	column("destination", "text", func(r *record) *string { return &r.destination }),
	column("route_name", "bytea", func(r *record) *[]byte { return &r.routeName }),
	column("routing_key", "bytea", func(r *record) *[]byte { return &r.routingKey }),
	column("commit_time", "timestamptz", func(r *record) *time.Time { return &r.commitTime }),
	column("event_time", "timestamptz", func(r *record) *time.Time { return &r.eventTime }),
	column("id", "bytea", func(r *record) *[]byte { return &r.id }),
	column("aggregate", "bytea", func(r *record) *[]byte { return &r.aggregate }),
	column("key", "bytea", func(r *record) *[]byte { return &r.key }),
	column("type", "bytea", func(r *record) *[]byte { return &r.typ }),
	column("payload_kind", "smallint", func(r *record) *int16 { return &r.payloadKind }),
	column("payload", "bytea", func(r *record) *[]byte { return &r.payload }),
	column("traceparent", "bytea", func(r *record) *[]byte { return &r.traceparent }),
	column("headers", "bytea", func(r *record) *[]byte { return &r.headers }),
	column("columns", "bytea", func(r *record) *[]byte { return &r.columns }),
	column("fault", "bytea", func(r *record) *[]byte { return &r.fault }),
	column("raw", "bytea", func(r *record) *[]byte { return &r.raw }),
}

// heavy are the columns that are needed only to send the event; lists of requests leave them out.
var heavy = map[string]bool{"payload": true, "headers": true, "columns": true, "raw": true}

// fieldNames lists the columns, for INSERT.
func fieldNames() string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// fieldsOf lists the columns of alias, for SELECT. instead has other expressions for some.
func fieldsOf(alias string, instead map[string]string) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = alias + "." + f.name
		if other, ok := instead[f.name]; ok {
			list[i] = other
		}
	}
	return strings.Join(list, ", ")
}

// record is the row as it is stored.
func (p *Store) record(row *store.Row, as storable) record {
	ev := &row.Event
	r := record{
		incarnation: row.Incarnation, commit: ev.Position.Commit.String(), index: int64(ev.Position.Index), n: row.N,
		group: int64(row.Group), exchangeOrTopic: int64(row.ExchangeOrTopic), dest: int64(row.Dest), hash: int64(ev.Hash),
		keyed: ev.Ordered, ordered: row.Ordered, attempts: int32(row.Attempts), bytes: int64(ev.Size() + len(ev.Raw)),
		first: instant(row.First), last: instant(row.Last),
		errorText: as.errorText(row.Text), destination: as(store.BoundedText(row.Destination, store.TextSize)),
		commitTime: ev.CommitTime, eventTime: ev.Time,
		id: ev.ID, aggregate: ev.Aggregate, key: ev.Key, typ: ev.Type,
		payloadKind: int16(ev.PayloadKind), payload: ev.Payload, traceparent: ev.Traceparent, headers: ev.Headers,
		columns: dlq.AppendColumns(nil, p.c.Columns, ev.Columns), raw: ev.Raw,
	}
	r.class, r.reason = store.Refusal(row.Class, row.Reason)
	if ev.Route != nil {
		r.routeName, r.routingKey = ev.Route.Name, ev.Route.RoutingKey
	}
	if ev.Fault != nil {
		r.fault = []byte(ev.Fault.Error())
	}
	return r
}

// row is the row that the record stores, with its times, in seconds from now.
func (p *Store) row(r *record, deferredAt float64, next *float64) (*store.Row, error) {
	commit, err := pglogrepl.ParseLSN(r.commit)
	if err != nil {
		return nil, err
	}
	columns, err := readColumns(r.columns, p.c.Columns)
	if err != nil {
		return nil, fmt.Errorf("row %d: %w", r.n, err)
	}
	now := time.Now()
	row := &store.Row{
		N: r.n, Incarnation: r.incarnation,
		Event: event.Event{
			Position: event.Position{Commit: commit, Index: uint32(r.index)}, CommitTime: r.commitTime.UTC(), Time: r.eventTime.UTC(),
			ID: r.id, Aggregate: r.aggregate, Key: r.key, Type: r.typ,
			Payload: r.payload, PayloadKind: event.PayloadKind(r.payloadKind), Traceparent: r.traceparent, Headers: r.headers,
			Columns: columns, Route: &event.Route{Name: r.routeName, RoutingKey: r.routingKey},
			Ordered: r.keyed, Hash: uint64(r.hash), Raw: r.raw,
		},
		Group: uint64(r.group), Ordered: r.ordered, ExchangeOrTopic: uint64(r.exchangeOrTopic), Dest: uint64(r.dest),
		Class: classOf(r.class), Reason: sink.Reason(r.reason), Text: r.errorText, Destination: r.destination, Attempts: int(r.attempts),
		First: at(r.first), Last: at(r.last), DeferredAt: now.Add(seconds(deferredAt)),
	}
	if next != nil {
		row.NextAttempt = now.Add(seconds(*next))
	}
	if r.fault != nil {
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

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// rowOf returns the expressions that scanRow reads, for a row of retry (dead: dead_letter) by that
// alias. The heavy columns are read where the condition full holds.
func rowOf(alias string, dead bool, full string) string {
	instead := map[string]string{"commit_lsn": alias + ".commit_lsn::text"}
	if full != "true" {
		for name := range heavy {
			instead[name] = "CASE WHEN " + full + " THEN " + alias + "." + name + " END"
		}
	}
	next := "extract(epoch FROM " + alias + ".next_attempt - now())::float8"
	if dead {
		next = "NULL::float8"
	}
	return fieldsOf(alias, instead) + ", extract(epoch FROM " + alias + ".deferred_at - now())::float8 AS deferred_in, " + next + " AS next_in"
}

// scanRow reads a row of rowOf; more are the targets of the columns before it.
func (p *Store) scanRow(rows pgx.Rows, more ...any) (*store.Row, error) {
	var (
		r        record
		deferred float64
		next     *float64
	)
	for _, f := range fields {
		more = append(more, f.target(&r))
	}
	if err := rows.Scan(append(more, &deferred, &next)...); err != nil {
		return nil, err
	}
	return p.row(&r, deferred, next)
}
