package debezium

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func mustParse(t testing.TB, profile string, options map[string]string) *Options {
	t.Helper()
	o, faults := Parse(profile, options)
	if len(faults) > 0 {
		t.Fatalf("%+v", faults)
	}
	return o
}

// Every option is taken with its default written out, and means then what it means when it is left
// out.
func TestDefaults(t *testing.T) {
	t.Parallel()
	written := map[string]string{
		"table.field.event.id": "id", "table.field.event.key": "aggregateid", "table.field.event.type": "type", "table.field.event.payload": "payload",
		"table.field.additional.missing": "error", "table.expand.json.payload": "false", "table.json.payload.null.behavior": "ignore",
		"table.json.payload.empty.array.behavior": "ignore", "table.op.invalid.behavior": "warn", "route.by.field": "aggregatetype",
		"route.topic.regex": "(?<routedByValue>.*)", "route.topic.replacement": "outbox.event.${routedByValue}", "route.tombstone.on.empty.payload": "false",
		"tracing.span.context.field": "tracingspancontext", "tracing.operation.name": "debezium-read", "tracing.with.context.field.only": "true",
		"binary.handling.mode": "bytes", "time.precision.mode": "adaptive", "decimal.handling.mode": "precise",
		"field.name.adjustment.mode": "none", "schema.name.adjustment.mode": "none",
	}
	of := map[string]map[string]string{
		Connect: {
			"key.converter": classJSON, "value.converter": classJSON, "header.converter": classSimple, "key.converter.schemas.enable": "true",
			"value.converter.decimal.format": "BASE64", "value.converter.replace.null.with.default": "true",
		},
		Server: {
			"format.key": "json", "format.value": "json", "format.header": "json", "format.schemas.enable": "true",
			"sink.rabbitmq.exchange": "", "sink.rabbitmq.routingKey": "", "sink.rabbitmq.routingKey.source": "static", "sink.rabbitmq.deliveryMode": "2",
			"sink.rabbitmq.null.value": "default", "sink.rabbitmq.autoCreateRoutingKey": "false", "sink.rabbitmq.routingKeyDurable": "true",
			"sink.rabbitmq.routingKeyFromTopicName": "false",
		},
	}
	for _, profile := range Profiles {
		all := maps.Clone(written)
		maps.Copy(all, of[profile])
		got, want := mustParse(t, profile, all), mustParse(t, profile, nil)
		got.topics, want.topics = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the defaults make %+v, nothing makes %+v", profile, got, want)
		}
	}
}

// Each thing that is wrong is one fault, of the option that it is about; all of them are reported
// at once.
func TestFaults(t *testing.T) {
	t.Parallel()
	type options = map[string]string
	for _, c := range []struct {
		profile string
		given   options
		option  string
		words   string
	}{
		{Connect, options{"table.field.event.kye": "a"}, "table.field.event.kye", "unknown option"},
		{Connect, options{"sink.rabbitmq.exchange": "a"}, "sink.rabbitmq.exchange", "unknown option"},
		{Server, options{"key.converter": classString}, "key.converter", "unknown option"},
		{Connect, options{"transforms.outbox.route.by.field": "a"}, "transforms.outbox.route.by.field", "unknown option"},
		{Connect, options{"table.field.event.key": ""}, "table.field.event.key", "names no column"},
		{Connect, options{"table.field.event.timestamp": ""}, "table.field.event.timestamp", "names no column"},
		{Connect, options{"table.field.additional.missing": "warn"}, "table.field.additional.missing", "want one of error, ignore"},
		{Connect, options{"table.expand.json.payload": "yes"}, "table.expand.json.payload", "want true or false"},
		{Connect, options{"table.op.invalid.behavior": "die"}, "table.op.invalid.behavior", "want one of warn, error, fatal"},
		{Connect, options{"table.fields.additional.placement": ""}, optionPlacement, "want column:placement"},
		{Connect, options{"table.fields.additional.placement": "type"}, optionPlacement, "want column:placement"},
		{Connect, options{"table.fields.additional.placement": "a:header:b:c"}, optionPlacement, "want column:placement"},
		{Connect, options{"table.fields.additional.placement": "a:head"}, optionPlacement, "want header, envelope or partition"},
		{Connect, options{"table.fields.additional.placement": ":header"}, optionPlacement, "without a name"},
		{Connect, options{"table.fields.additional.placement": "a:envelope,b:envelope:a", "topic.prefix": "p"}, optionPlacement, `"a" in the envelope twice`},
		{Connect, options{"table.fields.additional.placement": "a:envelope:payload", "topic.prefix": "p"}, optionPlacement, `"payload" in the envelope twice`},
		{Connect, options{"table.fields.additional.placement": "a:envelope"}, optionPlacement, "topic.prefix"},
		{Connect, options{"route.topic.regex": "("}, "route.topic.regex", "RE2"},
		{Connect, options{"route.topic.replacement": "${nobody}"}, "route.topic.replacement", "${nobody}"},
		{Connect, options{"time.precision.mode": "exact"}, "time.precision.mode", "want one of adaptive"},
		{Connect, options{"time.precision.mode": "connect", "table.field.event.timestamp": "at"}, "time.precision.mode", "cannot stand beside"},
		{Connect, options{"value.converter": "io.confluent.connect.avro.AvroConverter"}, "value.converter", "is not taken here"},
		{Connect, options{"header.converter": classBinary}, "header.converter", "for keys and values"},
		{Connect, options{"value.converter": classSimple}, "value.converter", "for headers"},
		{Connect, options{"value.converter": classBinary, "value.converter.delegate.converter.type": classBinary}, "value.converter.delegate.converter.type", "is not taken here"},
		{Connect, options{"key.converter": classString, "key.converter.converter.encoding": "ISO-8859-1"}, "key.converter.converter.encoding", "UTF-8"},
		{Connect, options{"value.converter.schemas.enable": "no"}, "value.converter.schemas.enable", "want true or false"},
		{Connect, options{"value.converter.decimal.format": "TEXT"}, "value.converter.decimal.format", "BASE64"},
		{Connect, options{"predicate": "isOutbox"}, "predicate", "is not taken"},
		{Server, options{"format.value": "avro"}, "format.value", "is not taken here"},
		{Server, options{"format.header": "simplestring"}, "format.header", "want json, jsonbytearray or clientprovided"},
		{Server, options{"format.header": "clientprovided"}, "format.header", "format.header.class"},
		{Server, options{"format.key.class": classString}, "format.key.class", "clientprovided"},
		{Server, options{"sink.rabbitmq.routingKey.source": "route"}, "sink.rabbitmq.routingKey.source", "want one of static, topic, key"},
		{Server, options{"sink.rabbitmq.routingKey.source": "key", "format.key": "binary"}, "sink.rabbitmq.routingKey.source", "format.key json or simplestring"},
		{Server, options{"sink.rabbitmq.deliveryMode": "3"}, "sink.rabbitmq.deliveryMode", "want one of 2, 1"},
		{Server, options{"sink.rabbitmq.autoCreateRoutingKey": "true"}, "sink.rabbitmq.autoCreateRoutingKey", "declares a queue"},
		{Server, options{"sink.rabbitmq.ackTimeout": "1"}, "sink.rabbitmq.ackTimeout", "delivery.confirm_timeout"},
	} {
		o, faults := Parse(c.profile, c.given)
		if o != nil || len(faults) != 1 || faults[0].Option != c.option || !strings.Contains(faults[0].Words, c.words) || faults[0].Unknown != (c.words == "unknown option") {
			t.Errorf("%v gives %+v, want one about %s: %s", c.given, faults, c.option, c.words)
		}
	}
	if _, faults := Parse(Connect, options{"a": "b", "route.topic.regex": "(", "table.field.event.id": "", "key.converter": "x"}); len(faults) != 4 {
		t.Errorf("four faults are reported as %+v", faults)
	}
	if _, faults := Parse("debezium", nil); len(faults) != 1 {
		t.Errorf("an unknown profile gives %+v", faults)
	}
}

// What a placement means does not depend on white space, on the case of the placement, or on commas
// at its end.
func TestPlacement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want []placement
		var list []string
		space := func() string { return rapid.SampledFrom([]string{"", " ", "\t "}).Draw(t, "space") }
		for i := range rapid.IntRange(1, 5).Draw(t, "entries") {
			p := placement{
				column: rapid.StringMatching(`[a-z_]{1,8}`).Draw(t, "column"),
				where:  rapid.SampledFrom([]placed{inHeader, inEnvelope, asPartition}).Draw(t, "where"),
			}
			word := [...]string{"header", "envelope", "partition"}[p.where]
			if rapid.Bool().Draw(t, "loud") {
				word = strings.ToUpper(word)
			}
			entry := space() + p.column + space() + ":" + space() + word + space()
			p.alias = p.column
			if p.where == inEnvelope || rapid.Bool().Draw(t, "has alias") {
				// no two the same
				p.alias = rapid.StringMatching(`[A-Z][A-Za-z]{0,6}`).Draw(t, "alias") + string(rune('0'+i))
				entry += ":" + space() + p.alias + space()
			}
			want, list = append(want, p), append(list, entry)
		}
		text := strings.Join(list, ",") + strings.Repeat(",", rapid.IntRange(0, 2).Draw(t, "commas"))
		got, err := parsePlacement(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is read as %+v, %v", text, got, err)
		}
	})
}

// The columns are those that are named, each once; a version without an envelope is not read.
func TestColumns(t *testing.T) {
	t.Parallel()
	o := mustParse(t, Connect, map[string]string{
		"table.fields.additional.placement": "type:header:eventType,type:header,part:partition,tenant:header", "table.field.event.schema.version": "version",
		"table.field.additional.missing": "ignore", "table.field.event.timestamp": "at",
	})
	want := Columns{
		ID: "id", Route: "aggregatetype", Key: "aggregateid", Payload: "payload", Timestamp: "at",
		Extra: []string{"part", "tenant", "type"}, Optional: []string{"type", "type", "part", "tenant"},
	}
	if got := o.Columns(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	o = mustParse(t, Connect, map[string]string{"table.fields.additional.placement": "a:envelope", "table.field.event.schema.version": "version", "topic.prefix": "p"})
	if got := o.Columns().Extra; !reflect.DeepEqual(got, []string{"a", "version"}) {
		t.Errorf("got %q", got)
	}
}

// FuzzParse: whatever the options say, there are options or faults, and each fault is about an
// option that was given or could be.
func FuzzParse(f *testing.F) {
	f.Add("route.topic.regex", "(?<a>.*)", "route.topic.replacement", "${a}$")
	f.Add("table.fields.additional.placement", "a:header:b,c:envelope", "topic.prefix", "p")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		for _, profile := range Profiles {
			o, faults := Parse(profile, map[string]string{a: b, c: d})
			if (o == nil) != (len(faults) > 0) {
				t.Fatalf("%v, %v", o, faults)
			}
			for _, fault := range faults {
				if fault.Option != a && fault.Option != c && !slices.Contains(Known(profile), fault.Option) {
					t.Fatalf("a fault of %q", fault.Option)
				}
			}
		}
	})
}

// Types with which no row would have a record are reported before there is one.
func TestMisfits(t *testing.T) {
	t.Parallel()
	o := mustParse(t, Connect, map[string]string{
		optionPlacement: "part:partition,type:envelope,at:header", "topic.prefix": "p", optionVersion: "version",
	})
	columns := func(types map[string]uint32) (list []event.ColumnShape) {
		for _, name := range []string{"id", "aggregatetype", "aggregateid", "payload", "part", "type", "at", "version"} {
			oid := uint32(pgtype.TextOID)
			if name == "part" || name == "version" {
				oid = pgtype.Int4OID
			}
			if other, ok := types[name]; ok {
				oid = other
			}
			shape := event.ColumnShape{Name: name, TypeOID: oid, Typmod: -1}
			if oid >= event.FirstMadeType {
				shape.Type = "public.point3d"
			}
			list = append(list, shape)
		}
		return list
	}
	for name, oid := range map[string]uint32{
		"aggregatetype": pgtype.Int4OID, "part": pgtype.Int8OID, "version": pgtype.TextOID, "payload": pgtype.PointOID, "at": pgtype.PointOID,
		"id": pgtype.PointOID, "aggregateid": pgtype.PointOID,
	} {
		if got := o.Misfits(columns(map[string]uint32{name: oid})); len(got) != 1 || !strings.Contains(got[0], `"`+name+`"`) {
			t.Errorf("%s of type %d gives %q", name, oid, got)
		}
		if got := o.Misfits(columns(map[string]uint32{name: 16400})); len(got) != 1 || !strings.Contains(got[0], `"`+name+`"`) {
			t.Errorf("%s of an extension's type gives %q", name, got)
		}
	}
	server := mustParse(t, Server, map[string]string{optionPlacement: "part:partition"})
	if got := server.Misfits(columns(map[string]uint32{"part": 16400})); got != nil {
		t.Errorf("Debezium Server has no partitions, and their column's type gives %q", got)
	}
	if got := o.Misfits(columns(map[string]uint32{"aggregatetype": pgtype.UUIDOID, "aggregateid": pgtype.Int8OID, "payload": pgtype.ByteaOID})); got != nil {
		t.Errorf("good types give %q", got)
	}
}
