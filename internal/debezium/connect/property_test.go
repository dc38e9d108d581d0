package connect

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

func TestQuotedTextsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		out := appendQuoted(nil, s)
		var back string
		if err := json.Unmarshal(out, &back); err != nil || back != s {
			t.Fatalf("%q became %s and came back as %q: %v", s, out, back, err)
		}
		if same := appendQuoted(nil, []byte(s)); !bytes.Equal(out, same) {
			t.Fatalf("as bytes %s", same)
		}
	})
}

func TestFloatsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return
		}
		if back, err := strconv.ParseFloat(string(appendFloat(nil, f, 64)), 64); err != nil || back != f {
			t.Fatalf("%v came back as %v: %v", f, back, err)
		}
		short := math.Float32frombits(uint32(math.Float64bits(f)))
		if back, err := strconv.ParseFloat(string(appendFloat(nil, float64(short), 32)), 32); err != nil || float32(back) != short {
			if !math.IsNaN(float64(short)) && !math.IsInf(float64(short), 0) {
				t.Fatalf("%v came back as %v: %v", short, back, err)
			}
		}
	})
}

// A decimal against math/big: its bytes are the shortest two's complement, and its text is the one that it was read from.
func TestDecimalsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,20})?`).Draw(t, "text")
		v, _, err := parseDecimal(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		want, _ := new(big.Int).SetString(strings.Replace(text, ".", "", 1), 10)
		got := new(big.Int).SetBytes(v.Data)
		if v.Data[0] >= 0x80 {
			got.Sub(got, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v.Data))))
		}
		if got.Cmp(want) != 0 {
			t.Fatalf("%s is %x, which is %s", text, v.Data, got)
		}
		if n := v.Data; len(n) > 1 && (n[0] == 0 && n[1] < 0x80 || n[0] == 0xFF && n[1] >= 0x80) {
			t.Fatalf("%s is %x: not the shortest", text, n)
		}
		if plain := string(appendPlain(nil, v)); plain != text && want.Sign() != 0 {
			t.Fatalf("%s came back as %s", text, plain)
		}
		// BigDecimal.toString is a number, too, and the same one.
		r, ok := new(big.Rat).SetString(string(appendDecimal(nil, v)))
		if same, _ := new(big.Rat).SetString(text); !ok || r.Cmp(same) != 0 {
			t.Fatalf("%s is written %s", text, appendDecimal(nil, v))
		}
	})
}

// Dates against package time, and the calendar backwards.
func TestTheCalendar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		days := rapid.Int64Range(-1_000_000_000, 1_000_000_000).Draw(t, "days")
		year, month, day := dateOf(days)
		if back := daysOf(year, month, day); back != days {
			t.Fatalf("day %d is %d-%d-%d, which is day %d", days, year, month, day, back)
		}
		at := time.Unix(days*24*60*60, 0).UTC()
		if int64(at.Year()) != year || int64(at.Month()) != month || int64(at.Day()) != day {
			t.Fatalf("day %d is %d-%d-%d, want %v", days, year, month, day, at)
		}
	})
}

// The expansion against encoding/json: the same document, but for nulls and empty arrays, which are left out.
func TestExpansionKeepsTheDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Expander{Name: "payload", NullsAsBytes: rapid.Bool().Draw(t, "nulls"), EmptyAsString: rapid.Bool().Draw(t, "empty")}
		text, err := json.Marshal(document(4).Draw(t, "document"))
		if err != nil {
			t.Fatal(err)
		}
		x, err := e.Expand(text)
		if err != nil || x.Unchanged || x.Value.Kind != Record {
			t.Fatalf("%s: %+v, %v", text, x, err)
		}
		out, _, err := JSONConverter{}.Append(nil, x.Schema, x.Value)
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
		if out, _, err = (JSONConverter{Schemas: true}).Append(nil, x.Schema, x.Value); err != nil || !json.Valid(out) {
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
		e := Expander{Name: "payload", NullsAsBytes: nulls, EmptyAsString: nulls}
		x, err := e.Expand(text)
		if err != nil || x.Unchanged {
			return
		}
		for _, c := range []JSONConverter{{}, {Schemas: true}} {
			if out, _, err := c.Append(nil, x.Schema, x.Value); err == nil && !json.Valid(out) {
				t.Errorf("%q became %s", text, out)
			}
		}
		if _, _, err := (StringConverter{}).Append(nil, x.Schema, x.Value); err != nil {
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
	oids := slices.Sorted(func(yield func(uint32) bool) {
		for oid := range simple {
			if !yield(oid) {
				return
			}
		}
		for _, oid := range []uint32{17, 1082, 1083, 1114, 1184, timetzOID, 1700} {
			if !yield(oid) {
				return
			}
		}
	})
	f.Fuzz(func(t *testing.T, text []byte, typmod int32, mode uint8) {
		m := Modes{BinaryMode(mode % 4), TimeMode(mode / 4 % 6), DecimalMode(mode % 3)}
		expression := string(text)
		for _, oid := range oids {
			c, err := NewColumn(outbox.ColumnShape{Name: "c", TypeOID: oid, Typmod: typmod, Default: &expression}, m)
			if err != nil {
				continue
			}
			for _, given := range [][]byte{text, nil} {
				v, _, err := c.Value(nil, given)
				if err != nil {
					continue
				}
				for name, converter := range converters {
					out, _, err := converter.Append([]byte("x"), c.Schema, v)
					if _, isJSON := converter.(JSONConverter); err == nil && isJSON && !json.Valid(out[1:]) {
						t.Errorf("type %d, %s: %q became %q", oid, name, given, out)
					}
				}
			}
		}
	})
}
