package debezium

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// What we cannot render as Debezium does is refused, by the type's name and the column's.
func TestTypesThatAreRefusedByName(t *testing.T) {
	infinity := "'infinity'::timestamp without time zone"
	for _, c := range []struct {
		shape event.ColumnShape
		want  string
	}{
		{event.ColumnShape{Name: "took", TypeOID: pgtype.IntervalOID, Typmod: -1}, `column "took": type interval is not supported`},
		{event.ColumnShape{Name: "tags", TypeOID: pgtype.TextArrayOID, Typmod: -1}, `column "tags": type _text is not supported`},
		{event.ColumnShape{Name: "kind", TypeOID: 4191, Typmod: -1}, `column "kind": its type is not supported`},
		{event.ColumnShape{Name: "set", TypeOID: 16_400, Typmod: -1, Type: "hstore"}, `column "set": type hstore is not supported`},
		{event.ColumnShape{Name: "n", TypeOID: pgtype.NumericOID, Typmod: 4 + 5<<16 + 2046}, `column "n": type numeric with a negative scale`},
		{event.ColumnShape{Name: "at", TypeOID: pgtype.TimestampOID, Typmod: -1, Default: &infinity}, `column "at": a default of infinity`},
	} {
		if _, err := connect.NewColumn(c.shape, connect.Modes{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.shape, err, c.want)
		}
	}
}

// A type that an earlier version found dropped, and kept no name of, is text: a dead letter of it
// can be replayed. A char(n) has the blanks that an event has not, by characters.
func TestTypesThatAreText(t *testing.T) {
	for _, c := range []struct {
		shape      event.ColumnShape
		text, want string
	}{
		{event.ColumnShape{Name: "kind", TypeOID: 16_400, Typmod: -1}, "created", "created"},
		{event.ColumnShape{Name: "code", TypeOID: pgtype.BPCharOID, Typmod: 4 + 4}, "é", "é   "},
		{event.ColumnShape{Name: "code", TypeOID: pgtype.BPCharOID, Typmod: 4 + 4}, "full", "full"},
		{event.ColumnShape{Name: "code", TypeOID: pgtype.BPCharOID, Typmod: -1}, "any", "any"},
	} {
		scratch := []byte("before")
		v, scratch, err := columnOf(t, c.shape, connect.Modes{}).Value(scratch, []byte(c.text))
		if err != nil || string(v.Data) != c.want || !strings.HasPrefix(string(scratch), "before") {
			t.Errorf("%+v: %q is %q (%v), want %q", c.shape, c.text, v.Data, err, c.want)
		}
	}
}

// A row's fault names the column, and never the value: it may be anybody's.
func TestFaultsDoNotTellTheValue(t *testing.T) {
	for _, oid := range []uint32{pgtype.Int2OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.NumericOID, pgtype.ByteaOID, pgtype.DateOID, pgtype.TimeOID, pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.TimetzOID} {
		c := columnOf(t, event.ColumnShape{Name: "c", TypeOID: oid, Typmod: -1}, connect.Modes{})
		_, _, err := c.Value(nil, []byte("secret"))
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), `column "c"`) {
			t.Errorf("type %d: %v", oid, err)
		}
	}
}

// The payload of an event comes decoded where it is bytea; it is the same value as that of the
// text.
func TestByteaThatIsDecodedAlready(t *testing.T) {
	for _, mode := range connect.BinaryModes {
		c := columnOf(t, event.ColumnShape{Name: "payload", TypeOID: pgtype.ByteaOID, Typmod: -1}, connect.Modes{Binary: mode})
		for _, data := range [][]byte{nil, {}, {0, 0xFF, 'a'}} {
			var text []byte
			if data != nil {
				text = append([]byte(`\x`), hexOf(data)...)
			}
			v, _, err := c.Binary(nil, data)
			if err != nil {
				t.Fatal(err)
			}
			same := value(t, c, text)
			if v.Kind != same.Kind || !bytes.Equal(v.Data, same.Data) {
				t.Errorf("%s: %x gave %+v, its text %+v", mode, data, v, same)
			}
		}
	}
	if _, _, err := columnOf(t, event.ColumnShape{TypeOID: pgtype.TextOID}, connect.Modes{}).Binary(nil, []byte("x")); err == nil {
		t.Error("a text is no bytea")
	}
}

func hexOf(data []byte) (out []byte) {
	for _, b := range data {
		out = append(out, "0123456789abcdef"[b>>4], "0123456789abcdef"[b&15])
	}
	return out
}

// A tombstone has no schema and no value: every converter makes null of it. A null that has a
// schema is one only without JSON.
func TestNulls(t *testing.T) {
	for name, c := range converters {
		if out, null, err := c.Append([]byte("x"), math.MaxInt, nil, connect.Value{}); err != nil || !null || string(out) != "x" {
			t.Errorf("%s: a tombstone is %q, %v, %v", name, out, null, err)
		}
	}
	required := &connect.Schema{Type: connect.String}
	if _, _, err := (JSONConverter{}).Append(nil, math.MaxInt, required, connect.Value{}); err == nil {
		t.Error("JSON of a null that may not be one")
	}
	filled := connect.TextValue([]byte("d"))
	optional := &connect.Schema{Type: connect.String, Optional: true, Default: &filled}
	if got := answer(JSONConverter{ReplaceNulls: true}, optional, connect.Value{}); got != `="d"` {
		t.Errorf("replace.null.with.default: %s", got)
	}
	if got := answer(JSONConverter{}, optional, connect.Value{}); got != "=null" {
		t.Errorf("without replace.null.with.default: %s", got)
	}
}

// What ends Debezium is text to us, which only StringConverter takes: the other converters make a
// dead letter of it.
func TestExpansionsThatEndDebezium(t *testing.T) {
	for _, text := range []string{`[1]`, `{"a":9223372036854775808}`, `{"a":[{"x":1},{"x":2147483648}]}`, `{"a":[{"x":2147483648},{"x":1}]}`} {
		e := connect.Expander{Name: "payload"}
		x, err := e.Expand([]byte(text), anyBudget())
		if err != nil || x.Unchanged {
			t.Fatalf("%s: %+v, %v", text, x, err)
		}
		if out, _, err := (JSONConverter{}).Append(nil, math.MaxInt, x.Schema, x.Value); err == nil {
			t.Errorf("of %s there is JSON: %s", text, out)
		}
		if out, _, err := (StringConverter{}).Append(nil, math.MaxInt, x.Schema, x.Value); err != nil || string(out) != text {
			t.Errorf("the text of %s is %s, %v", text, out, err)
		}
	}
}
