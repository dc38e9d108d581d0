package inflight

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Every byte of an event is charged for and copied, whichever field it is in: what only aliased the
// reader's frame would be another row's by the time it is sent.
func TestFillCopiesEveryField(t *testing.T) {
	ev := event.Event{Columns: [][]byte{[]byte("column 0"), nil, {}}}
	size := len("column 0")
	fields := reflect.ValueOf(&ev).Elem()
	var frame [][]byte
	for i := range fields.NumField() {
		if f := fields.Field(i); f.Type() == reflect.TypeFor[[]byte]() {
			text := []byte(fields.Type().Field(i).Name)
			f.SetBytes(text)
			frame = append(frame, text)
			size += len(text)
		}
	}
	if len(frame) < 8 || ev.Size() != size {
		t.Fatalf("%d fields; the size is %d, want %d", len(frame), ev.Size(), size)
	}
	var it Event
	it.Fill(&ev, make([]byte, ev.Size()), nil)
	want := fmt.Sprintf("%+q", it.Event.Columns)
	for _, text := range append(frame, ev.Columns[0]) {
		copy(text, bytes.Repeat([]byte{'!'}, len(text)))
	}
	got := reflect.ValueOf(&it.Event).Elem()
	for i := range got.NumField() {
		name := got.Type().Field(i).Name
		if f := got.Field(i); f.Type() == reflect.TypeFor[[]byte]() && string(f.Bytes()) != name {
			t.Errorf("%s is %q after the frame was used again", name, f.Bytes())
		}
	}
	if now := fmt.Sprintf("%+q", it.Event.Columns); now != want || it.Event.Columns[1] != nil || it.Event.Columns[2] == nil {
		t.Errorf("columns %s, want %s", now, want)
	}
}
