package debezium

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// outboxShape is a table with the usual columns and some that are placed.
func outboxShape(change func(columns map[string]*event.ColumnShape)) *event.Shape {
	text := "'none'::character varying"
	s := &event.Shape{Schema: "public", Table: "outbox", Columns: []event.ColumnShape{
		{Name: "id", TypeOID: pgtype.UUIDOID, Typmod: -1, NotNull: true},
		{Name: "aggregatetype", TypeOID: pgtype.VarcharOID, Typmod: -1, NotNull: true},
		{Name: "aggregateid", TypeOID: pgtype.VarcharOID, Typmod: -1},
		{Name: "payload", TypeOID: pgtype.JSONBOID, Typmod: -1},
		{Name: "type", TypeOID: pgtype.VarcharOID, Typmod: -1, Default: &text},
		{Name: "part", TypeOID: pgtype.Int4OID, Typmod: -1},
		{Name: "version", TypeOID: pgtype.Int4OID, Typmod: -1},
	}}
	if change != nil {
		byName := map[string]*event.ColumnShape{}
		for i := range s.Columns {
			byName[s.Columns[i].Name] = &s.Columns[i]
		}
		change(byName)
	}
	return s
}

// row has the parts of a row, and extra columns by name.
type row struct {
	route, key, payload string
	null                string // names of parts that are NULL
	columns             map[string]string
	shape               *event.Shape
	binary              bool
}

func (r row) event(o *Options) *event.Event {
	part := func(name, value string) []byte {
		if strings.Contains(r.null, name) {
			return nil
		}
		return []byte(value)
	}
	at := time.UnixMicro(1767323045678999).UTC()
	ev := &event.Event{
		ID: []byte("10b1c3ff-1d4b-4f0e-8d38-000000000001"), Aggregate: part("route", r.route), Key: part("key", r.key), Payload: part("payload", r.payload),
		Time: at, CommitTime: at.Add(time.Hour), Shape: r.shape,
	}
	if ev.Shape == nil {
		ev.Shape = outboxShape(nil)
	}
	if r.binary {
		ev.PayloadKind = event.Binary
	}
	for _, name := range o.Columns().Extra {
		var value []byte
		if text, ok := r.columns[name]; ok {
			value = []byte(text)
		}
		ev.Columns = append(ev.Columns, value)
	}
	return ev
}

func bound(t testing.TB, o *Options) *Router {
	t.Helper()
	r, err := o.Encoder(o.Columns().Extra, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newRecord() *Record { return recordOf(new(sink.Record)) }

// built is build for a record that may have been used before.
func (r *Router) built(ev *event.Event, rec *Record) error {
	rec.Reset(ev)
	return r.build(ev, recordOf(rec.Record))
}

// shown is a record in one text.
func (rec *Record) shown() string {
	part := func(b []byte) string {
		if b == nil {
			return "NULL"
		}
		return string(b)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %d | %s | %s", rec.Topic, rec.Partition, part(rec.Key), part(rec.Value))
	for _, h := range rec.Headers {
		fmt.Fprintf(&out, " | %s=%s", h.Name, part(h.Value))
	}
	return out.String()
}

// What each option does to a record.
func TestBuild(t *testing.T) {
	t.Parallel()
	type options = map[string]string
	const id = "10b1c3ff-1d4b-4f0e-8d38-000000000001"
	texts := func(more ...string) options {
		o := options{"key.converter": classString, "value.converter": classString}
		for i := 0; i < len(more); i += 2 {
			o[more[i]] = more[i+1]
		}
		return o
	}
	plainJSON := func(more ...string) options {
		o := texts(more...)
		o["value.converter"], o["value.converter.schemas.enable"] = classJSON, "false"
		return o
	}
	const placed = "table.fields.additional.placement"
	for _, c := range []struct {
		name string
		o    options
		row  row
		want string
	}{
		{"plain", texts(), row{route: "order", key: "7", payload: `{"a": 1}`}, `outbox.event.order -1 | 7 | {"a": 1} | id=` + id},
		{"no payload", texts(), row{route: "order", key: "7", null: "payload"}, `outbox.event.order -1 | 7 | NULL | id=` + id},
		{"no payload in JSON", plainJSON(), row{route: "order", key: "7", null: "payload"}, `outbox.event.order -1 | 7 | null | id=` + id},
		{"a tombstone", plainJSON("route.tombstone.on.empty.payload", "true"), row{route: "order", key: "7", null: "payload"}, `outbox.event.order -1 | 7 | NULL | id=` + id},
		{"an empty payload is a tombstone", plainJSON("route.tombstone.on.empty.payload", "true"), row{route: "order", key: "7", payload: " \t\n\x00"}, `outbox.event.order -1 | 7 | NULL | id=` + id},
		{"what Java does not trim is no tombstone", texts("route.tombstone.on.empty.payload", "true"), row{route: "order", key: "7", payload: "\u00a0"}, "outbox.event.order -1 | 7 | \u00a0 | id=" + id},
		{"an empty payload stays otherwise", texts(), row{route: "order", key: "7", payload: ""}, `outbox.event.order -1 | 7 |  | id=` + id},
		{
			"a tombstone in place of an envelope", plainJSON("route.tombstone.on.empty.payload", "true", placed, "type:envelope", "topic.prefix", "p"),
			row{route: "order", key: "7", null: "payload"},
			`outbox.event.order -1 | 7 | NULL | id=` + id,
		},
		{"no key", texts(), row{route: "order", payload: "1", null: "key"}, `outbox.event.order -1 | NULL | 1 | id=` + id},
		{
			"headers in order, twice, by alias, with defaults", texts(placed, "type:header:b,part:header:a,type:header"),
			row{route: "order", key: "7", payload: "1", columns: options{"part": "3"}},
			`outbox.event.order -1 | 7 | 1 | id=` + id + ` | b=none | a=3 | type=none`,
		},
		{"a header that is NULL", texts(placed, "part:header"), row{route: "order", key: "7", payload: "1"}, `outbox.event.order -1 | 7 | 1 | id=` + id + ` | part=NULL`},
		{
			"an envelope", plainJSON(placed, "type:envelope:eventType,part:envelope", "topic.prefix", "p"),
			row{route: "order", key: "7", payload: `{"a": "x"}`, columns: options{"type": "created", "part": "3"}},
			`outbox.event.order -1 | 7 | {"payload":"{\"a\": \"x\"}","eventType":"created","part":3} | id=` + id,
		},
		{
			"an envelope with its schema",
			options{"key.converter": classString, placed: "type:envelope", "topic.prefix": "p", "table.field.event.schema.version": "version"},
			row{route: "order", key: "7", payload: "1", columns: options{"type": "created", "version": "4"}},
			`outbox.event.order -1 | 7 | {"schema":{"type":"struct","fields":[{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1,"field":"payload"},` +
				`{"type":"string","optional":true,"default":"none","field":"type"}],"optional":false,"name":"p.public.outbox.order.Value","version":4},"payload":{"payload":"1","type":"created"}} | id=` + id,
		},
		{
			"an expanded payload", plainJSON("table.expand.json.payload", "true"),
			row{route: "order", key: "7", payload: `{"a": 1, "b": {"c": [1.50]}}`},
			`outbox.event.order -1 | 7 | {"a":1,"b":{"c":[1.5]}} | id=` + id,
		},
		{
			"an expanded payload in an envelope", plainJSON("table.expand.json.payload", "true", placed, "type:envelope", "topic.prefix", "p"),
			row{route: "order", key: "7", payload: `{"a": 1}`},
			`outbox.event.order -1 | 7 | {"payload":{"a":1},"type":"none"} | id=` + id,
		},
		{"a payload that is not expanded", plainJSON("table.expand.json.payload", "true"), row{route: "order", key: "7", payload: `text`}, `outbox.event.order -1 | 7 | "text" | id=` + id},
		{"bytes", options{"key.converter": classString, "value.converter": classBinary}, row{
			route: "order", key: "7", payload: "\x00\xff", binary: true,
			shape: outboxShape(func(c map[string]*event.ColumnShape) { c["payload"].TypeOID = pgtype.ByteaOID }),
		}, "outbox.event.order -1 | 7 | \x00\xff | id=" + id},
		{"bytes in another mode", texts("binary.handling.mode", "hex"), row{
			route: "order", key: "7", payload: "\x00\xff", binary: true,
			shape: outboxShape(func(c map[string]*event.ColumnShape) { c["payload"].TypeOID = pgtype.ByteaOID }),
		}, "outbox.event.order -1 | 7 | 00ff | id=" + id},
		{
			"a partition, the last one", texts(placed, "version:partition,part:partition"),
			row{route: "order", key: "7", payload: "1", columns: options{"part": "3", "version": "1"}},
			`outbox.event.order 3 | 7 | 1 | id=` + id,
		},
		{"no partition", texts(placed, "part:partition"), row{route: "order", key: "7", payload: "1"}, `outbox.event.order -1 | 7 | 1 | id=` + id},
		{
			"a column that may be missing", texts(placed, "gone:header,gone:partition,type:header", "table.field.additional.missing", "ignore"),
			row{route: "order", key: "7", payload: "1"},
			`outbox.event.order -1 | 7 | 1 | id=` + id + ` | type=none`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := mustParse(t, Connect, c.o)
			rec := newRecord()
			r := bound(t, o)
			for range 2 { // the second time all is known
				if err := r.built(c.row.event(o), rec); err != nil {
					t.Fatal(err)
				}
				if got := rec.shown(); got != c.want {
					t.Errorf("got\n%s\nwant\n%s", got, c.want)
				}
			}
			if rec.Time != 1767323045678 {
				t.Errorf("the time is %d", rec.Time)
			}
		})
	}
}

// Each event's envelope has the name of its own route, however many there were before it.
func TestEnvelopesAreNamedByTheirOwnRoute(t *testing.T) {
	t.Parallel()
	o := mustParse(t, Connect, map[string]string{optionPlacement: "type:envelope", "topic.prefix": "my-app", "schema.name.adjustment.mode": "avro"})
	r := bound(t, o)
	rec := newRecord()
	many := maxCached / entryBytes
	for i := range many + 10 {
		route := fmt.Sprint("r", i%(many+3))
		if err := r.built(row{route: route, key: "7", payload: "1"}.event(o), rec); err != nil {
			t.Fatal(err)
		}
		if want := `"name":"my_app.public.outbox.` + route + `.Value"`; !strings.Contains(string(rec.Value), want) {
			t.Fatalf("the value is %s, want %s", rec.Value, want)
		}
	}
}

// An envelope's schema is named after the topic that the table would have. The first four names are
// what the real Debezium made.
func TestEnvelopesAreNamedAfterATopic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ table, mode, want string }{
		{"out box", "none", "shop.public.out_box.order.Value"},
		{"1out-bö x", "none", "shop.public.1out-b__x.order.Value"},
		{"1out-bö x", "avro", "shop.public.1out_b__x.order.Value"},
		{"1out-bö x", "avro_unicode", "shop.public.1out_u002db_u005f_u005fx.order.Value"},
		{"out.box", "none", "shop.public.out.box.order.Value"},
		{"o😀", "none", "shop.public.o__.order.Value"}, // two units, as in Java
		{strings.Repeat("o", 250), "none", "shop.public." + strings.Repeat("o", 249-len("shop.public.")) + ".order.Value"},
	} {
		o := mustParse(t, Connect, map[string]string{optionPlacement: "type:envelope", "topic.prefix": "shop", "schema.name.adjustment.mode": c.mode})
		shape := outboxShape(nil)
		shape.Table = c.table
		rec := newRecord()
		if err := bound(t, o).built(row{route: "order", key: "7", payload: "1", shape: shape}.event(o), rec); err != nil {
			t.Fatal(err)
		}
		if want := `"name":"` + c.want + `"`; !strings.Contains(string(rec.Value), want) {
			t.Errorf("of %q under %s the value is %s, want %s", c.table, c.mode, rec.Value, want)
		}
	}
}

// A time within the millisecond before 1970 is 1970 to Debezium, which divides microseconds; what
// lies before that is too early.
func TestTimesAroundTheFirst(t *testing.T) {
	t.Parallel()
	o := mustParse(t, Connect, nil)
	r := bound(t, o)
	for micros, want := range map[int64]int64{0: 0, 999: 0, -1: 0, -500: 0, -999: 0, -1000: -1, -1999: -1, 1767323045678999: 1767323045678} {
		ev := row{route: "order", key: "7", payload: "1"}.event(o)
		ev.Time = time.UnixMicro(micros)
		rec := newRecord()
		if err := r.built(ev, rec); err != nil || rec.Time != want {
			t.Errorf("%d microseconds are %d milliseconds, %v; want %d", micros, rec.Time, err, want)
		}
	}
}

// Debezium Server leaves out headers that are null, the partition and the time.
func TestServer(t *testing.T) {
	t.Parallel()
	o := mustParse(t, Server, map[string]string{
		"format.key": "simplestring", "format.value": "simplestring", "format.header": "clientprovided", "format.header.class": classSimple,
		optionPlacement: "part:header,version:partition,type:header",
	})
	rec := newRecord()
	ev := row{route: "order", key: "7", payload: "1", columns: map[string]string{"version": "3"}}.event(o)
	if err := bound(t, o).built(ev, rec); err != nil {
		t.Fatal(err)
	}
	if want := `outbox.event.order -1 | 7 | 1 | id=10b1c3ff-1d4b-4f0e-8d38-000000000001 | type=none`; rec.shown() != want || rec.Time != ev.CommitTime.UnixMilli() {
		t.Errorf("got %s at %d", rec.shown(), rec.Time)
	}
	if string(rec.Exchange) != "outbox.event.order" || rec.RoutingKey == nil || len(rec.RoutingKey) != 0 {
		t.Errorf("it goes to %q, %q", rec.Exchange, rec.RoutingKey)
	}
}

// What cannot be rendered is an error that holds nothing of the row.
func TestCannotBuild(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	typed := func(column string, oid uint32) *event.Shape {
		return outboxShape(func(c map[string]*event.ColumnShape) { c[column].TypeOID = oid })
	}
	placed := map[string]string{optionPlacement: "part:partition"}
	for _, c := range []struct {
		name string
		o    map[string]string
		row  row
		want string
	}{
		{"no route", nil, row{null: "route", payload: secret}, "route.by.field is NULL"},
		{"a route that is no string", nil, row{route: "7", shape: typed("aggregatetype", pgtype.Int4OID)}, "int32, not string"},
		{"a type that is not rendered", nil, row{route: "a", payload: secret, shape: typed("payload", 600)}, "payload"},
		{"text that is not of its type", nil, row{route: "a", key: secret, shape: typed("aggregateid", pgtype.Int4OID)}, "aggregateid"},
		{"a partition below 0", placed, row{route: "a", columns: map[string]string{"part": "-1"}}, "below 0"},
		{"a partition of another type", placed, row{route: "a", columns: map[string]string{"part": "1"}, shape: typed("part", pgtype.Int8OID)}, "not int32"},
		{"a column that is not there", map[string]string{optionPlacement: "gone:header"}, row{route: "a"}, "no such column"},
		{
			"a version of another type",
			map[string]string{optionPlacement: "type:envelope", "topic.prefix": "p", optionVersion: "version"},
			row{route: "a", shape: typed("version", pgtype.TextOID)},
			"not int32",
		},
		{"bytes wanted", map[string]string{"value.converter": classBytes}, row{route: "a", payload: secret}, "bytes only"},
		{"an array that is expanded", map[string]string{"table.expand.json.payload": "true"}, row{route: "a", payload: `["` + secret + `"]`}, "value"},
	} {
		o := mustParse(t, Connect, c.o)
		rec := newRecord()
		err := bound(t, o).built(c.row.event(o), rec)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want an error about %q", c.name, err, c.want)
		}
		if c.name == "no route" && !errors.Is(err, errNoRoute) {
			t.Errorf("%v is not errNoRoute", err)
		}
	}
	o := mustParse(t, Connect, nil)
	ev := row{route: "a"}.event(o)
	ev.Columns, ev.Shape = nil, nil // deferred without a profile
	if err := bound(t, o).built(ev, newRecord()); !errors.Is(err, errNoShape) {
		t.Errorf("an event without a shape: %v", err)
	}
}

// Shapes of old rows do not pile up.
func TestShapesAreForgotten(t *testing.T) {
	t.Parallel()
	o := mustParse(t, Connect, nil)
	r := bound(t, o)
	for i := range 2 * maxTables {
		ev := row{route: "a", shape: outboxShape(func(c map[string]*event.ColumnShape) { c["aggregateid"].Typmod = int32(i) })}.event(o)
		if err := r.built(ev, newRecord()); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.tables) > maxTables {
		t.Errorf("%d shapes are kept", len(r.tables))
	}
}

// The usual converters allocate nothing for an event.
func TestBuildAllocates(t *testing.T) {
	for name, options := range map[string]map[string]string{
		"strings":  {"key.converter": classString, "value.converter": classString, optionPlacement: "type:header,part:partition"},
		"json":     {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false", optionPlacement: "type:header"},
		"schemas":  {optionPlacement: "type:header"},
		"envelope": {optionPlacement: "type:envelope", "topic.prefix": "p", optionVersion: "version"},
		"regex":    {"route.topic.regex": "([a-z]+)er", "route.topic.replacement": "$1"},
	} {
		o := mustParse(t, Connect, options)
		r, ev := bound(t, o), row{route: "order", key: "7", payload: `{"a": 1}`, columns: map[string]string{"type": "created", "part": "1", "version": "2"}}.event(o)
		rec := newRecord()
		if n := testing.AllocsPerRun(100, func() {
			if err := r.built(ev, rec); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: a record allocates %g times", name, n)
		}
	}
}

// Rows that are made to hurt, in every part that a record is made of: there is a record within the
// budget of the row, or the fault names the budget; and nothing large is kept.
func TestRecordsAreBounded(t *testing.T) {
	long := func(n int) string { return strings.Repeat("n", n) }
	nested := strings.Repeat(`{"`+long(1000)+`":`, 490) + "1" + strings.Repeat("}", 490)
	controls := strings.Repeat("\x01", 900_000)
	var names strings.Builder
	for i := range 120_000 {
		fmt.Fprintf(&names, `%c"name%d":1`, [...]rune{',', '{'}[max(0, 1-i)], i)
	}
	expand := map[string]string{"table.expand.json.payload": "true"}
	envelope := map[string]string{optionPlacement: "type:envelope", "topic.prefix": "p"}
	for _, c := range []struct {
		name string
		o    map[string]string
		row  row
		want error
	}{
		{"names within names", expand, row{route: "a", key: "7", payload: nested}, event.ErrBytes},
		{"distinct names with their schemas", expand, row{route: "a", key: "7", payload: names.String() + "}"}, nil},
		{"short names with their schemas", expand, row{route: "a", key: "7", payload: strings.ReplaceAll(names.String(), "name", "") + "}"}, nil},
		{"a key and a payload that are escaped", nil, row{route: "a", key: controls, payload: controls}, nil},
		{"a long route", envelope, row{route: long(900_000), key: "7", payload: "1"}, nil},
		{"a route of control characters", envelope, row{route: controls, key: "7", payload: "1"}, nil},
		{"a topic that repeats it", map[string]string{"route.topic.replacement": strings.Repeat("${routedByValue}", 20)}, row{route: long(900_000), key: "7", payload: "1"}, event.ErrBytes},
		{"headers with their schemas", map[string]string{"header.converter": classJSON, optionPlacement: "type:header:a,type:header:b,type:header:c"}, row{route: "a", key: "7", payload: "1", columns: map[string]string{"type": controls}}, event.ErrBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := mustParse(t, Connect, c.o)
			r, ev, rec := bound(t, o), c.row.event(o), newRecord()
			if err := r.built(ev, rec); !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if most := ev.Budget(); len(rec.Buf) > most.Left() {
				t.Errorf("%d bytes were made, of %d", len(rec.Buf), most.Left())
			}
			var placed sink.Record
			if fault := r.Place(ev, &placed); fault != nil && !errors.Is(c.want, event.ErrBytes) {
				t.Errorf("no place: %+v", fault)
			}
			rec.Record.Forget()
			if cap(rec.Buf)+cap(rec.scratch) > 128<<10 {
				t.Errorf("%d and %d bytes are kept", cap(rec.Buf), cap(rec.scratch))
			}
		})
	}
}

// What is made of routes that are made from data is kept by bytes.
func TestRoutesAreForgotten(t *testing.T) {
	t.Parallel()
	o := mustParse(t, Connect, map[string]string{optionPlacement: "type:envelope", "topic.prefix": "p"})
	r, rec := bound(t, o), newRecord()
	for _, size := range []int{900_000, 1000, 10} {
		for i := range 20_000_000 / max(size, 10_000) {
			if err := r.built(row{route: strings.Repeat("n", size) + fmt.Sprint(i), key: "7", payload: "1"}.event(o), rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	bytes := 0
	for value, topic := range r.o.topics.known.known {
		bytes += len(value) + len(topic)
	}
	for name, schema := range r.envelopes.known {
		bytes += len(name) + len(schema.Name)
	}
	if bytes == 0 || bytes > 2*maxCached {
		t.Errorf("%d bytes of names are kept, want %d at most, and some", bytes, 2*maxCached)
	}
}

// FuzzBuild: whatever a row holds, there is a record or an error, and no panic; the same row gives
// the same record again, within its budget.
func FuzzBuild(f *testing.F) {
	f.Add("order", "7", `{"a": 1}`, "created", uint32(pgtype.JSONBOID), uint32(pgtype.VarcharOID), "'none'::text", true, false)
	f.Add("order", strings.Repeat("\x01", 9), strings.Repeat(`{"12345678":`, 350)+"1"+strings.Repeat("}", 350), "", uint32(pgtype.JSONBOID), uint32(pgtype.TextOID), "", true, true)
	f.Add("", "", `[1, null]`, "", uint32(pgtype.ByteaOID), uint32(pgtype.NumericOID), "nextval('s'::regclass)", false, true)
	parsed := map[string]*Options{}
	for _, profile := range Profiles {
		for _, placed := range []string{"header", "envelope"} {
			for _, expand := range []string{"true", "false"} {
				parsed[profile+placed+expand] = mustParse(f, profile, map[string]string{"table.expand.json.payload": expand, "topic.prefix": "p", optionPlacement: "type:" + placed})
			}
		}
	}
	f.Fuzz(func(t *testing.T, route, key, payload, typ string, payloadType, keyType uint32, def string, expand, enveloped bool) {
		placed := "header"
		if enveloped {
			placed = "envelope"
		}
		for _, profile := range Profiles {
			o := parsed[profile+placed+fmt.Sprint(expand)]
			shape := outboxShape(func(c map[string]*event.ColumnShape) {
				c["payload"].TypeOID, c["aggregateid"].TypeOID, c["type"].Default = payloadType, keyType, &def
			})
			ev := row{route: route, key: key, payload: payload, columns: map[string]string{"type": typ}, shape: shape}.event(o)
			a, b := newRecord(), newRecord()
			first, second := bound(t, o).built(ev, a), bound(t, o).built(ev, b)
			if most := ev.Budget(); len(a.Buf) > most.Left() {
				t.Fatalf("%d bytes of a row of %d", len(a.Buf), ev.Size())
			}
			if (first == nil) != (second == nil) || first == nil && a.shown() != b.shown() {
				t.Fatalf("%v %s, then %v %s", first, a.shown(), second, b.shown())
			}
		}
	})
}

// Rows of one table before and after it was altered come through one router: each is rendered by
// its own shape.
func TestEachRowHasItsOwnShape(t *testing.T) {
	t.Parallel()
	o := mustParse(t, Connect, nil)
	r := bound(t, o)
	altered := outboxShape(func(c map[string]*event.ColumnShape) { c["aggregateid"].NotNull = true })
	rec := newRecord()
	for range 2 {
		for shape, want := range map[*event.Shape]string{outboxShape(nil): "true", altered: "false"} {
			if err := r.built(row{route: "a", key: "7", payload: "1", shape: shape}.event(o), rec); err != nil {
				t.Fatal(err)
			}
			if got := string(rec.Key); got != `{"schema":{"type":"string","optional":`+want+`},"payload":"7"}` {
				t.Errorf("the key is %s", got)
			}
		}
	}
}
