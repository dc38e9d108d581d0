package cases

// This file has Debezium Server's formats and destinations.

// serverTypes are the types for Debezium Server: fewer, because its converters are the ones of
// Kafka Connect.
var serverTypes = []typed{
	{"jsonb", "jsonb", []string{`'{"b": 1, "a": [1, 2.50]}'`}},
	{"text", "text", []string{`'plain "text"'`, `''`, `NULL`}},
	{"unicode", "text", []string{unicode}},
	{"control", "text", []string{control}},
	{"bigint", "bigint", []string{`17`}},
	{"uuid", "uuid NOT NULL", []string{`'10711fa5-0000-4000-8000-00000000000f'`}},
}

var serverKeys = []typed{
	{"key-text", "text NOT NULL", []string{`'10711fa5'`}},
	{"key-null", "text", []string{`NULL`}},
	{"key-empty", "text", []string{`''`}},
	{"key-unicode", "text", []string{unicode}},
	{"key-bigint", "bigint NOT NULL", []string{`42`}},
	{"key-uuid", "uuid NOT NULL", []string{`'10711fa5-0000-4000-8000-00000000000f'`}},
}

// onServer is a group of types.
func onServer(name string, options map[string]string, payloads, keys []typed) Group {
	g := Group{Name: name, Profile: Server, Options: options, Source: viaRoot}
	g.Setup, g.Tables, g.Cases = ofTypes(payloads, keys)
	setup, tables, all := transactions()
	g.Setup, g.Tables, g.Cases = append(g.Setup, setup...), append(g.Tables, tables...), append(g.Cases, all...)
	return g
}

// ofServer is a group of Debezium Server with placed columns.
func ofServer(name string, options map[string]string) Group {
	g := placements(name, options)
	g.Profile = Server
	return g
}

const (
	placement = "table.fields.additional.placement"
	someOther = "type:header:eventType,tenant:header,version:header,flag:header,ratio:header,raw:header,at:header,zoned:header,meta:header"
)

// simple are the formats for plain text, with headers as JSON without schemas.
var simple = map[string]string{"format.key": "simplestring", "format.value": "simplestring", "format.header.schemas.enable": "false"}

func serverKafka() []Group {
	tombstone := tombstones("server-tombstone", map[string]string{"format.key": "simplestring"})
	tombstone.Profile = Server
	bytea := Group{
		Name: "server-binary", Profile: Server, Options: map[string]string{"format.key": "simplestring", "format.value": "binary"},
		Setup: []string{outbox("outbox", "bytea")}, End: row("outbox", `'\x656e64'`),
		Cases: []Case{{Name: "bytea", SQL: []string{row("outbox", `'\x00ff10'`), row("outbox", `NULL`), row("outbox", `'\x'`)}}},
	}
	at := timestamps()
	at.Name, at.Profile, at.Options = "server-timestamp", Server, with(simple, "table.field.event.timestamp", "at")
	return []Group{
		onServer("server-json", nil, serverTypes, serverKeys),
		onServer("server-simplestring", oneTopic("server-simplestring", simple), serverTypes, serverKeys),
		onServer("server-json-bare", oneTopic("server-json-bare", map[string]string{"format.schemas.enable": "false"}), serverTypes, serverKeys),
		ofServer("server-headers", map[string]string{placement: everyHeader}),
		ofServer("server-headers-bare", with(simple, placement, everyHeader)),
		ofServer("server-headers-bytes", map[string]string{"format.header": "jsonbytearray", "format.key.schemas.enable": "false", placement: someOther}),
		ofServer("server-headers-simple", with(simple, "format.header", "clientprovided", "format.header.class", simpleConverter, placement, everyHeader)),
		ofServer("server-envelope", map[string]string{"format.value.schemas.enable": "false", placement: everyField + ",part:partition"}),
		ofServer("server-envelope-schemas", map[string]string{placement: "type:envelope:eventType,version:envelope,meta:envelope"}),
		traced("server-tracing", Server, with(simple, "tracing.span.context.field", "tenant")),
		{
			Name: "server-expand", Profile: Server, Options: map[string]string{"format.value.schemas.enable": "false", "table.expand.json.payload": "true"},
			Cases: []Case{{Name: "object", SQL: []string{row("outbox", `'{"b": 1, "a": {"c": "x", "d": [1, 2]}}'`), row("outbox", `NULL`)}}},
		},
		{
			Name: "server-route", Profile: Server, Options: with(simple, "route.topic.regex", "(.*)\\.(.*)", "route.topic.replacement", "$1.to.$2"),
			Cases: []Case{{Name: "groups", SQL: []string{row("outbox", `'{"a": 1}'`)}}},
		},
		tombstone, bytea, at,
	}
}
