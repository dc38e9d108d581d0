// What pglogrepl makes of a frame, to compare with what the decoder made of it.

package decode

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// oracleRefuses are the shortest valid frames that pglogrepl takes for truncated: an insert of no
// columns, a truncate of no tables.
func oracleRefuses(wal []byte) bool {
	return wal[0] == 'I' && len(wal) == 8 || wal[0] == 'T' && len(wal) == 6
}

// compareWithOracle says how msg, which d decoded from wal, differs from pglogrepl's reading.
// pglogrepl checks no bounds and allocates what a length field says, so it is asked only about
// frames that the decoder accepted.
func compareWithOracle(d *Decoder, wal []byte, msg *Message) error {
	if oracleRefuses(wal) {
		return nil
	}
	parsed, err := pglogrepl.Parse(wal)
	if err != nil {
		return fmt.Errorf("accepted, but pglogrepl says: %w", err)
	}
	switch m := parsed.(type) {
	case *pglogrepl.BeginMessage:
		if msg.Kind != Begin || msg.Xid != m.Xid || msg.Commit != m.FinalLSN || inRange(wal[9:]) && !msg.CommitTime.Equal(m.CommitTime) {
			return fmt.Errorf("got %+v at %s, want %+v", msg, msg.CommitTime, m)
		}
	case *pglogrepl.CommitMessage:
		if msg.Kind != Commit || msg.Commit != m.CommitLSN || msg.End != m.TransactionEndLSN {
			return fmt.Errorf("got %+v, want %+v", msg, m)
		}
	case *pglogrepl.RelationMessage:
		return compareRelation(d.relations[m.RelationID], m)
	case *pglogrepl.InsertMessage:
		if msg.Kind == Row {
			return compareRow(d, msg, m)
		}
	case *pglogrepl.LogicalDecodingMessage:
		// of the first flag alone, whatever flags there may come to be
		m.Transactional = wal[1]&1 == 1
		return compareMessage(d, msg, m)
	}
	if (msg.Kind == Row) != (wal[0] == 'I' && d.relations[be.Uint32(wal[1:])].table != nil) {
		return fmt.Errorf("got kind %d for a frame of type %q", msg.Kind, wal[0])
	}
	return nil
}

// inRange reports whether the time is one that pglogrepl, which counts in nanoseconds, can hold.
func inRange(b []byte) bool {
	micros := int64(be.Uint64(b))
	return -1<<52 < micros && micros < 1<<52
}

func compareRelation(rel *relation, m *pglogrepl.RelationMessage) error {
	if rel == nil || rel.columns != len(m.Columns) {
		return fmt.Errorf("got %+v, want %d columns", rel, len(m.Columns))
	}
	for i, name := range rel.names {
		if name != m.Columns[i].Name {
			return fmt.Errorf("column %d: got %q, want %q", i, name, m.Columns[i].Name)
		}
	}
	return nil
}

// compareMessage: pglogrepl reads the frame, encoding/json the content.
func compareMessage(d *Decoder, msg *Message, m *pglogrepl.LogicalDecodingMessage) error {
	switch {
	case m.Prefix != d.messagePrefix:
		return wantSkipped(msg, "message")
	case !m.Transactional:
		return wantSkipped(msg, NonTransactional)
	case msg.Kind != Row:
		return fmt.Errorf("got %+v, want an event", msg)
	}
	return compareContent(d, msg.Event, m.Content)
}

func wantSkipped(msg *Message, reason string) error {
	if msg.Kind != Skipped || msg.Reason != reason || msg.Event != nil {
		return fmt.Errorf("got %+v, want it skipped as %s", msg, reason)
	}
	return nil
}

func compareRow(d *Decoder, msg *Message, m *pglogrepl.InsertMessage) error {
	rel, ev := d.relations[m.RelationID], msg.Event
	type named struct {
		names []string
		got   []byte
	}
	mapped := &rel.table.Mapping
	parts := map[string]named{
		"id": {mapped.ID.Any, ev.ID}, "aggregate": {mapped.Aggregate.Any, ev.Aggregate}, "key": {mapped.Key.Any, ev.Key}, "type": {mapped.Type.Any, ev.Type},
		"traceparent": {mapped.Traceparent.Any, ev.Traceparent}, "headers": {mapped.Headers.Any, ev.Headers}, "payload": {mapped.Payload.Any, ev.Payload},
	}
	for i, name := range d.extraColumns {
		parts[fmt.Sprint("extra ", i)] = named{[]string{name}, ev.Columns[i]}
	}
	for name, part := range parts {
		column := oracleColumn(m.Tuple, rel.names, part.names)
		if column == nil {
			if part.got != nil {
				return fmt.Errorf("%s: got %q without a column", name, part.got)
			}
			continue
		}
		want, ok := oracleValue(column, name == "payload" && ev.PayloadKind == event.Binary)
		if !ok && ev.Fault == nil {
			return fmt.Errorf("%s cannot be decoded, but the event has no fault", name)
		}
		if (part.got == nil) != (want == nil) || !bytes.Equal(part.got, want) {
			return fmt.Errorf("%s: got %q, want %q", name, part.got, want)
		}
	}
	if len(ev.ID) == 0 && ev.Fault == nil {
		return errors.New("row without an id has no fault")
	}
	if err := compareRaw(ev, m.Tuple, rel.names); err != nil {
		return err
	}
	return compareOrder(ev)
}

func compareOrder(ev *event.Event) error {
	if ev.Ordered != (len(ev.Key) > 0 && ev.Fault == nil) {
		return fmt.Errorf("ordered is %v for key %q, fault %w", ev.Ordered, ev.Key, ev.Fault)
	}
	if !ev.Ordered && ev.Hash != event.HashPosition(ev.Position) {
		return errors.New("an event without an order does not have the hash of its position")
	}
	return nil
}

// compareRaw: a row with a fault, and no other, carries all that pglogrepl reads of it.
func compareRaw(ev *event.Event, tuple *pglogrepl.TupleData, names []string) error {
	if ev.Fault == nil {
		if ev.Raw != nil {
			return fmt.Errorf("raw %q without a fault", ev.Raw)
		}
		return nil
	}
	want := map[string]any{}
	for i, c := range tuple.Columns {
		switch {
		case c.DataType == 'n':
			want[names[i]] = nil
		case c.DataType == 'u':
			want[names[i]+":unsent"] = nil
		case c.DataType == 't' && utf8.Valid(c.Data):
			want[names[i]] = string(c.Data)
		default:
			want[names[i]+":hex"] = hex.EncodeToString(c.Data)
		}
	}
	var got map[string]any
	if err := json.Unmarshal(ev.Raw, &got); err != nil {
		return fmt.Errorf("raw %q: %w", ev.Raw, err)
	}
	if !utf8.Valid(ev.Raw) || !reflect.DeepEqual(got, want) {
		return fmt.Errorf("raw %q, want %q", got, want)
	}
	return nil
}

// oracleColumn is the first of the wanted columns that is not NULL, a NULL when all are, nil when
// there is none.
func oracleColumn(tuple *pglogrepl.TupleData, names, wanted []string) (column *pglogrepl.TupleDataColumn) {
	for _, name := range wanted {
		for i, c := range tuple.Columns {
			if names[i] == name && (column == nil || column.DataType == 'n') {
				column = c
			}
		}
	}
	return column
}

// oracleValue is the column's value; ok is false when it has none that can be decoded.
func oracleValue(c *pglogrepl.TupleDataColumn, fromHex bool) (v []byte, ok bool) {
	switch c.DataType {
	case 'n':
		return nil, true
	case 't':
		if !fromHex {
			return c.Data, true
		}
		digits, ok := strings.CutPrefix(string(c.Data), `\x`)
		raw, err := hex.DecodeString(digits)
		if !ok || err != nil {
			return nil, false
		}
		return raw, true
	default:
		return nil, false
	}
}
