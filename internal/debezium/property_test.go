package debezium

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// The expansion against encoding/json: the same document, but for nulls and empty arrays, which are
// left out.
func TestExpansionKeepsTheDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := connect.Expander{Name: "payload", NullsAsBytes: rapid.Bool().Draw(t, "nulls"), EmptyAsString: rapid.Bool().Draw(t, "empty")}
		text, err := json.Marshal(document(4).Draw(t, "document"))
		if err != nil {
			t.Fatal(err)
		}
		x, err := e.Expand(text, anyBudget())
		if err != nil || x.Unchanged || x.Value.Kind != connect.Record {
			t.Fatalf("%s: %+v, %v", text, x, err)
		}
		out, _, err := JSONConverter{}.Append(nil, math.MaxInt, x.Schema, x.Value)
		if err != nil {
			t.Fatal(err)
		}
		var got, want map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		prune(want, e.NullsAsBytes, e.EmptyAsString)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s became %s", text, out)
		}
		if out, _, err = (JSONConverter{Schemas: true}).Append(nil, math.MaxInt, x.Schema, x.Value); err != nil || !json.Valid(out) {
			t.Fatalf("with schema: %s, %v", out, err)
		}
	})
}

// document generates objects whose arrays are of one type each.
func document(depth int) *rapid.Generator[map[string]any] {
	scalars := []*rapid.Generator[any]{
		rapid.Custom(func(t *rapid.T) any { return rapid.String().Draw(t, "string") }),
		rapid.Custom(func(t *rapid.T) any { return rapid.Int64().Draw(t, "int") >> rapid.IntRange(0, 63).Draw(t, "shift") }),
		rapid.Custom(func(t *rapid.T) any { return rapid.Bool().Draw(t, "bool") }),
		rapid.Just[any](nil),
		rapid.Just[any]([]any{}),
		rapid.Custom(func(t *rapid.T) any { return rapid.SliceOf(rapid.String()).Draw(t, "strings") }),
		rapid.Custom(func(t *rapid.T) any { return rapid.SliceOf(rapid.Int32()).Draw(t, "ints") }),
		rapid.Custom(func(t *rapid.T) any { return rapid.Float64Range(-1e9, 1e9).Draw(t, "float") + 0.5 }),
	}
	value := rapid.OneOf(scalars...)
	if depth > 0 {
		value = rapid.OneOf(append(scalars, rapid.Custom(func(t *rapid.T) any { return document(depth-1).Draw(t, "object") }))...)
	}
	return rapid.MapOfN(rapid.StringMatching(`[a-zé"\\ 😀]{1,8}`), value, 0, 6)
}

func prune(object map[string]any, nulls, empty bool) {
	for name, v := range object {
		switch v := v.(type) {
		case nil:
			if !nulls {
				delete(object, name)
			}
		case []any:
			if len(v) == 0 && !empty {
				delete(object, name)
			}
		case map[string]any:
			prune(v, nulls, empty)
		}
	}
}

// Whatever a text is, an expansion ends, and what comes of it is JSON.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{`{"a":[1,null,{"b":[]}]}`, `[{"a":1e9}]`, `{"a":"\ud83d\u0041"}`, `{"a":[{"b":1},{"c":[[2.5]]}]} x`, `{`} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, nulls bool) {
		e := connect.Expander{Name: "payload", NullsAsBytes: nulls, EmptyAsString: nulls}
		x, err := e.Expand(text, anyBudget())
		if err != nil || x.Unchanged {
			return
		}
		for _, c := range []JSONConverter{{}, {Schemas: true}} {
			if out, _, err := c.Append(nil, math.MaxInt, x.Schema, x.Value); err == nil && !json.Valid(out) {
				t.Errorf("%q became %s", text, out)
			}
		}
		if _, _, err := (StringConverter{}).Append(nil, math.MaxInt, x.Schema, x.Value); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// Whatever a column's text is, its value is one, or the row's fault; and JSON of it is JSON.
func FuzzColumns(f *testing.F) {
	for _, seed := range []string{"", "t", "1", "-1.50", "NaN", `\x00ff`, "2025-11-20 12:25:01.5+02", "0044-03-15 BC", "24:00:00", "infinity", "é\"\\\x00"} {
		f.Add([]byte(seed), int32(-1), uint8(0))
		f.Add([]byte(seed), int32(655366), uint8(255))
	}
	var oids []uint32
	for oid := range uint32(5000) {
		if _, err := connect.NewColumn(event.ColumnShape{TypeOID: oid, Typmod: -1}, connect.Modes{}); err == nil {
			oids = append(oids, oid)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, typmod int32, mode uint8) {
		m := connect.Modes{Binary: connect.BinaryModes[mode%4], Time: connect.TimeModes[mode/4%6], Decimal: connect.DecimalModes[mode%3]}
		expression := string(text)
		for _, oid := range oids {
			c, err := connect.NewColumn(event.ColumnShape{Name: "c", TypeOID: oid, Typmod: typmod, Default: &expression}, m)
			if err != nil {
				continue
			}
			for _, given := range [][]byte{text, nil} {
				v, _, err := c.Value(nil, given)
				if err != nil {
					continue
				}
				for name, converter := range converters {
					out, _, err := converter.Append([]byte("x"), math.MaxInt, c.Schema, v)
					if _, isJSON := converter.(JSONConverter); err == nil && isJSON && !json.Valid(out[1:]) {
						t.Errorf("type %d, %s: %q became %q", oid, name, given, out)
					}
				}
			}
		}
	})
}
