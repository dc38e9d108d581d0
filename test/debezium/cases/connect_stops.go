package cases

// connectStops are rows and options that stop Debezium for good.
func connectStops() []Group {
	one := func(name, stops string, options map[string]string, create, sql string) Group {
		return Group{Name: name, Profile: Connect, Stops: stops, Options: options, Setup: []string{create}, Cases: []Case{{Name: "row", SQL: []string{sql}}}}
	}
	bytes := with(plainText, "value.converter", bytesConverter)
	all := []Group{
		one("stops-timestamp-bigint", "Unsupported field type", with(plainText, "table.field.event.timestamp", "at"), outbox("outbox", "jsonb", "at bigint"), insert("outbox", "payload, at", `'{}', 1577934245678`)),
		one("stops-timestamptz", "Field 'at' is not of type INT64", with(plainText, "table.field.event.timestamp", "at"), outbox("outbox", "jsonb", "at timestamptz"), insert("outbox", "payload, at", `'{}', now()`)),
		one("stops-bytearray-text", "Invalid schema type for ByteArrayConverter", bytes, outbox("outbox", "text"), row("outbox", `'text'`)),
		one("stops-bytearray-header", "Invalid schema type for ByteArrayConverter", with(plainText, "header.converter", bytesConverter), outbox("outbox", "text"), row("outbox", `'text'`)),
		one("stops-legacy-bytea", "requires a delegate.converter.type to be configured", with(plainText, "value.converter", "io.debezium.converters.ByteArrayConverter"), outbox("outbox", "bytea"), row("outbox", `'\x00'`)),
		one("stops-binary-text", "requires a delegate.converter.type to be configured", with(plainText, "value.converter", binaryConverter), outbox("outbox", "text"), row("outbox", `'text'`)),
		one("stops-expand-array", "Invalid type for", with(noSchemas, "table.expand.json.payload", "true"), outbox("outbox", "jsonb"), row("outbox", `'[1, 2]'`)),
		one("stops-expand-huge", "Invalid type for", with(noSchemas, "table.expand.json.payload", "true"), outbox("outbox", "jsonb"), row("outbox", `'{"a": 9223372036854775808}'`)),
		one("stops-missing-column", "absent", with(plainText, "table.fields.additional.placement", "absent:header"), outbox("outbox", "jsonb"), row("outbox", `'{}'`)),
		one("stops-missing-key", "fakefield", with(plainText, "table.field.event.key", "fakefield"), outbox("outbox", "jsonb"), row("outbox", `'{}'`)),
		one("stops-route-integer", "Field 'number' is not of type STRING", with(plainText, "route.by.field", "number"), outbox("outbox", "jsonb", "number integer"), insert("outbox", "payload, number", `'{}', 1`)),
		one("stops-route-null", "NullPointerException", with(plainText, "route.by.field", "other"), outbox("outbox", "jsonb", "other text"), insert("outbox", "payload, other", `'{}', NULL`)),
		one("stops-update-fatal", "Unexpected update message received", with(plainText, "table.op.invalid.behavior", "fatal"), outbox("outbox", "jsonb"), "INSERT INTO outbox VALUES ('{id}', '{route}', 'k', 't', '{}'); UPDATE outbox SET payload = '{\"a\": 1}'"),
	}
	for i := range all {
		all[i].Difference = NoRecord
		switch all[i].Name {
		case "stops-timestamp-bigint", "stops-timestamptz", "stops-missing-column", "stops-missing-key", "stops-route-integer":
			all[i].Difference, all[i].Refused = RefusedTable, "does not fit the mapping"
		case "stops-update-fatal":
			all[i].Difference, all[i].GoesOn, all[i].Topic = Update, true, "outbox.event."+all[i].Route("end")
		}
	}
	return all
}
