package event

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestShapeComesBack(t *testing.T) {
	t.Parallel()
	column := rapid.Custom(func(t *rapid.T) ColumnShape {
		c := ColumnShape{
			Name: rapid.String().Draw(t, "name"), TypeOID: rapid.Uint32().Draw(t, "type"), Typmod: rapid.Int32().Draw(t, "modifier"),
			NotNull: rapid.Bool().Draw(t, "not null"),
		}
		if rapid.Bool().Draw(t, "has default") {
			text := rapid.String().Draw(t, "default")
			c.Default = &text
		}
		if rapid.Bool().Draw(t, "is an enum") {
			c.Labels = rapid.SliceOfN(rapid.String(), 0, 4).Draw(t, "labels")
		}
		if rapid.Bool().Draw(t, "has a type's name") {
			c.Type = rapid.String().Draw(t, "type's name")
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		s := &Shape{
			Schema: rapid.String().Draw(t, "schema"), Table: rapid.String().Draw(t, "table"),
			Columns: rapid.SliceOfN(column, 0, 8).Draw(t, "columns"),
		}
		encoded := AppendShape(nil, s)
		got, err := ParseShape(encoded)
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("%+v comes back as %+v, %v", s, got, err)
		}
		// One that was cut, or is longer than it says, is refused: nothing may be read that was not
		// written.
		cut := rapid.IntRange(0, len(encoded)-1).Draw(t, "cut")
		if _, err := ParseShape(encoded[:cut]); err == nil {
			t.Fatalf("the first %d bytes of %d are taken for a shape", cut, len(encoded))
		}
		if _, err := ParseShape(append(encoded, 0)); err == nil {
			t.Fatal("a byte behind its end is passed over")
		}
	})
}

func FuzzParseShape(f *testing.F) {
	text := "'new'::text"
	f.Add(AppendShape(nil, &Shape{Schema: "public", Table: "outbox", Columns: []ColumnShape{{"id", 2950, -1, true, nil, nil, ""}, {"type", 25, -1, false, &text, []string{"a"}, ""}, {"tags", 16400, -1, false, nil, nil, "hstore"}}}))
	f.Add([]byte{1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseShape(b)
		if err != nil {
			return
		}
		again, err := ParseShape(AppendShape(nil, s))
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("%q is read as %+v, which is written as something else: %+v, %v", bytes.Clone(b), s, again, err)
		}
	})
}
