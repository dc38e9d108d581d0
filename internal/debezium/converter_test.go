package debezium

import (
	"math"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

func columnOf(t *testing.T, shape event.ColumnShape, modes connect.Modes) *connect.Column {
	t.Helper()
	c, err := connect.NewColumn(shape, modes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func value(t *testing.T, c *connect.Column, text []byte) connect.Value {
	t.Helper()
	v, _, err := c.Value(nil, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// What a consumer of Kafka sees for the usual columns under the usual converters.
func TestTheUsualColumns(t *testing.T) {
	varchar := event.ColumnShape{Name: "aggregateid", TypeOID: pgtype.VarcharOID, Typmod: 259, NotNull: true}
	jsonb := event.ColumnShape{Name: "payload", TypeOID: pgtype.JSONBOID, Typmod: -1}
	generated := "gen_random_uuid()"
	id := event.ColumnShape{Name: "id", TypeOID: pgtype.UUIDOID, Typmod: -1, NotNull: true, Default: &generated}
	for _, c := range []struct {
		name      string
		shape     event.ColumnShape
		converter Converter
		text      string // "-" is NULL
		want      string // "-" is null
	}{
		{"string, key", varchar, StringConverter{}, "10711fa5", "10711fa5"},
		{"string, json", jsonb, StringConverter{}, `{"a": 1}`, `{"a": 1}`},
		{"string, NULL", jsonb, StringConverter{}, "-", "-"},
		{"string, empty", varchar, StringConverter{}, "", ""},
		{"json, key", varchar, JSONConverter{}, "10711fa5", `"10711fa5"`},
		{"json, json", jsonb, JSONConverter{}, `{"a": 1}`, `"{\"a\": 1}"`},
		{"json, NULL", jsonb, JSONConverter{}, "-", `null`},
		{
			"schema, key", varchar,
			JSONConverter{Schemas: true},
			"10711fa5",
			`{"schema":{"type":"string","optional":false},"payload":"10711fa5"}`,
		},
		{
			"schema, json", jsonb,
			JSONConverter{Schemas: true},
			`{"a": 1}`,
			`{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":"{\"a\": 1}"}`,
		},
		{
			"schema, NULL", jsonb,
			JSONConverter{Schemas: true},
			"-",
			`{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},"payload":null}`,
		},
		{
			"schema, id with a default", id,
			JSONConverter{Schemas: true},
			"6f1c54a2-6c2c-4f3a-9a63-0d4c6a3f0c11",
			`{"schema":{"type":"string","optional":false,"name":"io.debezium.data.Uuid","version":1,` +
				`"default":"00000000-0000-0000-0000-000000000000"},"payload":"6f1c54a2-6c2c-4f3a-9a63-0d4c6a3f0c11"}`,
		},
		{"header, key", varchar, SimpleHeaderConverter{}, "10711fa5", "10711fa5"},
		{"header, NULL", jsonb, SimpleHeaderConverter{}, "-", "-"},
		{"bytes, string", varchar, BinaryDataConverter{Delegate: StringConverter{}}, "x", "x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			col := columnOf(t, c.shape, connect.Modes{})
			var text []byte
			if c.text != "-" {
				text = []byte(c.text)
			}
			out, null, err := c.converter.Append([]byte("before:"), math.MaxInt, col.Schema, value(t, col, text))
			if err != nil {
				t.Fatal(err)
			}
			got := string(out[len("before:"):])
			if null {
				got += "-"
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
