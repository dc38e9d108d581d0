package decode

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// nothing reports whether a Decode has left nothing behind.
func nothing(m Message) bool {
	return m.Kind == Other && m.Event == nil && m.Reason == "" && m.Table == nil && m.OID == 0 && m.Name == "" && m.Shape == nil
}

// TestTruncatedFrames: every frame that is cut anywhere is an error, and never leaves a row behind;
// so is one that is longer than its fields.
func TestTruncatedFrames(t *testing.T) {
	for _, wal := range append(sampleFrames(), beginFrame(0x3000, 9)) {
		inside := wal[0] != 'B'
		decode := func(wal []byte) error {
			var msg Message
			err := readyDecoder(t, inside).Decode(wal, &msg)
			if err != nil && !nothing(msg) {
				t.Errorf("frame %q: an error, but also %+v", wal, msg)
			}
			return err
		}
		if err := decode(wal); err != nil {
			t.Fatalf("frame %q: %v", wal, err)
		}
		for n := range wal {
			if decode(wal[:n:n]) == nil {
				t.Errorf("frame %q is accepted when cut after %d bytes", wal, n)
			}
		}
		if decode(append(bytes.Clone(wal), 0)) == nil {
			t.Errorf("frame %q is accepted with a byte behind it", wal)
		}
	}
}

// TestLyingLengths: a count or length that is beyond the frame is an error, and nothing is
// allocated for it.
func TestLyingLengths(t *testing.T) {
	column := append(be.AppendUint32([]byte{'I'}, 16400), 'N', 0, 7, 't', 0xff, 0xff, 0xff, 0xff)
	content := append(appendString(append([]byte{'M', 1}, make([]byte, 8)...), "p"), 0xff, 0xff, 0xff, 0xff)
	relation := append(appendString(appendString(be.AppendUint32([]byte{'R'}, 16400), "public"), "outbox"), 'd', 0xff, 0xff)
	for _, wal := range [][]byte{column, content, relation, {'T', 0xff, 0xff, 0xff, 0xff, 0}} {
		d := readyDecoder(t, true)
		var msg Message
		if err := d.Decode(wal, &msg); err == nil || !strings.Contains(err.Error(), "ends too early") {
			t.Errorf("frame %q: %v", wal, err)
		}
	}
}

// TestRowAliasesFrame: the row is not copied, and NULL and empty are distinguished.
func TestRowAliasesFrame(t *testing.T) {
	d := readyDecoder(t, true)
	wal := insertFrame(16400, text("1"), null, text(""), text("t"), text("payload"), null, null)
	var msg Message
	if err := d.Decode(wal, &msg); err != nil {
		t.Fatal(err)
	}
	ev := msg.Event
	if ev.Aggregate != nil || ev.Key == nil || len(ev.Key) != 0 {
		t.Errorf("aggregate %#v, key %#v: want nil for NULL, and empty but not nil", ev.Aggregate, ev.Key)
	}
	copy(wal[bytes.Index(wal, []byte("payload")):], "PAYLOAD")
	if string(ev.Payload) != "PAYLOAD" || cap(ev.Payload) != len(ev.Payload) {
		t.Errorf("payload %q of capacity %d does not alias the frame's bytes alone", ev.Payload, cap(ev.Payload))
	}
	if string(ev.Columns[0]) != "t" {
		t.Errorf("extra columns %q", ev.Columns)
	}
}

// TestByteaBuffer: hex is decoded into a buffer outside the frame, which can be decoded again, and
// one huge value is not kept.
func TestByteaBuffer(t *testing.T) {
	d := readyDecoder(t, true)
	huge := bytes.Repeat([]byte{0xab}, maxKept+1)
	for _, want := range [][]byte{{1, 2}, huge, huge, {}, {0xff}} {
		wal := insertFrame(16401, text("1"), null, null, null, text(`\x`+hex.EncodeToString(want)), null, null)
		before := bytes.Clone(wal)
		var msg Message
		if err := d.Decode(wal, &msg); err != nil {
			t.Fatal(err)
		}
		if msg.Event.Fault != nil || msg.Event.Payload == nil || !bytes.Equal(msg.Event.Payload, want) {
			t.Fatalf("payload of %d bytes: got %d, fault %v", len(want), len(msg.Event.Payload), msg.Event.Fault)
		}
		if !bytes.Equal(before, wal) {
			t.Fatal("the frame was changed")
		}
	}
	if cap(d.binary) > maxKept {
		t.Errorf("%d bytes are kept for the next row", cap(d.binary))
	}
}

// TestReleaseAtCommit: after a transaction nothing of its last row is kept, however large that was.
func TestReleaseAtCommit(t *testing.T) {
	d := readyDecoder(t, true)
	var msg Message
	huge := text(`\x` + strings.Repeat("ab", maxKept+1))
	message := `{"id": null, "type": "\t` + strings.Repeat("x", maxKept) + `"}`
	for _, wal := range [][]byte{
		insertFrame(16401, text("1"), null, null, text("t"), huge, null, null), insertFrame(16401, null, null, null, null, huge, null, null),
		messageFrame(true, "p", message), commitFrame(0x2000, 0x2030),
	} {
		if err := d.Decode(wal, &msg); err != nil {
			t.Fatal(err)
		}
	}
	if d.binary != nil || d.event.Payload != nil || d.event.Raw != nil || d.columns[0] != nil {
		t.Errorf("a buffer of %d bytes, event %+v are kept", cap(d.binary), d.event)
	}
	for i, m := range d.members {
		if m.value != nil || slices.ContainsFunc(m.values, func(v []byte) bool { return v != nil }) {
			t.Errorf("member %d keeps its frame", i)
		}
	}
	for i, v := range d.values {
		if v.data != nil {
			t.Errorf("column %d keeps its frame", i)
		}
	}
}

// TestTimes: microseconds since 2000 become the commit time of the row.
func TestTimes(t *testing.T) {
	want := time.Date(2025, 11, 3, 13, 20, 0, 123_000, time.UTC)
	micros := uint64(want.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds())
	d := readyDecoder(t, false)
	begin := beginFrame(0x2000, 8)
	be.PutUint64(begin[9:], micros)
	var msg Message
	if err := d.Decode(begin, &msg); err != nil {
		t.Fatal(err)
	}
	wal := insertFrame(16400, text("1"), null, null, null, null, null, null)
	if err := d.Decode(wal, &msg); err != nil || msg.Event.CommitTime != want || msg.Event.Time != want {
		t.Fatalf("row at %v and %v, %v; want %v", msg.Event.CommitTime, msg.Event.Time, err, want)
	}
}

// TestIndexDoesNotWrap: two changes of a transaction never share a position.
func TestIndexDoesNotWrap(t *testing.T) {
	d := readyDecoder(t, true)
	d.index = math.MaxUint32 - 1
	wal := insertFrame(16402, null, null, null, null, null, null, null)
	var msg Message
	if err := d.Decode(wal, &msg); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(wal, &msg); err == nil {
		t.Error("the index wrapped around")
	}
}

// accepting decodes a frame of the captured sessions, in which tables were replaced: each new one
// is accepted.
func (d *Decoder) accepting(wal []byte, msg *Message) error {
	err := d.Decode(wal, msg)
	if err != nil || msg.Kind != Replaced {
		return err
	}
	for i := range d.tables {
		if &d.tables[i] == msg.Table {
			d.tableOf[msg.OID] = i
		}
	}
	return d.Decode(wal, msg)
}

// TestPositionsAreTheSameWhateverTheConfiguration: each event of the captured sessions has one
// position, whether its table is relayed alone or with others, and with messages.
func TestPositionsAreTheSameWhateverTheConfiguration(t *testing.T) {
	positions := func(prefix string, names ...string) map[string]string {
		cfg := Config{Messages: Messages{Prefix: prefix}}
		for _, name := range names {
			cfg.Tables = append(cfg.Tables, Table{
				Schema: "public", Name: name,
				Mapping: Mapping{ID: Names{Any: []string{"id"}}, Payload: Names{Any: []string{"payload", "v"}}},
			})
		}
		d, got := New(cfg), map[string]string{}
		xid := uint32(0)
		for _, wal := range capturedFrames(t) {
			var msg Message
			if err := d.accepting(wal, &msg); err != nil {
				d.failed = nil
				continue
			}
			if msg.Kind == Begin {
				xid = msg.Xid
			}
			if msg.Kind == Row {
				got[fmt.Sprintf("%d/%d %s", xid, be.Uint32(wal[1:]), msg.Event.ID)] = msg.Event.Position.String()
			}
		}
		return got
	}
	alone, together, beside := positions("", "outbox"), positions("", "foreigner", "outbox", "t_json"), positions("inside", "outbox")
	if len(alone) < 20 || len(together) <= len(alone) || len(beside) <= len(alone) {
		t.Fatalf("%d rows alone, %d together, %d with messages", len(alone), len(together), len(beside))
	}
	for id, position := range alone {
		if together[id] != position || beside[id] != position {
			t.Errorf("%s: position %s alone, %s together, %s with messages", id, position, together[id], beside[id])
		}
	}
}

// TestStopIsBare: the caller finds code and reason without unwrapping, and the line is not
// prefixed.
func TestStopIsBare(t *testing.T) {
	d := readyDecoder(t, true)
	var msg Message
	err := d.Decode(relationFrame(16400, "public", "outbox", outboxColumns(23)), &msg)
	stop, ok := err.(*event.Stop) //nolint:errorlint // bare is what is tested
	if !ok || stop.Code != event.ExitMapping || stop.Reason != "mapping" {
		t.Fatalf("got %v", err)
	}
}

// TestNothingPassesAnError: a caller that overlooks an error gets it again, never the Commit behind
// the lost row.
func TestNothingPassesAnError(t *testing.T) {
	for _, bad := range [][]byte{{}, {'I'}, {'?'}, relationFrame(16400, "public", "outbox", outboxColumns(23))} {
		d := readyDecoder(t, true)
		var msg Message
		first := d.Decode(bad, &msg)
		if first == nil {
			t.Fatalf("frame %q is accepted", bad)
		}
		for _, wal := range sampleFrames() {
			if err := d.Decode(wal, &msg); !errors.Is(err, first) || !nothing(msg) {
				t.Fatalf("after %q, frame %q: %v, %+v", bad, wal, err, msg)
			}
		}
	}
}

// TestMisses: a hidden column matters when an event would have been made of it and no other name
// stands in. An event may be made of any of the names.
func TestMisses(t *testing.T) {
	table := Table{Mapping: Mapping{
		ID: Names{Any: []string{"id"}}, Key: Names{Any: []string{"id"}}, Payload: Names{Any: []string{"payload", "body"}},
		Traceparent: Names{Any: []string{"traceparent"}, Optional: true}, Type: Names{Any: []string{"absent"}},
	}}
	columns := []Column{{Name: "id"}, {Name: "payload"}, {Name: "body"}, {Name: "traceparent"}, {Name: "note"}, {Name: "extra"}}
	for hidden, want := range map[string]string{
		"": "", "note": "", "id": "id", "body": "", "payload": "", "body payload": "payload", "traceparent": "traceparent",
		"extra id payload": "id extra",
	} {
		if got := strings.Join(table.Misses(columns, strings.Fields(hidden), []string{"extra"}), " "); got != want {
			t.Errorf("without %q: misses %q, want %q", hidden, got, want)
		}
	}
	if got := strings.Join(table.Reads([]string{"note", "body", "extra", "id", "other"}, []string{"extra"}), " "); got != "id body extra" {
		t.Errorf("reads %q", got)
	}
}
