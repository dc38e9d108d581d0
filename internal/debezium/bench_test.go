package debezium

import (
	"math"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// usual are the columns and converters of nearly every outbox.
func usual(t testing.TB) map[string]func(scratch, dst []byte) ([]byte, []byte) {
	generated := "gen_random_uuid()"
	texts := map[string]struct {
		shape event.ColumnShape
		text  string
	}{
		"uuid":        {event.ColumnShape{TypeOID: pgtype.UUIDOID, Typmod: -1, NotNull: true, Default: &generated}, "6f1c54a2-6c2c-4f3a-9a63-0d4c6a3f0c11"},
		"varchar":     {event.ColumnShape{TypeOID: pgtype.VarcharOID, Typmod: 259, NotNull: true}, "10711fa5-with-\"quotes\"-é-😀"},
		"jsonb":       {event.ColumnShape{TypeOID: pgtype.JSONBOID, Typmod: -1}, `{"id": 4711, "lines": [{"sku": "a-1", "n": 2}], "name": "Grüße", "paid": true}`},
		"bigint":      {event.ColumnShape{TypeOID: pgtype.Int8OID, Typmod: -1}, "9223372036854775807"},
		"boolean":     {event.ColumnShape{TypeOID: pgtype.BoolOID, Typmod: -1}, "t"},
		"double":      {event.ColumnShape{TypeOID: pgtype.Float8OID, Typmod: -1}, "12.75"},
		"bytea":       {event.ColumnShape{TypeOID: pgtype.ByteaOID, Typmod: -1}, `\x00ff1020`},
		"timestamp":   {event.ColumnShape{TypeOID: pgtype.TimestampOID, Typmod: -1}, "2025-11-20 12:25:01.123456"},
		"timestamptz": {event.ColumnShape{TypeOID: pgtype.TimestamptzOID, Typmod: -1}, "2025-11-20 12:25:01.123456+00"},
	}
	ways := map[string]func(scratch, dst []byte) ([]byte, []byte){}
	for name, c := range texts {
		col, err := connect.NewColumn(c.shape, connect.Modes{})
		if err != nil {
			t.Fatal(err)
		}
		text := []byte(c.text)
		for _, converter := range []string{"string", "json", "schema", "header"} {
			to := converters[converter]
			ways[name+"/"+converter] = func(scratch, dst []byte) ([]byte, []byte) {
				v, scratch, err := col.Value(scratch[:0], text)
				if err != nil {
					t.Fatal(err)
				}
				out, _, err := to.Append(dst[:0], math.MaxInt, col.Schema, v)
				if err != nil {
					t.Fatal(err)
				}
				return scratch, out
			}
		}
	}
	return ways
}

func TestTheUsualWaysAllocateNothing(t *testing.T) {
	for name, way := range usual(t) {
		scratch, dst := make([]byte, 0, 1024), make([]byte, 0, 4096)
		if n := testing.AllocsPerRun(100, func() { way(scratch, dst) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for name, way := range usual(b) {
		b.Run(name, func(b *testing.B) {
			scratch, dst := make([]byte, 0, 1024), make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				scratch, dst = way(scratch, dst)
			}
		})
	}
}

func BenchmarkExpand(b *testing.B) {
	text := []byte(`{"id": 4711, "lines": [{"sku": "a-1", "n": 2}, {"sku": "b-2", "n": 1}], "name": "Grüße", "paid": true, "total": 12.5}`)
	e := connect.Expander{Name: "payload"}
	dst := make([]byte, 0, 4096)
	budget := anyBudget()
	b.ReportAllocs()
	for b.Loop() {
		*budget = event.NewBudget(len(text))
		x, err := e.Expand(text, budget)
		if err != nil || x.Unchanged {
			b.Fatal(x, err)
		}
		if dst, _, err = (JSONConverter{}).Append(dst[:0], math.MaxInt, x.Schema, x.Value); err != nil {
			b.Fatal(err)
		}
	}
}
