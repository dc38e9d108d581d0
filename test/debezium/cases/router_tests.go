package cases

// routerTests are what the tests of Debezium's own Event Router are about and no other group has;
// test/debezium/THEIRS.md says which of them is shown by which case.
func routerTests() []Group {
	expand := func(name, payload string) Case {
		return Case{Name: name, SQL: []string{row("outbox", "'"+payload+"'")}}
	}
	const complexOne = `{"id": "1028cbab", "attributes": [{"id": "10911586", "adr": null, "eans": [{"code": "2007000013656", "createdAt": "2022-06-08T11:33:16.465Z"}], "status": "BLOCOM", "returnable": false}]}`
	const complexTwo = `{"id": "1028cbab", "attributes": [{"id": "10911586", "adr": null, "eans": [{"code": "2007000013656"}, {"code": "2000630108556"}], "status": "BLOCOM", "returnable": false}]}`
	return []Group{
		{
			Name: "router-types", Profile: Connect, Options: with(schemas, "table.field.event.id", "event_id", "table.field.event.key", "payload_id", "table.field.event.type", "event_type",
				"table.field.event.payload", "payload_body", "route.by.field", "my_route_field", placement, "some_boolean:envelope:bool"),
			Setup: []string{`CREATE TABLE outbox (event_id bigint PRIMARY KEY, payload_id integer NOT NULL, my_route_field text NOT NULL, event_type bytea, payload_body bytea, some_boolean boolean)`},
			Cases: []Case{{Name: "influenced", SQL: []string{`INSERT INTO outbox VALUES ({n}, 1232, '{route}', 'CoolSchemaCreated', '{}', true)`}}},
			End:   `INSERT INTO outbox VALUES ({n}, 1232, '{route}', 'CoolSchemaCreated', 'end', true)`,
		},
		{
			Name: "router-binary-key", Profile: Connect, Options: with(plainText, "key.converter", binaryConverter),
			Setup: []string{keyed("outbox", "bytea")},
			Cases: []Case{{Name: "binary-key", SQL: []string{key("outbox", `'a binary key'`), key("outbox", `'\x00ff'`)}}},
			End:   key("outbox", `'\x'`),
		},
		{
			Name: "router-deleted", Profile: Connect, Options: with(noSchemas, placement, "is_deleted:envelope:deleted", "route.tombstone.on.empty.payload", "true"),
			Setup: []string{outbox("outbox", "jsonb", "is_deleted boolean DEFAULT false")},
			Cases: []Case{{Name: "deleted", SQL: []string{insert("outbox", "payload, is_deleted", `'{}', true`), insert("outbox", "payload, is_deleted", `NULL, true`), row("outbox", `'{}'`)}}},
		},
		{Name: "router-expand", Profile: Connect, Options: with(noSchemas, "table.expand.json.payload", "true"), Cases: []Case{
			expand("first-array-empty", `{"fullName": "John Doe", "petObjects": [{"type": "dog", "colors": []}, {"type": "cat", "colors": [{"name": "white"}]}]}`),
			expand("array-removed", `{"fullName": "John Doe", "petObjects": [{"type": "dog", "colors": []}]}`),
			expand("first-null", `{"fullName": "John Doe", "numbers": [null, 2, 3]}`),
			expand("complex", complexOne), expand("complex-again", complexTwo),
			expand("numbers-differ", `{"a": [1, 2147483648]}`), expand("numbers-and-doubles", `{"a": [1, 1.5]}`),
		}},
		{
			Name: "router-missing", Profile: Connect, Options: with(noSchemas, placement, "absent:envelope:alias,type:envelope", "table.field.additional.missing", "ignore"),
			Cases: []Case{{Name: "left-out", SQL: []string{row("outbox", `'{"a": 1}'`)}}},
		},
	}
}
