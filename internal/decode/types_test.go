package decode

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// A Type frame says what a type is of the relation that comes next: of a domain its base type. A
// type that does not fit is named, and never by its OID.
func TestTypesOfTheStream(t *testing.T) {
	t.Parallel()
	table := func() Table {
		return Table{Schema: "public", Name: "outbox", Mapping: Mapping{
			ID: Names{Any: []string{"id"}}, Payload: Names{Any: []string{"payload"}}, Timestamp: Names{Any: []string{"at"}}, Headers: Names{Any: []string{"headers"}},
			Transaction: Names{Any: []string{"tx"}},
		}}
	}
	const made = 70_000
	for _, c := range []struct {
		payload, at, headers, tx string // "schema.type" of what is made
		want                     string
	}{
		{".jsonb", ".timestamptz", ".json", ".xid8", ""},
		{".varchar", ".timestamp", ".jsonb", ".int8", ""},
		{".bytea", ".timestamp", ".jsonb", "public.xid8", `transaction: column "tx" has type public.xid8, wanted xid8 or bigint`},
		{"app.kind", ".timestamp", ".jsonb", ".int8", `payload: column "payload" has type app.kind, wanted`},
		{"app._kind", ".timestamp", ".jsonb", ".int8", `payload: column "payload" has type app.kind[], wanted`},
		{"._jsonb", ".money", ".regclass", ".int8", `payload: column "payload" has type jsonb[], wanted json, jsonb, text, varchar, char or bytea; timestamp: column "at" has type money, wanted timestamptz or timestamp; headers_column: column "headers" has type regclass, wanted`},
	} {
		d := New(Config{Tables: []Table{table()}})
		mustDecode(t, d, beginFrame(0x3000, 9))
		columns := []Column{{Name: "id", TypeOID: pgtype.TextOID}}
		var direct []Column // as the catalogue has them
		for i, of := range []string{c.payload, c.at, c.headers, c.tx} {
			schema, name, _ := strings.Cut(of, ".")
			oid := uint32(made + i)
			columns = append(columns, Column{Name: []string{"payload", "at", "headers", "tx"}[i], TypeOID: oid})
			direct = append(direct, NewColumn(columns[i+1].Name, oid, TypeName{schema, name}))
			mustDecode(t, d, typeFrame(oid, schema, name))
		}
		var msg Message
		ours := table()
		errs := []error{d.Decode(relationFrame(16400, "public", "outbox", columns), &msg), ours.Check(append(columns[:1:1], direct...), nil)}
		for _, err := range errs {
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "OID")) {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if len(d.types) > 0 {
			t.Errorf("types are kept: %v", d.types)
		}
	}
}

// The blanks that fill a char(n), and a domain over one, are no part of its value; the payload is
// as it is stored, and a text keeps its blanks.
func TestCharsAreTrimmed(t *testing.T) {
	t.Parallel()
	d := New(Config{Tables: []Table{{Schema: "public", Name: "outbox", Mapping: Mapping{
		ID: Names{Any: []string{"id"}}, Key: Names{Any: []string{"key"}}, Type: Names{Any: []string{"type"}}, Payload: Names{Any: []string{"payload"}},
	}}}, Columns: []string{"region"}})
	mustDecode(t, d, beginFrame(0x3000, 9))
	mustDecode(t, d, typeFrame(70_000, "", "bpchar"))
	mustDecode(t, d, relationFrame(16400, "public", "outbox", []Column{
		{Name: "id", TypeOID: pgtype.BPCharOID},
		{Name: "key", TypeOID: 70_000},
		{Name: "type", TypeOID: pgtype.TextOID},
		{Name: "payload", TypeOID: pgtype.BPCharOID},
		{Name: "region", TypeOID: pgtype.BPCharOID},
	}))
	ev := mustDecode(t, d, insertFrame(16400, text("1  "), text(" k "), text("t "), text("{} "), text("   "))).Event
	if string(ev.ID) != "1" || string(ev.Key) != " k" || string(ev.Type) != "t " || string(ev.Payload) != "{} " || ev.Columns[0] == nil || len(ev.Columns[0]) != 0 {
		t.Errorf("the event is %+v", ev)
	}
	if ev := mustDecode(t, d, insertFrame(16400, text("   "), text("k"), text("t"), text("{}"), value{kind: 'n'})).Event; ev.Fault == nil || ev.Columns[0] != nil {
		t.Errorf("without an id the event is %+v", ev)
	}
}
