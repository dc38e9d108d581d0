package decode

import (
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// shaped is a decoder of one table whose rows carry the shape, with a transaction open.
func shaped(t *testing.T) *Decoder {
	t.Helper()
	d := New(Config{
		Tables: []Table{{Schema: "public", Name: "outbox", May: []string{"gone"}, Mapping: Mapping{
			ID: Names{Any: []string{"id"}}, Payload: Names{Any: []string{"payload"}}, Compat: true,
		}}},
		Columns: []string{"gone"}, Shapes: true,
	})
	mustDecode(t, d, beginFrame(0x3000, 9))
	return d
}

func mustDecode(t *testing.T, d *Decoder, wal []byte) *Message {
	t.Helper()
	var msg Message
	if err := d.Decode(wal, &msg); err != nil {
		t.Fatal(err)
	}
	return &msg
}

// A table that is described asks for what its frame does not know. Its rows wait for that, and
// carry it then; each description asks again, and rows carry the last one.
func TestRowsCarryTheShape(t *testing.T) {
	d := shaped(t)
	columns := []Column{{Name: "id", TypeOID: pgtype.UUIDOID}, {Name: "unused", TypeOID: pgtype.TextOID}, {Name: "payload", TypeOID: pgtype.Int8OID}}
	row := insertFrame(16400, text("1"), text("u"), text("7"))
	var before *event.Shape
	for _, notNull := range []bool{false, true} {
		msg := mustDecode(t, d, relationFrame(16400, "public", "outbox", columns))
		want := &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{
			{Name: "id", TypeOID: pgtype.UUIDOID, Typmod: -1}, {Name: "payload", TypeOID: pgtype.Int8OID, Typmod: -1},
		}}
		if !reflect.DeepEqual(msg.Shape, want) || msg.OID != 16400 {
			t.Fatalf("it asks for %+v of %d, want %+v", msg.Shape, msg.OID, want)
		}
		shape := msg.Shape
		shape.Columns[1].NotNull = notNull
		if err := d.Shaped(16400, shape); err != nil {
			t.Fatal(err)
		}
		ev := mustDecode(t, d, row).Event
		if len(ev.Columns) != 1 || ev.Columns[0] != nil || ev.Shape != shape || shape == before || string(ev.Payload) != "7" {
			t.Fatalf("the row is %+v", ev)
		}
		before = shape
	}
	// Message, in mustDecode
	if n := testing.AllocsPerRun(100, func() { mustDecode(t, d, row) }); n > 1 {
		t.Errorf("a row with its shape allocates %g times", n)
	}
}

// A row whose shape nobody has given would be another record: it ends the session instead.
func TestRowsWaitForTheShape(t *testing.T) {
	d := shaped(t)
	columns := []Column{{Name: "id", TypeOID: pgtype.UUIDOID}, {Name: "payload", TypeOID: pgtype.JSONBOID}}
	mustDecode(t, d, relationFrame(16400, "public", "outbox", columns))
	var msg Message
	if err := d.Decode(insertFrame(16400, text("1"), text("{}")), &msg); err == nil || !strings.Contains(err.Error(), "its shape is missing") {
		t.Errorf("the row is taken: %v", err)
	}
	d = shaped(t)
	old := mustDecode(t, d, relationFrame(16400, "public", "outbox", columns)).Shape
	mustDecode(t, d, relationFrame(16400, "public", "outbox", columns))
	if err := d.Shaped(16400, old); err == nil {
		t.Error("the answer to an earlier question is taken")
	}
}

// A profile takes a payload of any type, and a timestamp without time zone only.
func TestTypesOfAProfile(t *testing.T) {
	table := Table{Schema: "public", Name: "outbox", Mapping: Mapping{
		ID: Names{Any: []string{"id"}}, Payload: Names{Any: []string{"payload"}}, Timestamp: Names{Any: []string{"at"}}, Compat: true,
	}}
	columns := func(payload, at uint32) []Column {
		return []Column{{Name: "id", TypeOID: pgtype.UUIDOID}, {Name: "payload", TypeOID: payload}, {Name: "at", TypeOID: at}}
	}
	if err := table.Check(columns(pgtype.NumericOID, pgtype.TimestampOID), nil); err != nil {
		t.Error(err)
	}
	if err := table.Check(columns(pgtype.JSONOID, pgtype.TimestamptzOID), nil); err == nil || !strings.Contains(err.Error(), "wanted timestamp ") {
		t.Errorf("timestamptz gives %v", err)
	}
	if err := table.Check(columns(pgtype.JSONOID, pgtype.TimestampOID), []string{"gone"}); err == nil {
		t.Error("a column that must be there is not missed")
	}
	table.May = []string{"gone"}
	if err := table.Check(columns(pgtype.JSONOID, pgtype.TimestampOID), []string{"gone"}); err != nil {
		t.Error(err)
	}
}

// What a frame does not tell of a type is not held against the table in the stream; the catalogue's
// shapes are judged as they are.
func TestTypesThatAreMade(t *testing.T) {
	d := shaped(t)
	d.tables[0].Fits = func(columns []event.ColumnShape) (misfits []string) {
		for _, c := range columns {
			if c.TypeOID != pgtype.UUIDOID {
				misfits = append(misfits, c.Name)
			}
		}
		return misfits
	}
	columns := func(payload uint32) []Column {
		return []Column{{Name: "id", TypeOID: pgtype.UUIDOID}, {Name: "payload", TypeOID: payload}}
	}
	mustDecode(t, d, relationFrame(16400, "public", "outbox", columns(16384)))
	var msg Message
	if err := d.Decode(relationFrame(16400, "public", "outbox", columns(pgtype.PointOID)), &msg); err == nil || !strings.Contains(err.Error(), "payload") {
		t.Errorf("a point is taken: %v", err)
	}
	if err := d.tables[0].CheckShapes([]event.ColumnShape{{Name: "payload", TypeOID: 16384}}); err == nil || !strings.Contains(err.Error(), "payload") {
		t.Errorf("the catalogue's is taken: %v", err)
	}
}
