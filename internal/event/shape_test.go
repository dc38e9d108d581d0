package event

import (
	"reflect"
	"testing"
)

func TestShapeComesBack(t *testing.T) {
	text := "'new'::text"
	s := &Shape{Schema: "public", Table: "out\"box", Columns: []ColumnShape{
		{Name: "id", TypeOID: 2950, Typmod: -1, NotNull: true},
		{Name: "type", TypeOID: 1<<32 - 1, Typmod: 259, Default: &text, Labels: []string{"a", "<ü>"}},
		{Name: "tags", TypeOID: 16400, Typmod: -1, Labels: []string{}, Type: "hstore"},
	}}
	got, err := ParseShape(AppendShape(nil, s))
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v comes back as %+v, %v", s, got, err)
	}
	if s, err := ParseShape([]byte("\x01")); err == nil {
		t.Errorf("it is taken for the shape %+v", s)
	}
}
