package postgres

import (
	"reflect"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The shape is stored as earlier versions store it, as an extra column of this name: a row of
// theirs is read, wherever the shape stands in it, and they read a row of ours. What cannot be read
// costs the row nothing but its shape.
func TestShapeIsStoredAsBefore(t *testing.T) {
	text := `{"schema":"public","table":"outbox","columns":[{"name":"id","oid":2950,"mod":-1}]}`
	shape := &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{{Name: "id", TypeOID: 2950, Typmod: -1}}}
	before := func(text []byte) []byte { // as they write it: the names sorted
		return dlq.AppendColumns(nil, []string{"a", "cdc_relay.shape", "tenant"}, [][]byte{[]byte("A"), text, []byte("t")})
	}
	var s shapes
	ours := dlq.AppendShape(dlq.AppendColumns(nil, []string{"a", "tenant"}, [][]byte{[]byte("A"), []byte("t")}), s.text(shape))
	if want := dlq.AppendColumns(nil, []string{"a", "tenant", "cdc_relay.shape"}, [][]byte{[]byte("A"), []byte("t"), []byte(text)}); string(ours) != string(want) {
		t.Errorf("it is stored as %q, want %q", ours, want)
	}
	for name, c := range map[string]struct {
		stored []byte
		want   *event.Shape
	}{
		"ours": {ours, shape}, "theirs": {before([]byte(text)), shape}, "theirs of a message": {before(nil), nil}, "of a later version": {before([]byte(`{"schema":1}`)), nil},
	} {
		for range 2 { // the second time it is known
			columns, text, err := readColumns(c.stored, []string{"tenant", "a"})
			if got := s.of(text); err != nil || !reflect.DeepEqual(got, c.want) || string(columns[0]) != "t" || string(columns[1]) != "A" {
				t.Errorf("%s: %+v, %q, %v", name, got, columns, err)
			}
		}
	}
	if first, second := s.of([]byte(text)), s.of([]byte(text)); first != second {
		t.Error("two rows of a table have two shapes")
	}
	for i := range 2 * maxShapes {
		s.of(event.AppendShape(nil, &event.Shape{Columns: []event.ColumnShape{{Typmod: int32(i)}}}))
		s.text(&event.Shape{})
	}
	if len(s.read) > maxShapes || len(s.texts) > maxShapes {
		t.Errorf("%d and %d shapes are kept", len(s.read), len(s.texts))
	}
	if _, _, err := readColumns(ours[:len(ours)-1], nil); err == nil {
		t.Error("a row that is cut is read")
	}
}
