// Package kafkatest has what the tests of several packages below sink/kafka share.

package kafkatest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// TB is a *testing.T, or a rapid.T.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// Decoded is a record as kafka-go's decoder has it: independent of the encoder here.
type Decoded struct {
	Offset, Time int64 // ms
	Key, Value   []byte
	Headers      []protocol.Header
}

// DecodedBatch is a record batch with its records, which were read from it already.
type DecodedBatch struct {
	*protocol.RecordBatch
	Records []Decoded
}

// Decode reads a sealed batch with kafka-go's decoder, which checks the CRC too.
func Decode(t TB, sealed []byte) DecodedBatch {
	t.Helper()
	var set protocol.RecordSet
	if n, err := set.ReadFrom(bufio.NewReader(bytes.NewReader(sealed))); err != nil || n != int64(len(sealed)) {
		t.Fatalf("%d of %d bytes read: %v", n, len(sealed), err)
	}
	stream, ok := set.Records.(*protocol.RecordStream)
	if !ok || len(stream.Records) != 1 {
		t.Fatalf("not one batch: %T", set.Records)
	}
	batch, ok := stream.Records[0].(*protocol.RecordBatch)
	if !ok {
		t.Fatalf("not a batch: %T", stream.Records[0])
	}
	if set.Version != 2 {
		t.Errorf("magic %d", set.Version)
	}
	return DecodedBatch{batch, DecodeRecords(t, batch)}
}

// DecodeRecords reads all records in their order; an error ends the test.
func DecodeRecords(t TB, r protocol.RecordReader) (all []Decoded) {
	t.Helper()
	for {
		rec, err := r.ReadRecord()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		d := Decoded{Offset: rec.Offset, Time: rec.Time.UnixMilli(), Headers: rec.Headers}
		if d.Key, err = protocol.ReadAll(rec.Key); err != nil {
			t.Fatal(err)
		}
		if d.Value, err = protocol.ReadAll(rec.Value); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
}

// WantHeaders wants these headers, in this order.
func WantHeaders(t TB, got []protocol.Header, want ...protocol.Header) {
	t.Helper()
	same := func(a, b protocol.Header) bool {
		return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("headers\n%q, want\n%q", got, want)
	}
}

// HugeBytes is size bytes that take no memory until they are read.
func HugeBytes(t testing.TB, size int) []byte {
	t.Helper()
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

// Event is an ordinary event, the i-th of a transaction.
func Event(i int, key string) *event.Event {
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

// Template parses a template; an error ends the test.
func Template(t testing.TB, text string) sink.Template {
	t.Helper()
	tpl, err := sink.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

// ConnectRecords is the encoder of Debezium's records by these options, and the topic that is
// shown; the extra column of its events is part.
func ConnectRecords(t testing.TB, options map[string]string, copies sink.Encoder) (sink.Encoder, sink.Template) {
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
	return encoder, Template(t, topic)
}

// OutboxRow is a row of a table of which no column is NULL but those that are nil.
func OutboxRow(id, route, key, payload, part []byte) *event.Event {
	ev := Event(1, "")
	ev.ID, ev.Aggregate, ev.Key, ev.Payload = id, route, key, payload
	ev.Shape, ev.Columns = shapeOfRows, [][]byte{part}
	return ev
}

var shapeOfRows = ShapeOfRows(false)

// ShapeOfRows is that of their table; the key's column may be NOT NULL, which shows in a key with
// its schema.
func ShapeOfRows(notNull bool) *event.Shape {
	text := func(name string, notNull bool) event.ColumnShape {
		return event.ColumnShape{Name: name, TypeOID: pgtype.TextOID, Typmod: -1, NotNull: notNull}
	}
	return &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{
		text("id", false), text("aggregatetype", false), text("aggregateid", notNull), text("payload", false),
		{Name: "part", TypeOID: pgtype.Int4OID, Typmod: -1},
	}}
}
