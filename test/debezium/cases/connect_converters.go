package cases

import "slices"

// The converters of Kafka Connect.
const (
	stringConverter = "org.apache.kafka.connect.storage.StringConverter"
	simpleConverter = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
	jsonConverter   = "org.apache.kafka.connect.json.JsonConverter"
	bytesConverter  = "org.apache.kafka.connect.converters.ByteArrayConverter"
	binaryConverter = "io.debezium.converters.BinaryDataConverter"
)

// strings are the options for plain text, noSchemas those for JSON without schemas.
var (
	plainText = map[string]string{"key.converter": stringConverter, "value.converter": stringConverter}
	noSchemas = map[string]string{"key.converter": jsonConverter, "key.converter.schemas.enable": "false", "value.converter": jsonConverter, "value.converter.schemas.enable": "false"}
	schemas   = map[string]string{"key.converter": jsonConverter, "value.converter": jsonConverter}
)

// viaRoot has Debezium see a partitioned table as one, as the relay does.
var viaRoot = map[string]string{"publish.via.partition.root": "true"}

// oneTopic spares a group of many cases a topic for each.
func oneTopic(name string, options map[string]string) map[string]string {
	return with(options, "route.topic.replacement", "all-of-"+name)
}

// connectConverters is each converter with every type that it takes.
func connectConverters() []Group {
	types := func(name string, options map[string]string) Group {
		g := Group{Name: name, Profile: Connect, Options: oneTopic(name, options), Source: viaRoot}
		g.Setup, g.Tables, g.Cases = ofTypes(payloads, keys)
		setup, tables, all := transactions()
		g.Setup, g.Tables, g.Cases = append(g.Setup, setup...), append(g.Tables, tables...), append(g.Cases, all...)
		if name == "string" {
			g.differs("numeric", NumericAsObject, "Debezium writes the address of a Java object: a dead letter")
		}
		return g
	}
	bytes := func(name string, options map[string]string, payloads ...typed) Group {
		g := Group{Name: name, Profile: Connect, Options: options}
		g.Setup, g.Tables, g.Cases = ofTypes(payloads, nil)
		g.Setup, g.Tables = g.Setup[2:], g.Tables[1:] // the end is among them
		g.End = row(g.Tables[0], `'\x656e64'`)
		return g
	}
	bytea := payloads[slices.IndexFunc(payloads, func(t typed) bool { return t.name == "bytea" })]
	mixed := []typed{bytea, {"text", "text", []string{`'plain "text"'`, `NULL`}}, {"jsonb", "jsonb", []string{`'{"a": 1}'`}}, {"bigint", "bigint", []string{`17`}}}
	return []Group{
		types("string", plainText),
		types("json-schemas", schemas),
		types("json", noSchemas),
		bytes("bytearray", with(plainText, "value.converter", bytesConverter), bytea),
		bytes("binary", with(plainText, "value.converter", binaryConverter), bytea),
		bytes("binary-json", with(plainText, "value.converter", binaryConverter, "value.converter.delegate.converter.type", jsonConverter), mixed...),
		bytes("binary-json-bare", with(plainText, "value.converter", binaryConverter, "value.converter.delegate.converter.type", jsonConverter,
			"value.converter.delegate.converter.type.schemas.enable", "false"), mixed...),
		bytes("binary-string", with(plainText, "value.converter", binaryConverter, "value.converter.delegate.converter.type", stringConverter), mixed...),
	}
}
