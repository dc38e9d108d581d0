package decode

import (
	"bytes"
	"strings"
	"testing"
)

// stream decodes the frames that come before rows, and returns the decoder and an insert of seven
// columns.
func stream(t testing.TB, payloadType uint32, payload string) (*Decoder, []byte) {
	t.Helper()
	d := New(Config{Tables: []Table{outboxTable()}})
	var msg Message
	for _, wal := range [][]byte{beginFrame(0x1000, 7), relationFrame(16400, "public", "outbox", outboxColumns(payloadType))} {
		if err := d.Decode(wal, &msg); err != nil {
			t.Fatal(err)
		}
	}
	return d, insertFrame(16400, text("2f1b4f0e-8a53-4b52-9b1f-0c6a1d1f7a11"), text("order"), text("customer-4711"), text("created"),
		text(payload), text("2025-11-20 12:25:01.123456+00"), text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
}

func BenchmarkInsert(b *testing.B) {
	for _, c := range []struct {
		name    string
		oid     uint32
		payload string
	}{
		{"jsonb 1 KiB", 3802, string(bytes.Repeat([]byte("x"), 1024))},
		{"bytea 1 KiB", 17, `\x` + string(bytes.Repeat([]byte("ab"), 1024))},
	} {
		b.Run(c.name, func(b *testing.B) {
			d, wal := stream(b, c.oid, c.payload)
			var msg Message
			b.ReportAllocs()
			for b.Loop() {
				d.index = 0
				if err := d.Decode(wal, &msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMessage(b *testing.B) {
	d := readyDecoder(b, true)
	wal := messageFrame(true, "p", strings.Replace(sampleMessage, "[1]", `"`+strings.Repeat("x", 1024)+`"`, 1))
	var msg Message
	b.ReportAllocs()
	for b.Loop() {
		d.index = 0
		if err := d.Decode(wal, &msg); err != nil || msg.Event.Fault != nil {
			b.Fatal(err, msg.Event.Fault)
		}
	}
}

func TestInsertAllocatesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		oid     uint32
		payload string
	}{
		"jsonb": {3802, `{"a": 1}`},
		"bytea": {17, `\xdeadbeef`},
	} {
		t.Run(name, func(t *testing.T) {
			d, wal := stream(t, c.oid, c.payload)
			var msg Message
			allocs := testing.AllocsPerRun(1000, func() {
				if err := d.Decode(wal, &msg); err != nil || msg.Kind != Row || msg.Event.Fault != nil {
					t.Fatal(err, msg)
				}
			})
			if allocs != 0 {
				t.Errorf("%v allocations for an insert, want none", allocs)
			}
		})
	}
}

// TestReplacedColumnAllocatesNothing: nor does a row whose parts are taken from several columns.
func TestReplacedColumnAllocatesNothing(t *testing.T) {
	d := readyDecoder(t, true)
	wal := insertFrame(16405, null, text("2"), null, text("k"), null, text("{}"), null)
	var msg Message
	allocs := testing.AllocsPerRun(1000, func() {
		if err := d.Decode(wal, &msg); err != nil || msg.Kind != Row || msg.Event.Fault != nil || string(msg.Event.Key) != "k" {
			t.Fatal(err, msg)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for an insert, want none", allocs)
	}
}

// TestMessageAllocatesNothing: nothing but what encoding/json takes from its pool, which the race
// detector empties at random.
func TestMessageAllocatesNothing(t *testing.T) {
	d := readyDecoder(t, true)
	wal := messageFrame(true, "p", sampleMessage)
	var msg Message
	allocs := testing.AllocsPerRun(1000, func() {
		if err := d.Decode(wal, &msg); err != nil || msg.Kind != Row || msg.Event.Fault != nil {
			t.Fatal(err, msg)
		}
	})
	if allocs > 1 {
		t.Errorf("%v allocations for a message, want none", allocs)
	}
}

func outboxTable() Table {
	one := func(name string) Names { return Names{Any: []string{name}} }
	return Table{Schema: "public", Name: "outbox", Mapping: Mapping{
		ID: one("id"), Aggregate: one("aggregatetype"), Key: one("aggregateid"), Type: one("type"), Payload: one("payload"),
		Timestamp: Names{Any: []string{"created_at"}, Optional: true}, Traceparent: Names{Any: []string{"traceparent"}, Optional: true},
		Headers: Names{Any: []string{"headers"}, Optional: true},
	}}
}

func outboxColumns(payloadType uint32) []Column {
	return []Column{
		{Name: "id", TypeOID: 2950},
		{Name: "aggregatetype", TypeOID: 25},
		{Name: "aggregateid", TypeOID: 25},
		{Name: "type", TypeOID: 25},
		{Name: "payload", TypeOID: payloadType},
		{Name: "created_at", TypeOID: 1184},
		{Name: "traceparent", TypeOID: 25},
	}
}
