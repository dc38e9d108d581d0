package decode

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// leftOut is a value of that size that was left out.
func leftOut(size uint32) value { return value{be.AppendUint32(nil, size), LeftOutValue} }

// TestLeftOut: an event that is made of a value that was left out tells the size of its row, and
// has what else there is of it, in its place in the order. Whatever else is wrong with the row is
// left to a replay. Any other row is what it is without the limit.
func TestLeftOut(t *testing.T) {
	d := readyDecoder(t, true)
	d.leftOut = true
	for name, c := range map[string]struct {
		row     []value
		lacks   int64 // 0: nothing
		id, key string
		ordered bool
		raw     string
	}{
		"payload":           {[]value{text("1"), text("a"), text("k"), text("t"), leftOut(1000), null, null}, 1004, "1", "k", true, ""},
		"key":               {[]value{text("1"), text("a"), leftOut(5000), text("t"), text("{}"), null, null}, 5005, "1", "", false, ""},
		"id":                {[]value{leftOut(5000), text("a"), text("k"), text("t"), text("{}"), null, null}, 5005, "", "k", true, ""},
		"an extra column":   {[]value{text("1"), text("a"), text("k"), leftOut(5000), text("{}"), null, null}, 5005, "1", "k", true, ""},
		"payload and no id": {[]value{null, text("a"), text("k"), text("t"), leftOut(1000), null, null}, 1003, "", "k", true, ""},
		"two":               {[]value{text("1"), leftOut(1 << 31), text("k"), text("t"), leftOut(1 << 31), null, null}, 1<<32 + 3, "1", "k", true, ""},
	} {
		var msg Message
		if err := d.Decode(insertFrame(16400, c.row...), &msg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ev := msg.Event
		if ev.LeftOut == nil || *ev.LeftOut != (event.LeftOut{Table: "public.outbox", Bytes: c.lacks}) || ev.Fault != nil || ev.Raw != nil {
			t.Errorf("%s: lacks %+v, fault %v; want %d bytes", name, ev.LeftOut, ev.Fault, c.lacks)
		}
		if string(ev.ID) != c.id || string(ev.Key) != c.key || ev.Ordered != c.ordered {
			t.Errorf("%s: id %q, key %q, ordered %t", name, ev.ID, ev.Key, ev.Ordered)
		}
	}

	var msg Message
	message := append([]byte{LeftOutMessage}, messageFrame(true, "p", "")[1:]...)
	be.PutUint32(message[len(message)-4:], 70_000)
	if err := d.Decode(message, &msg); err != nil || msg.Kind != Row || *msg.Event.LeftOut != (event.LeftOut{Bytes: 70_000}) || msg.Event.ID != nil || msg.Event.Ordered {
		t.Errorf("a message: %v, %+v", err, msg.Event)
	}
	first := msg.Event.Position.Index
	if err := d.Decode(insertFrame(16400, text("1"), null, text("k"), text("t"), text("{}"), null, null), &msg); err != nil || msg.Event.LeftOut != nil || msg.Event.Position.Index != first+1 {
		t.Errorf("the row behind it: %v, %+v", err, msg.Event)
	}
	copy(message[bytes.Index(message, []byte("p\x00")):], "q")
	if err := d.Decode(message, &msg); err != nil || msg.Kind != Skipped || msg.Reason != "message" {
		t.Errorf("a message of another prefix: %v, %+v", err, msg)
	}
	if err := d.Decode(insertFrame(16402, leftOut(1), null, null, null, null, null, null), &msg); err != nil || msg.Kind != Foreign {
		t.Errorf("a row of another table: %v, %+v", err, msg)
	}
}

// TestNotLeftOut: without a limit nobody leaves a value out, and such a frame is a damaged one.
func TestNotLeftOut(t *testing.T) {
	for _, wal := range [][]byte{
		insertFrame(16400, text("1"), null, text("k"), text("t"), leftOut(1000), null, null),
		append([]byte{LeftOutMessage}, messageFrame(true, "p", "")[1:]...),
	} {
		var msg Message
		if err := readyDecoder(t, true).Decode(wal, &msg); err == nil || !nothing(msg) || !strings.Contains(err.Error(), "decode frame of type") {
			t.Errorf("frame %q: %v", wal, err)
		}
	}
}
