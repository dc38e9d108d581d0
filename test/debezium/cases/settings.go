package cases

// settings are options of converters, formats and names, and types of columns, that no other group
// has.
func settings() []Group {
	legacy := "io.debezium.converters.ByteArrayConverter"
	of := func(name string, options map[string]string, setup []string, payloads, keys []typed) Group {
		g := Group{Name: name, Profile: Connect, Options: oneTopic(name, options)}
		g.Setup, g.Tables, g.Cases = ofTypes(payloads, keys)
		g.Setup = append(setup, g.Setup...)
		return g
	}
	numbers := []typed{
		{"numeric-scale", "numeric(10,2)", []string{`1.10`, `-12345678.90`, `NULL`}}, {"numeric", "numeric", []string{`1.10`, `12345678901234567890.5`}},
	}
	nulls := []typed{
		{"null", "text", []string{`NULL`}}, {"default", "text DEFAULT 'some'", []string{`NULL`, `'other'`}}, {"number-default", "integer DEFAULT 7", []string{`NULL`}},
	}
	others := []string{"CREATE EXTENSION IF NOT EXISTS citext", "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)", "CREATE DOMAIN short AS varchar(20) NOT NULL DEFAULT 'short'"}
	own := []typed{{"citext", "citext", []string{`'Text'`}}, {"domain", "positive", []string{`17`, `NULL`}}, {"domain-of-text", "short", []string{`'domain'`}}}
	ownKeys := []typed{{"key-citext", "citext NOT NULL", []string{`'Key'`}}, {"key-domain", "positive NOT NULL", []string{`18`}}, {"key-enum", "mood NOT NULL", []string{`'sad'`}}}
	names := with(schemas, placement, "type:envelope:event-type", "schema.name.adjustment.mode", "avro_unicode", "field.name.adjustment.mode", "avro_unicode", "table.expand.json.payload", "true")
	odd := []Case{{Name: "odd-names", SQL: []string{row("outbox", `'{"a-b": 1, "1c": {"d e": "x"}}'`)}}}
	serverTexts := []Case{{Name: "text", SQL: []string{row("outbox", `'plain "text" é'`), row("outbox", `NULL`)}}}
	server := func(name string, options map[string]string) Group {
		return Group{Name: name, Profile: Server, Options: options, Setup: []string{outbox("outbox", "text")}, Cases: serverTexts}
	}
	return []Group{
		of("decimal-numeric", with(schemas, "value.converter.decimal.format", "NUMERIC"), nil, numbers, []typed{{"key-numeric", "numeric(6,2) NOT NULL", []string{`1.50`}}}),
		of("decimal-numeric-bare", with(noSchemas, "value.converter.decimal.format", "NUMERIC", "key.converter.decimal.format", "numeric"), nil, numbers,
			[]typed{{"key-numeric", "numeric(6,2) NOT NULL", []string{`1.50`}}}),
		of("nulls-kept", with(schemas, "value.converter.replace.null.with.default", "false"), nil, nulls, nil),
		of("nulls-kept-bare", with(noSchemas, "value.converter.replace.null.with.default", "false"), nil, nulls, nil),
		of("own-types", schemas, others, own, ownKeys),
		of("own-types-string", plainText, others, own, ownKeys),
		{
			Name: "bytes-key", Profile: Connect, Options: with(plainText, "key.converter", bytesConverter), Setup: []string{keyed("outbox", "bytea")},
			Cases: []Case{{Name: "bytea", SQL: []string{key("outbox", `'\x00ff'`), key("outbox", `NULL`)}}}, End: key("outbox", `'\x'`),
		},
		{Name: "legacy-bytes", Profile: Connect, Options: with(plainText, "value.converter", legacy, "value.converter.delegate.converter.type", jsonConverter,
			"value.converter.delegate.converter.type.schemas.enable", "false"), Cases: []Case{{Name: "jsonb", SQL: []string{row("outbox", `'{"a": 1}'`), row("outbox", `NULL`)}}}},
		{Name: "names-avro-unicode", Profile: Connect, Options: names, Cases: odd},
		server("server-bytes", map[string]string{"format.key": "jsonbytearray", "format.value": "jsonbytearray"}),
		server("server-classes", map[string]string{"format.key": "clientprovided", "format.key.class": stringConverter, "format.value": "clientprovided", "format.value.class": stringConverter}),
		server("server-binary-delegate", map[string]string{
			"format.key": "simplestring", "format.value": "binary", "format.value.delegate.converter.type": jsonConverter,
			"format.value.delegate.converter.type.schemas.enable": "false",
		}),
	}
}
