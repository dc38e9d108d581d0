// One row with its contents and history.

package dlq

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Show returns a row with its contents and its history. Without payloads the contents are not read,
// only reported as hidden. Of large contents the beginning is shown.
func (a *Admin) Show(ctx context.Context, of *Table, n int64, payloads bool) (*Detail, error) {
	row, is, err := a.find(ctx, n)
	if err != nil {
		return nil, err
	}
	if is != of {
		return nil, a.notFound(of, n, is)
	}
	out := &Detail{Row: row}
	if err := a.contents(ctx, out, of, payloads); err != nil {
		return nil, err
	}
	if of == Deferred {
		if out.Behind, err = a.behind(ctx, n); err != nil {
			return nil, err
		}
	}
	if out.Requests, err = a.requestsAbout(ctx, n); err != nil {
		return nil, err
	}
	out.Audit, err = a.audit(ctx, n)
	return out, err
}

// contents reads what lists leave out. If the row is gone meanwhile there are none.
func (a *Admin) contents(ctx context.Context, out *Detail, t *Table, payloads bool) error {
	var kind event.PayloadKind
	var payload, traceparent, headers, columns, fault, raw []byte
	hide := func(column string) string {
		if payloads {
			return start(column, showBytes)
		}
		return "CASE WHEN " + column + " IS NOT NULL THEN ''::bytea END"
	}
	err := a.db.QueryRow(ctx, "SELECT t.event_time, t.payload_kind, "+hide("t.payload")+", "+start("t.traceparent", showText)+", "+hide("t.headers")+", "+hide("t.columns")+", "+start("t.fault", showText)+", "+hide("t.raw")+
		" FROM "+t.name+" t WHERE t.slot = $1 AND t.n = $2", a.slot, out.N).Scan(&out.EventTime, &kind, &payload, &traceparent, &headers, &columns, &fault, &raw)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return explain("read the row's contents", err)
	}
	out.EventTime = out.EventTime.UTC()
	out.ContentType = kind.ContentType()
	out.Payload, out.Headers, out.Raw = content(payload, payloads), content(headers, payloads), content(raw, payloads)
	out.Traceparent, out.Fault = text(traceparent), text(fault)
	if payloads {
		out.Columns = splitColumns(columns)
	}
	return nil
}

// behind finds the row that a deferred one waits for: the first of its ordering group; nil: none.
func (a *Admin) behind(ctx context.Context, n int64) (first *int64, err error) {
	return a.earlier(ctx, "cdc_relay.retry h", n)
}

// behindDeadLetter finds the open dead letter that a deferred row waits for where dead letters
// block their ordering group; nil: none.
func (a *Admin) behindDeadLetter(ctx context.Context, n int64) (first *int64, err error) {
	return a.earlier(ctx, "(SELECT * FROM cdc_relay.dead_letter WHERE state = 'open') h", n)
}

// earlier finds, among the rows h, the first of a deferred row's ordering group before it.
func (a *Admin) earlier(ctx context.Context, among string, n int64) (first *int64, err error) {
	err = a.db.QueryRow(ctx, `SELECT h.n FROM cdc_relay.retry t CROSS JOIN LATERAL (SELECT h.n FROM `+among+`
				WHERE h.slot = t.slot AND h.system_id = t.system_id AND h.ordering_group = t.ordering_group AND h.ordered
					AND (h.incarnation, h.commit_lsn, h.idx) < (t.incarnation, t.commit_lsn, t.idx)
				ORDER BY h.incarnation, h.commit_lsn, h.idx LIMIT 1) h
			WHERE t.slot = $1 AND t.n = $2`, a.slot, n).Scan(&first)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return first, explain("read what the row waits for", err)
}

// content makes bytes readable for people.
func content(b []byte, shown bool) *Content {
	switch {
	case b == nil:
		return nil
	case !shown:
		return &Content{Hidden: true}
	}
	cut := shorten(&b, showBytes)
	whole := b
	for i := 0; cut && i < utf8.UTFMax-1 && !utf8.Valid(whole[len(whole)-min(len(whole), utf8.UTFMax):]); i++ {
		whole = whole[:len(whole)-1] // the character that was cut
	}
	if utf8.Valid(whole) && !strings.ContainsFunc(string(whole), unreadable) {
		return &Content{Text: text(whole), Cut: cut}
	}
	encoded := base64.StdEncoding.EncodeToString(b)
	return &Content{Base64: &encoded, Cut: cut}
}

// unreadable reports whether a terminal would interpret a character instead of showing it.
func unreadable(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }

// splitColumns reads the extra columns, up to where they are damaged.
func splitColumns(b []byte) (list []Column) {
	EachColumn(b, func(name, value []byte) {
		list = append(list, Column{Name: string(name), Value: content(value, true)})
	})
	return list
}

// history is how many requests and entries of the audit are shown of a row.
const history = 20

func (a *Admin) requestsAbout(ctx context.Context, n int64) ([]Request, error) {
	rows, err := a.db.Query(ctx, `SELECT `+requestColumns+` FROM cdc_relay.request WHERE n = $1 AND slot = $2 ORDER BY id DESC LIMIT $3`, n, a.slot, history)
	if err != nil {
		return nil, explain("read cdc_relay.request", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Request, error) { return scanRequest(row) })
	return append([]Request{}, list...), explain("read cdc_relay.request", err)
}

func (a *Admin) audit(ctx context.Context, n int64) ([]Entry, error) {
	rows, err := a.db.Query(ctx, `SELECT at, left(who, 1000), left(action, 1000), left(why, 1000), left(result, 1000) FROM cdc_relay.audit WHERE n = $1 AND slot = $2 ORDER BY seq DESC LIMIT $3`, n, a.slot, history)
	if err != nil {
		return nil, explain("read cdc_relay.audit", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Entry, error) {
		var e Entry
		err := row.Scan(&e.At, &e.Who, &e.Action, &e.Why, &e.Result)
		e.At = e.At.UTC()
		return e, err
	})
	return append([]Entry{}, list...), explain("read cdc_relay.audit", err)
}

// SameKey makes the filter choose the aggregate and key of a row: for keys that are too long or too
// strange to type.
func (a *Admin) SameKey(ctx context.Context, n int64, f *Filter) error {
	_, is, err := a.find(ctx, n)
	switch {
	case err != nil:
		return err
	case is == nil:
		return &NotFound{What: "row", N: n, Slot: a.slot}
	}
	var key, aggregate []byte // whole, or more than a filter may have
	err = a.db.QueryRow(ctx, "SELECT "+start("t.key", maxFilter)+", "+start("t.aggregate", maxFilter)+" FROM "+is.name+" t WHERE t.slot = $1 AND t.n = $2", a.slot, n).Scan(&key, &aggregate)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return explain("read the row's key", err)
	case key == nil:
		return &NotNow{"key of", n, "that event has no key"}
	}
	f.Key, f.Aggregate, f.NoAggregate = key, aggregate, aggregate == nil
	return nil
}
