package cases

import "maps"

// This file has the options of the Event Router and of the connector, under Kafka Connect.

// placed is an outbox with columns of many types to place elsewhere.
var placed = outbox("outbox", "jsonb", "tenant text", "version integer NOT NULL DEFAULT 1", "big bigint", "flag boolean", "ratio double precision", "price numeric(8,2)",
	"ref uuid", "raw bytea", "day date", "at timestamp", "zoned timestamptz", "meta jsonb", "part integer")

const (
	placedColumns = "payload, tenant, version, big, flag, ratio, price, ref, raw, day, at, zoned, meta, part"
	placedValues  = `'{"a": 1}', 'te"nant é', 7, 9007199254740993, true, 1e7, 12.30, '10711fa5-0000-4000-8000-00000000000f', '\x00ff', '2026-01-02',
		'2026-01-02 03:04:05.678901', '2026-01-02 03:04:05.678901+02', '{"k": [1]}', 3`
	placedNulls = `NULL, NULL, 7, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 4`
	everyHeader = "type:header:eventType,tenant:header,version:header,big:header,flag:header:is flag,ratio:header,price:header,ref:header,raw:header,day:header,at:header,zoned:header,meta:header"
	everyField  = "type:envelope:eventType, tenant:envelope ,version:envelope,big:envelope,flag:envelope,ratio:envelope,price:envelope,ref:envelope,raw:envelope,day:envelope,at:envelope,zoned:envelope,meta:envelope"
)

func placements(name string, options map[string]string) Group {
	return Group{Name: name, Profile: Connect, Options: options, Setup: []string{placed}, Cases: []Case{
		{Name: "values", SQL: []string{insert("outbox", placedColumns, placedValues)}},
		{Name: "nulls", SQL: []string{insert("outbox", placedColumns, placedNulls)}},
		{Name: "defaults", SQL: []string{insert("outbox", "payload, part", `'{"b": 2}', 5`)}},
	}, End: insert("outbox", "payload, part", `'{"end": true}', 0`)}
}

func connectOptions() []Group {
	headers := with(plainText, "table.fields.additional.placement", everyHeader)
	envelope := "table.fields.additional.placement"
	all := []Group{
		placements("headers-simple", headers),
		placements("headers-json-schemas", with(headers, "header.converter", jsonConverter)),
		placements("headers-json", with(headers, "header.converter", jsonConverter, "header.converter.schemas.enable", "false")),
		placements("headers-string", with(headers, "header.converter", stringConverter)),
		placements("envelope-schemas", with(schemas, envelope, everyField)),
		placements("envelope", with(noSchemas, envelope, everyField)),
		placements("placements-mixed", with(noSchemas, envelope, "type:envelope:eventType,part:partition,tenant:HEADER:tenant,version:Envelope:v")),
		placements("partition", with(plainText, envelope, "part:partition")),
		placements("schema-version", with(schemas, envelope, "tenant:envelope", "table.field.event.schema.version", "version")),
		placements("missing-ignored", with(plainText, envelope, "type:header,absent:header,tenant:header", "table.field.additional.missing", "ignore")),
		traced("tracing", Connect, with(plainText, "tracing.span.context.field", "tenant", "tracing.operation.name", "read", "tracing.with.context.field.only", "true")),
		tombstones("tombstone", plainText), tombstones("tombstone-json", noSchemas), tombstones("tombstone-schemas", schemas),
		columns(), timestamps(),
		routed("route-replacement", "aggregatetype", "", "${routedByValue}.events"),
		routed("route-field", "type", "", ""),
		routed("route-groups", "aggregatetype", `([a-z-]+)\.(?<what>.+)`, "to.${what}.$1"),
		routed("route-no-match", "aggregatetype", "[0-9]+", "never"),
		routed("route-alternatives", "aggregatetype", `route|route-alternatives\..*`, "to.$0"),
		routed("defaults", "aggregatetype", "", ""),
		routed("no-context", "aggregatetype", "", ""),
		odd("odd-values", schemas), odd("odd-values-string", plainText),
		routed("route-constant", "aggregatetype", ".*", "all-of-route-constant"),
	}
	for i := range all {
		switch all[i].Name {
		case "defaults": // of Kafka Connect's sample configuration: JSON with schemas
			all[i].Options = nil
		case "no-context": // nothing has to be left out of the comparison
			all[i].Source = map[string]string{"extended.headers.enabled": "false"}
		}
	}
	for _, m := range []struct{ name, binary, time, decimal string }{
		{"modes-hex-connect-string", "hex", "connect", "string"},
		{"modes-base64-micros-double", "base64", "adaptive_time_microseconds", "double"},
		{"modes-url-iso-precise", "base64-url-safe", "isostring", "precise"},
		{"modes-microseconds", "bytes", "microseconds", "precise"},
		{"modes-nanoseconds", "bytes", "nanoseconds", "precise"},
	} {
		g := Group{Name: m.name, Profile: Connect, Options: with(schemas, "binary.handling.mode", m.binary, "time.precision.mode", m.time, "decimal.handling.mode", m.decimal)}
		g.Setup, g.Tables, g.Cases = ofTypes(append(modes[:len(modes):len(modes)], typed{"bytea", "bytea", []string{`'\xfffefd00'`, `NULL`}}), nil)
		all = append(all, g)
	}
	return append(all, expanded()...)
}

// traced has a column with a trace context as Debezium wants it, java.util.Properties. Without an
// agent beside it, Debezium sends none.
func traced(name, profile string, options map[string]string) Group {
	return Group{Name: name, Profile: profile, Options: options, Setup: []string{outbox("outbox", "jsonb", "tenant text")}, Cases: []Case{
		{Name: "context", SQL: []string{insert("outbox", "payload, tenant", `'{"a": 1}', E'traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n'`)}},
		{Name: "none", SQL: []string{insert("outbox", "payload, tenant", `'{"a": 1}', NULL`)}},
	}}
}

// odd has values at the ends of their types.
func odd(name string, options map[string]string) Group {
	g := Group{Name: name, Profile: Connect, Options: oneTopic(name, options)}
	g.Setup, g.Tables, g.Cases = ofTypes([]typed{
		{"double-odd", "double precision", []string{`'NaN'`, `'Infinity'`, `'-Infinity'`}},
		{"real-odd", "real", []string{`'NaN'`, `'Infinity'`}},
		{"date-odd", "date", []string{`'0044-03-15 BC'`, `'9999-12-31'`, `'0001-01-01'`, `'1582-10-04'`}},
		{"timestamp-odd", "timestamp", []string{`'0044-03-15 00:00:00 BC'`, `'9999-12-31 23:59:59.999999'`, `'1582-10-04 12:00:00'`}},
		{"timestamptz-odd", "timestamptz", []string{`'0044-03-15 00:00:00+00 BC'`, `'9999-12-31 23:59:59.999999+00'`, `'1582-10-04 12:00:00+00'`}},
		{"time-odd", "time", []string{`'24:00:00'`, `'00:00:00'`}},
		{"date-infinity", "date", []string{`'infinity'`, `'-infinity'`}},
		{"timestamp-infinity", "timestamp", []string{`'infinity'`, `'-infinity'`}},
		{"timestamptz-infinity", "timestamptz", []string{`'infinity'`, `'-infinity'`}},
		{"numeric-nan", "numeric(10,2)", []string{`'NaN'`}},
	}, nil)
	g.differs("numeric-nan", NumericNaN, "Debezium sends a null: a dead letter")
	return g
}

// tombstones are empty payloads.
func tombstones(name string, options map[string]string) Group {
	g := Group{Name: name, Profile: Connect, Options: with(options, "route.tombstone.on.empty.payload", "true")}
	g.Setup, g.Tables, g.Cases = ofTypes([]typed{
		{"null", "text", []string{`NULL`}},
		{"empty", "text", []string{`''`}},
		{"blank", "text", []string{`E' \t\n'`}},
		{"null-text", "text", []string{`'null'`}},
		{"null-jsonb", "jsonb", []string{`'null'`, `NULL`, `'""'`}},
		{"null-bytea", "bytea", []string{`NULL`}},
		{"full", "text", []string{`'text'`}},
	}, nil)
	return g
}

// columns has every column under another name.
func columns() Group {
	return Group{
		Name: "columns", Profile: Connect, Options: with(plainText, "table.field.event.id", "event id", "table.field.event.key", "Key", "table.field.event.type", "kind",
			"table.field.event.payload", "body", "route.by.field", "topic", "table.fields.additional.placement", "kind:header:eventType"),
		Setup: []string{`CREATE TABLE outbox ("event id" bigint PRIMARY KEY, "Key" text, topic varchar(80) NOT NULL, kind text, body text)`},
		Cases: []Case{{Name: "renamed", SQL: []string{`INSERT INTO outbox VALUES ({n}, 'k', '{route}', 'Placed', 'text')`}}},
		End:   `INSERT INTO outbox VALUES ({n}, 'k', '{route}', 'Placed', 'end')`,
	}
}

// timestamps is the group about the times of records.
func timestamps() Group {
	return Group{
		Name: "timestamp", Profile: Connect, Options: with(plainText, "table.field.event.timestamp", "at"),
		Setup: []string{outbox("outbox", "jsonb", "at timestamp"), outbox("millis", "jsonb", "at timestamp(3)")}, Tables: []string{"outbox", "millis"},
		Cases: []Case{
			{Name: "micros", SQL: []string{insert("outbox", "payload, at", `'{}', '2020-01-02 03:04:05.678999'`)}},
			{Name: "millis", SQL: []string{insert("millis", "payload, at", `'{}', '2020-01-02 03:04:05.678'`)}},
			{Name: "null", SQL: []string{insert("outbox", "payload, at", `'{}', NULL`)}},
			{Name: "epoch", SQL: []string{insert("outbox", "payload, at", `'{}', '1970-01-01 00:00:00'`)}},
		},
	}
}

// routed is a group with these options of the topic.
func routed(name, by, regex, replacement string) Group {
	g := Group{Name: name, Profile: Connect, Options: maps.Clone(plainText), Cases: []Case{
		{Name: "placed", SQL: []string{insert("outbox", "payload", `'{"a": 1}'`)}},
		{Name: "Mixed.Case", SQL: []string{insert("outbox", "payload", `'{"a": 1}'`)}},
	}}
	for option, value := range map[string]string{"route.by.field": by, "route.topic.regex": regex, "route.topic.replacement": replacement} {
		if value != "" {
			g.Options[option] = value
		}
	}
	return g
}

// expanded are payloads that become structs.
func expanded() []Group {
	payloads := []Case{
		{Name: "object", SQL: []string{row("outbox", `'{"b": 1, "a": "x", "c": {"d": true, "e": 2147483648, "f": 1.5}}'`)}},
		{Name: "numbers", SQL: []string{row("outbox", `'{"int": 2147483647, "long": 9223372036854775807, "double": 1e7, "hundred": 100.0, "small": 0.0001, "minus": -1}'`)}},
		{Name: "doubles", SQL: []string{row("as_json", `'{"e": 1e7, "one": 1.0, "tiny": 1e-7, "sum": 0.30000000000000004, "long": 123456789012345678.5}'`)}},
		{Name: "deep", SQL: []string{row("outbox", `'{"a": {"b": {"c": [[1, 2], [3]]}}, "d": [{"e": {"f": ["x"]}}]}'`)}},
		{Name: "nulls", SQL: []string{row("outbox", `'{"a": null, "b": 1}'`)}},
		{Name: "arrays", SQL: []string{row("outbox", `'{"ints": [1, 2], "texts": ["a", "b"], "objects": [{"a": 1}, {"a": 2}]}'`)}},
		{Name: "empty-array", SQL: []string{row("outbox", `'{"a": [], "b": 1}'`)}},
		{Name: "mixed-array", SQL: []string{row("outbox", `'{"a": [1, "b"]}'`)}},
		{Name: "empty-object", SQL: []string{row("outbox", `'{}'`), row("outbox", `'{"a": {}}'`)}},
		{Name: "unicode", SQL: []string{row("outbox", `'{"é": "\u0001 \"q\" 😀"}'`)}},
		{Name: "verbatim", SQL: []string{row("as_json", `'{ "b" : 1, "a" : [ "x" ] }'`)}},
		{Name: "not-json", SQL: []string{row("as_text", `'plain'`), row("as_text", `' {"a": 1}'`), row("as_text", `'{"a": '`)}},
		{Name: "null", SQL: []string{row("outbox", `NULL`)}},
	}
	group := func(name string, options map[string]string, more ...string) Group {
		return Group{
			Name: name, Profile: Connect, Options: with(with(options, "table.expand.json.payload", "true"), more...), Cases: payloads,
			Setup: []string{outbox("outbox", "jsonb"), outbox("as_json", "json"), outbox("as_text", "text")}, Tables: []string{"outbox", "as_json", "as_text"},
		}
	}
	return []Group{
		group("expand", noSchemas),
		group("expand-schemas", schemas),
		group("expand-nulls", schemas, "table.json.payload.null.behavior", "optional_bytes"),
		group("expand-envelope", noSchemas, "table.fields.additional.placement", "type:envelope:eventType"),
		{
			Name: "expand-names-avro", Profile: Connect, Options: with(schemas, "table.expand.json.payload", "true", "field.name.adjustment.mode", "avro"),
			Cases: []Case{{Name: "odd-names", SQL: []string{row("outbox", `'{"a-b": 1, "1c": 2, "d e": {"f.g": 3}, "é": 4}'`)}}},
		},
		{
			Name: "expand-names", Profile: Connect, Options: with(schemas, "table.expand.json.payload", "true", "schema.name.adjustment.mode", "avro"),
			Cases: []Case{{Name: "odd-names", SQL: []string{row("outbox", `'{"a-b": 1, "1c": 2, "d e": {"f.g": 3}}'`)}}},
		},
	}
}
