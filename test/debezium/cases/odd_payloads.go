package cases

import "strings"

// oddPayloads are JSON texts to expand that are rare, or no JSON.
func oddPayloads() []Group {
	payloads := []struct{ name, text string }{
		{"dup", `{"a": 1, "b": 2, "a": "x"}`},
		{"surrogate", `{"a": "\ud83d", "b": "\ude00x", "\ud83d": 1, "c": "\ud83d\ude00"}`},
		{"numbers", `{"a": 1e400, "b": -0, "c": -0.0, "d": 1E5, "e": 1.0, "f": 0.1e1, "g": 9223372036854775807, "h": -9223372036854775808, "i": 2147483648, "j": -2147483649, "k": 1e-400, "l": 123456789.123456789123456789}`},
		{"nested-arrays", `{"a": [[1], [2, 3]], "b": [["x"]], "c": [[{"k": 1}], [{"k": 2}]], "d": [[[1]]]}`},
		{"array-nulls", `{"a": [1, null, 2], "b": ["x", null]}`},
		{"all-null", `{"a": [null], "b": 1}`},
		{"all-null2", `{"a": [null, null]}`},
		{"objects-null", `{"a": [{"b": null}], "c": 1}`},
		{"object-empty-in-array", `{"a": [{}], "c": 1}`},
		{"array-object-null", `{"a": [{"b": 1}, null]}`},
		{"array-null-object", `{"a": [null, {"b": 1}]}`},
		{"empty-nested", `{"a": [[]], "b": 1}`},
		{"empty-nested2", `{"a": [[], [1]], "b": 1}`},
		{"empty-nested3", `{"a": [[1], []], "b": 1}`},
		{"trailing", `{"a": 1} trailing`},
		{"trailing2", `{"a": 1}{"b": 2}`},
		{"comment", `{"a": 1 /* x */}`},
		{"single", `{'a': 1}`},
		{"nan", `{"a": NaN}`},
		{"emptykey", `{"": 1, "b": 2}`},
		{"emptykey2", `{"b": {"": 1}}`},
		{"leadzero", `{"a": 01}`},
		{"plus", `{"a": +1}`},
		{"dot", `{"a": 1.}`},
		{"dot2", `{"a": .5}`},
		{"control", "{\"a\": \"x\ty\"}"},
		{"bools", `{"a": [true, false], "b": [1.5, 2.0], "c": [3000000000, 4000000000]}`},
		{"mixed-double", `{"a": [1.0, 2]}`},
		{"mixed-long", `{"a": [3000000000, 1]}`},
		{"deepnull", `{"a": {"b": {"c": null}}, "d": {"e": []}}`},
		{"unicode", `{"a": "\u0000\u001f\u007f\u2028\ufeff", "b\n\"": "/"}`},
		{"names", `{"payload": 1, "a.b": {"c.d": 2}, "schema": "x"}`},
		{"order", `{"a": [{"x": 1, "y": "2"}, {"y": "3", "x": 4}]}`},
		{"big-dec", `{"a": 12345678901234567890.5}`},
		{"ws", "{\n\t\"a\" :\r 1 }  "},
		{"deep-arr", `{"a": [{"b": [{"c": 1}, {"c": 2}]}, {"b": [{"c": 3}]}]}`},
		{"obj-vs-null", `{"a": [{"b": {"c": 1}}, {"b": null}]}`},
		{"strnum", `{"a": ["1", "2"], "b": {"c": "é😀"}}`},
	}
	of := func(name string, options map[string]string) Group {
		g := Group{Name: name, Profile: Connect, Options: oneTopic(name, with(options, "table.expand.json.payload", "true")), Setup: []string{outbox("outbox", "text")}}
		for _, p := range payloads {
			g.Cases = append(g.Cases, Case{Name: p.name, SQL: []string{row("outbox", "'"+strings.ReplaceAll(p.text, "'", "''")+"'")}})
		}
		g.End = row("outbox", `'{"end": true}'`)
		g.differs("surrogate", HalfSurrogate, "half a surrogate pair is a dead letter")
		return g
	}
	return []Group{of("expand-odd", noSchemas), of("expand-odd-avro", with(schemas, "field.name.adjustment.mode", "avro"))}
}

// twice are headers of one name.
func twice() []Group {
	group := func(profile, name string, options map[string]string) Group {
		return Group{
			Name: name, Profile: profile, Rabbit: profile == Server, Options: options, Setup: []string{outbox("outbox", "jsonb", "tenant text")},
			Cases: []Case{{Name: "a", SQL: []string{insert("outbox", "payload, tenant", "'{}', 'T'"), insert("outbox", "payload, tenant", "'{}', NULL")}}},
			End:   insert("outbox", "payload, tenant", "'{}', 'T'"),
		}
	}
	return []Group{
		group(Connect, "header-twice", with(plainText, "header.converter", jsonConverter, placement, "type:header:id,tenant:header:x,type:header:x,tenant:header:é,tenant:header: spaced name ")),
		group(Server, "rabbitmq-header-twice", map[string]string{"sink.rabbitmq.exchange": "events", placement: "tenant:header:x,type:header:x,type:header:y,tenant:header:y,tenant:header:é"}),
	}
}
