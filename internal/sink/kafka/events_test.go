// Events, and the records that are wanted of them.

package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// plainEvent is an ordinary event, the i-th of a transaction.
func plainEvent(i int, key string) *event.Event {
	ev := &event.Event{
		Position:    event.Position{Commit: pglogrepl.LSN(0x1a2b3c4d), Index: uint32(i)},
		Time:        time.UnixMilli(1_700_000_000_000 + int64(i)),
		ID:          fmt.Appendf(nil, "00000000-0000-4000-8000-%012d", i),
		Aggregate:   []byte("order"),
		Type:        []byte("OrderCreated"),
		Payload:     []byte(`{"order": 1}`),
		Traceparent: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
		Hash:        uint64(i) * 0x9e3779b97f4a7c15,
	}
	if key != "" {
		ev.Key, ev.Ordered = []byte(key), true
	}
	return ev
}

// parseTemplate parses a template; an error ends the test.
func parseTemplate(t testing.TB, text string) sink.Template {
	t.Helper()
	tpl, err := sink.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// connectRecords is the encoder of Debezium's records by these options, and the topic that is
// shown; the extra column of its events is part.
func connectRecords(t testing.TB, options map[string]string, copies sink.Encoder) (sink.Encoder, sink.Template) {
	t.Helper()
	all := map[string]string{
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"table.fields.additional.placement": "part:partition",
	}
	for name, value := range options {
		all[name] = value
	}
	records, faults := debezium.Parse(debezium.Connect, all)
	if len(faults) > 0 {
		t.Fatalf("%+v", faults)
	}
	topic, _, _ := records.Templates()
	encoder, err := records.Encoder(records.Columns().Extra, copies)
	if err != nil {
		t.Fatal(err)
	}
	return encoder, parseTemplate(t, topic)
}

// outboxRow is a row of a table of which no column is NULL but those that are nil.
func outboxRow(id, route, key, payload, part []byte) *event.Event {
	ev := plainEvent(1, "")
	ev.ID, ev.Aggregate, ev.Key, ev.Payload = id, route, key, payload
	ev.Shape, ev.Columns = shapeOfRows, [][]byte{part}
	return ev
}

var shapeOfRows = shapesOfRows(false)

// shapesOfRows is that of their table; the key's column may be NOT NULL, which shows in a key with
// its schema.
func shapesOfRows(notNull bool) *event.Shape {
	text := func(name string, notNull bool) event.ColumnShape {
		return event.ColumnShape{Name: name, TypeOID: pgtype.TextOID, Typmod: -1, NotNull: notNull}
	}
	return &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{
		text("id", false), text("aggregatetype", false), text("aggregateid", notNull), text("payload", false),
		{Name: "part", TypeOID: pgtype.Int4OID, Typmod: -1},
	}}
}
