package decode

import (
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// TestOrigin: a row has the transaction of its column, with its epoch, if that is the one that the
// stream says. Otherwise it is a stray, and an event like any other.
func TestOrigin(t *testing.T) {
	const epoch = 7 << 32
	names := func(n string, optional bool) Names { return Names{Any: []string{n}, Optional: optional} }
	table := func(optional bool) Table {
		return Table{Schema: "public", Name: "outbox", Mapping: Mapping{ID: names("id", false), Payload: names("payload", false), Transaction: names("tx", optional)}}
	}
	columns := func(oid uint32) []Column {
		return []Column{{Name: "id", TypeOID: pgtype.TextOID}, {Name: "payload", TypeOID: pgtype.TextOID}, {Name: "tx", TypeOID: oid}}
	}
	for name, tc := range map[string]struct {
		kind   uint32
		copied bool
		value  value
		tx     uint64
		stray  bool
	}{
		"its own":                {5069, false, text("30064771172"), epoch + 100, false},
		"its own, as bigint":     {pgtype.Int8OID, false, text("30064771172"), epoch + 100, false},
		"another one's":          {5069, false, text("30064771173"), 0, true},
		"NULL":                   {5069, false, null, 0, true},
		"nothing":                {5069, false, text(""), 0, true},
		"a text":                 {5069, false, text("x100"), 0, true},
		"negative":               {pgtype.Int8OID, false, text("-100"), 0, true},
		"too large":              {5069, false, text("99999999999999999999"), 0, true},
		"too long":               {5069, false, text("000000000000000000000000100"), 0, true},
		"of a copied row":        {5069, true, text("5"), 5, false},
		"a column of other kind": {pgtype.TextOID, false, text("100"), 0, false},
	} {
		d := New(Config{Tables: []Table{table(true)}, Copied: tc.copied})
		var msg Message
		for _, frame := range [][]byte{relationFrame(42, "public", "outbox", columns(tc.kind)), beginFrame(1000, 100)} {
			if err := d.Decode(frame, &msg); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second one's text is compared with the first one's
			if err := d.Decode(insertFrame(42, text("i"), text("p"), tc.value), &msg); err != nil {
				t.Fatal(err)
			}
			if want := (event.Origin{Relation: 42, Tx: tc.tx}); msg.Kind != Row || msg.Event.Origin != want || msg.Stray != tc.stray {
				t.Errorf("%s: origin %+v, stray %t", name, msg.Event.Origin, msg.Stray)
			}
		}
	}
	var msg Message
	if err := New(Config{Tables: []Table{table(false)}}).Decode(relationFrame(42, "public", "outbox", columns(pgtype.TextOID)), &msg); err == nil {
		t.Error("a column that the configuration names is accepted, although it has another type")
	}
}

// TestOriginOfTheNextTransaction: the text of one transaction's id is not taken for another's.
func TestOriginOfTheNextTransaction(t *testing.T) {
	names := func(n string) Names { return Names{Any: []string{n}} }
	d := New(Config{Tables: []Table{{Schema: "s", Name: "t", Mapping: Mapping{ID: names("id"), Payload: names("p"), Transaction: names("tx")}}}})
	var msg Message
	for _, step := range []struct {
		frame []byte
		tx    uint64
	}{
		{relationFrame(1, "s", "t", []Column{{Name: "id", TypeOID: pgtype.TextOID}, {Name: "p", TypeOID: pgtype.TextOID}, {Name: "tx", TypeOID: 5069}}), 0},
		{beginFrame(1000, 100), 0},
		{insertFrame(1, text("a"), text("p"), text("100")), 100},
		{commitFrame(1000, 1010), 0},
		{beginFrame(2000, 101), 0},
		{insertFrame(1, text("b"), text("p"), text("100")), 0},
		{insertFrame(1, text("c"), text("p"), text("101")), 101},
	} {
		if err := d.Decode(step.frame, &msg); err != nil {
			t.Fatal(err)
		}
		if msg.Kind == Row && msg.Event.Origin.Tx != step.tx {
			t.Errorf("event %s is of transaction %d, want %d", msg.Event.ID, msg.Event.Origin.Tx, step.tx)
		}
	}
}
