// Rows as operators see them: Row is a deferred row or a dead letter in a list; Show adds its
// contents and its history.

package dlq

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Table is a table of rows.
type Table struct {
	name string
	at   string // the column with the time when a row came to the table
}

// The tables of rows.
var (
	DeadLetters = &Table{"cdc_relay.dead_letter", "died_at"}
	Deferred    = &Table{"cdc_relay.retry", "deferred_at"} // the retry table
)

// Row is a deferred row or a dead letter, as lists show it. A nil field is NULL, or not set yet.
type Row struct {
	N        int64  `json:"n"`
	State    string `json:"state"`
	Position string `json:"position"` // as in the message header cdc_position

	ID           *string   `json:"id"` // null: the row could not be decoded, or is purged
	Aggregate    *string   `json:"aggregate"`
	Key          *string   `json:"key"`
	Type         *string   `json:"type"`
	CommittedAt  time.Time `json:"committed_at"`
	PayloadBytes *int64    `json:"payload_bytes"` // null: no payload, or no longer

	Cut []string `json:"cut,omitempty"` // names of values that are cut

	// values that are left out because the row is over source.max_event_bytes; nil when none are
	LeftOut *LeftOut `json:"left_out,omitempty"`

	Destination string `json:"destination"` // exchange or topic, and after a slash the routing key

	// Of the last rejection; "" for a row that waits behind another one and was not rejected.
	Class  string `json:"class"`
	Reason string `json:"reason"`
	Error  string `json:"error"` // the broker's error text, with # for numbers
	// the broker's error text as it was; the same as Error where that is not kept
	ErrorText string `json:"error_text"`
	Accused   string `json:"accused"` // what the broker's answer blames

	Attempts      int        `json:"attempts"` // attempts that count against retry.max_attempts
	FirstFailedAt *time.Time `json:"first_failed_at"`
	FailedAt      *time.Time `json:"failed_at"`
	DeferredAt    time.Time  `json:"deferred_at"`
	NextAttempt   *time.Time `json:"next_attempt,omitempty"` // of a deferred row

	DiedAt     *time.Time `json:"died_at,omitempty"` // of a dead letter, like the fields below
	ClosedAt   *time.Time `json:"closed_at,omitempty"`
	MirroredAt *time.Time `json:"mirrored_at,omitempty"`
	Redacted   bool       `json:"redacted,omitempty"`

	// it belongs to another system (pg_upgrade, restore or copy), and nobody acts on it here
	Copied bool `json:"copied,omitempty"`

	// Of the outbox row: the transaction that wrote it, and the OID of its table as the stream
	// named it; nil when they are not known.
	tx, relation *int64
}

// LeftOut says where to find the values that a row does not have.
type LeftOut struct {
	Table    string `json:"table"` // the table that a replay reads; "" for a logical message
	RowBytes int64  `json:"row_bytes"`
}

// Page is a part of a list, and where the next one begins: "" at the end.
type Page struct {
	Rows []Row  `json:"items"`
	Next string `json:"next"`
}

// Detail is all that is known about a row.
type Detail struct {
	Row
	EventTime   time.Time `json:"event_time"` // of the timestamp column, else CommittedAt
	ContentType string    `json:"content_type"`
	Payload     *Content  `json:"payload"` // null when there is none, or no longer
	Traceparent *string   `json:"traceparent"`
	Headers     *Content  `json:"headers"` // the headers column
	Columns     []Column  `json:"columns,omitempty"`
	// why the row of the outbox table could not be relayed as configured
	Fault *string  `json:"fault,omitempty"`
	Raw   *Content `json:"raw,omitempty"` // that row, or the text of the logical message
	// of a deferred row: the number of the first row of its key, which it waits for
	Behind *int64 `json:"behind,omitempty"`

	Requests []Request `json:"requests"` // the newest first
	Audit    []Entry   `json:"audit"`    // what was done, the newest first
}

// Content is bytes of an event for people: valid text as it is, other bytes in base64. Hidden says
// that they are not shown.
type Content struct {
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
	Hidden bool    `json:"hidden,omitempty"`
	Cut    bool    `json:"cut,omitempty"` // only the beginning is shown
}

// Column is an extra column of the outbox table.
type Column struct {
	Name  string   `json:"name"`
	Value *Content `json:"value"` // null: NULL
}

// Entry is a row of the audit.
type Entry struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Action string    `json:"action"`
	Why    string    `json:"why"`
	Result string    `json:"result"`
}

// scanned has the values of columnList that a Row has in another form.
type scanned struct {
	commit              pglogrepl.LSN
	index               uint32
	id, aggregate       []byte
	key, kind           []byte
	name, routingKey    []byte
	committed, deferred time.Time
	first, last, next   *time.Time
	died, closed, sent  *time.Time
	leftOut             *string
	words               *string // error_text; nil when it is not kept
	bytes               int64
}

func (s *scanned) into(r *Row) []any {
	return []any{
		&r.N, &r.Copied, &s.commit, &s.index, &s.id, &s.aggregate, &s.key, &s.kind, &s.committed, &r.PayloadBytes,
		&s.name, &s.routingKey, &r.Class, &r.Reason, &r.Error, &s.words, &r.Accused, &r.Attempts, &s.first, &s.last, &s.deferred,
		&s.next, &r.State, &s.died, &s.closed, &s.sent, &r.Redacted, &s.leftOut, &s.bytes, &r.tx, &r.relation,
	}
}

// finish puts the values into the row, each cut to most bytes.
func (s *scanned) finish(r *Row, most int) {
	words, accused, full := []byte(r.Error), []byte(r.Accused), []byte(r.Error)
	if s.words != nil {
		full = []byte(*s.words)
	}
	for _, v := range []struct {
		name  string
		value *[]byte
	}{
		{"id", &s.id},
		{"aggregate", &s.aggregate},
		{"key", &s.key},
		{"type", &s.kind},
		{"destination", &s.name},
		{"destination", &s.routingKey},
		{"error", &words},
		{"error", &full},
		{"accused", &accused},
	} {
		if shorten(v.value, most) {
			r.Cut = append(r.Cut, v.name)
		}
	}
	r.Cut = slices.Compact(r.Cut)
	r.Error, r.ErrorText, r.Accused = strings.ToValidUTF8(string(words), ""), strings.ToValidUTF8(string(full), ""), strings.ToValidUTF8(string(accused), "")
	r.Position = event.Position{Commit: s.commit, Index: s.index}.String()
	r.ID, r.Aggregate, r.Key, r.Type = text(s.id), text(s.aggregate), text(s.key), text(s.kind)
	if s.leftOut != nil {
		r.LeftOut = &LeftOut{*s.leftOut, s.bytes}
	}
	r.Destination = destination(s.name, s.routingKey)
	r.CommittedAt, r.DeferredAt = s.committed.UTC(), s.deferred.UTC()
	r.FirstFailedAt, r.FailedAt, r.NextAttempt = utc(s.first), utc(s.last), utc(s.next)
	r.DiedAt, r.ClosedAt, r.MirroredAt = utc(s.died), utc(s.closed), utc(s.sent)
}

// destination returns where a row goes, in the form of Filter.Destination.
func destination(name, routingKey []byte) string {
	if routingKey == nil {
		return string(name)
	}
	return string(name) + "/" + string(routingKey)
}

func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// octets returns the bytes of a text. It keeps nil and the empty text apart.
func octets(s *string) []byte {
	if s == nil {
		return nil
	}
	return append([]byte{}, *s...)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// history is how many requests and audit entries of a row are shown.
const history = 20

// Show returns a row with its contents and its history. Without payloads it does not read the
// contents, and reports them as hidden. Of large contents it shows the beginning.
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
		if out.Behind, err = a.earlier(ctx, Deferred, n); err != nil {
			return nil, err
		}
	}
	if out.Requests, err = a.requests(ctx, "WHERE n = $1 AND slot = $2 ORDER BY id DESC LIMIT $3", n, a.slot, history); err != nil {
		return nil, err
	}
	out.Audit, err = all(ctx, a, "read cdc_relay.audit", `SELECT at, left(who, 1000), left(action, 1000), left(why, 1000), left(result, 1000) FROM cdc_relay.audit WHERE n = $1 AND slot = $2 ORDER BY seq DESC LIMIT $3`,
		[]any{n, a.slot, history}, func(row pgx.CollectableRow) (e Entry, err error) {
			err = row.Scan(&e.At, &e.Who, &e.Action, &e.Why, &e.Result)
			e.At = e.At.UTC()
			return e, err
		})
	return out, err
}

// contents reads what lists leave out. It reads nothing when the row is gone meanwhile.
func (a *Admin) contents(ctx context.Context, out *Detail, t *Table, payloads bool) error {
	var kind event.PayloadKind
	var payload, traceparent, headers, columns, fault, raw []byte
	hide := func(column string) string {
		if payloads {
			return start(column, showBytes)
		}
		return "CASE WHEN " + column + " IS NOT NULL THEN ''::bytea END"
	}
	err := a.one(ctx, "read the row's contents", "SELECT t.event_time, t.payload_kind, "+hide("t.payload")+", "+start("t.traceparent", showText)+", "+hide("t.headers")+", "+hide("t.columns")+", "+start("t.fault", showText)+", "+hide("t.raw")+
		" FROM "+t.name+" t WHERE t.slot = $1 AND t.n = $2", []any{a.slot, out.N}, &out.EventTime, &kind, &payload, &traceparent, &headers, &columns, &fault, &raw)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
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

// earlier finds the row of a table that a deferred row waits for: the first row of its ordering
// group, or the first open dead letter of the group where dead letters block it. It returns nil
// without one.
func (a *Admin) earlier(ctx context.Context, in *Table, n int64) (first *int64, err error) {
	among := in.name + " h"
	if in == DeadLetters {
		among = "(SELECT * FROM cdc_relay.dead_letter WHERE state = 'open') h"
	}
	err = a.one(ctx, "read what the row waits for", `SELECT h.n FROM cdc_relay.retry t CROSS JOIN LATERAL (SELECT h.n FROM `+among+`
				WHERE h.slot = t.slot AND h.system_id = t.system_id AND h.ordering_group = t.ordering_group AND h.ordered
					AND (h.incarnation, h.commit_lsn, h.idx) < (t.incarnation, t.commit_lsn, t.idx)
				ORDER BY h.incarnation, h.commit_lsn, h.idx LIMIT 1) h
			WHERE t.slot = $1 AND t.n = $2`, []any{a.slot, n}, &first)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return first, err
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
	err = a.one(ctx, "read the row's key", "SELECT "+start("t.key", maxFilter)+", "+start("t.aggregate", maxFilter)+" FROM "+is.name+" t WHERE t.slot = $1 AND t.n = $2", []any{a.slot, n}, &key, &aggregate)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return err
	case key == nil:
		return &NotNow{"key of", n, "that event has no key"}
	}
	f.Key, f.Aggregate, f.NoAggregate = key, aggregate, aggregate == nil
	return nil
}

// Extra columns as rows store them: with their names, because a row may outlive the configuration
// that listed them in some order. The shape of the row's table is stored among them.

// shapeColumn is the name under which a row has the shape of its table, as if it was an extra
// column. Every version stores it so: an earlier one reads the rows of this one after a rollback,
// and this one reads theirs. A table's own column of this name would be taken for it.
const shapeColumn = "cdc_relay.shape"

// AppendShape appends a shape, as event.AppendShape writes it, to what AppendColumns has written.
// nil is no shape.
func AppendShape(b, shape []byte) []byte {
	if shape == nil {
		return b
	}
	return AppendColumns(b, []string{shapeColumn}, [][]byte{shape})
}

// AppendColumns appends per column the length of its name, the name, the length of its value + 1
// (0: NULL) and the value; lengths as unsigned LEB128. nil when there are no columns.
func AppendColumns(b []byte, names []string, values [][]byte) []byte {
	for i, value := range values {
		b = binary.AppendUvarint(b, uint64(len(names[i])))
		b = append(b, names[i]...)
		if value == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(value))+1)
		b = append(b, value...)
	}
	return b
}

// EachColumn calls each with every column's name and value, and returns the shape, nil for none;
// they alias b. It reports whether b is as AppendColumns and AppendShape write it, and stops where
// it is not.
func EachColumn(b []byte, each func(name, value []byte)) (shape []byte, ok bool) {
	for len(b) > 0 {
		name, rest, ok := cut(b, 0)
		if !ok {
			return shape, false
		}
		value, rest, ok := cut(rest, 1)
		if !ok {
			return shape, false
		}
		if string(name) == shapeColumn {
			shape = value
		} else {
			each(name, value)
		}
		b = rest
	}
	return shape, true
}

// cut reads a length, which is more too high, and that many bytes. A length below more is NULL.
func cut(b []byte, more uint64) (part, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, nil, false
	}
	b = b[n:]
	if size < more {
		return nil, b, true
	}
	size -= more
	if size > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:size:size], b[size:], true
}
