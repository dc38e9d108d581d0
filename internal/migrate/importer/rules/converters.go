// The rules about the bytes of keys, values and headers: Connect's converters and Debezium Server's
// formats.

package rules

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/output"
)

func converterRules() []rule {
	const classes = "StringConverter, JsonConverter, ByteArrayConverter and BinaryDataConverter (its delegate: String or Json); header.converter: SimpleHeaderConverter, JsonConverter, StringConverter. Avro, Protobuf, CloudEvents and others: cannot. Without them the worker's count: `--worker-config`"
	const formats = "json, jsonbytearray, simplestring, binary and clientprovided as far as the profile has them; avro, protobuf, cloudevents, connect: cannot"
	return []rule{
		{Names: []string{"key.converter", "value.converter", "header.converter"}, Only: debezium.Connect, verdict: output.Honoured, target: compatOptions, why: classes},
		{Names: []string{"key.converter.schemas.cache.size", "value.converter.schemas.cache.size", "header.converter.schemas.cache.size"}, Only: debezium.Connect, verdict: output.Superseded, why: "a matter of Java's memory"},
		{Names: []string{"key.converter.*", "value.converter.*", "header.converter.*"}, Only: debezium.Connect, verdict: output.Honoured, target: compatOptions, why: "the options of these converters, verbatim"},
		{Names: []string{"format.key", "format.value", "format.header", "format.header.class", "format.key.class", "format.value.class"}, Only: debezium.Server, verdict: output.Honoured, target: compatOptions, why: formats},
		{Names: []string{"format.schemas.enable", "format.key.schemas.enable", "format.value.schemas.enable", "format.header.schemas.enable"}, Only: debezium.Server, verdict: output.Honoured, target: compatOptions},
		{Names: []string{"format.*"}, Only: debezium.Server, verdict: output.Honoured, target: compatOptions, why: "the options of these formats, verbatim"},
	}
}

// schemas is true when keys, values or headers, whichever are asked for, carry schemas, or may: by
// a reference that only the running relay knows.
func (b *Builder) schemas(of ...string) bool {
	given := map[string]string{}
	for _, p := range b.Props {
		if !converts(p.Name) {
			continue
		}
		text, known := b.Plain(p.Name, "")
		if !known {
			return true
		}
		given[p.Name] = text
	}
	return debezium.WritesSchemas(b.Profile, given, of...)
}

// converts is true for an option of a converter or a format.
func converts(option string) bool {
	first, rest, _ := strings.Cut(option, ".")
	return first == "format" || rest == "converter" || strings.HasPrefix(rest, "converter.")
}

// converters says what Connect's worker would have to say.
func (b *Builder) converters() {
	if !b.Connect() {
		return
	}
	for _, name := range []string{"key.converter", "value.converter"} {
		if b.ByName[name] != nil {
			continue
		}
		why := "the worker's counts: give its file with --worker-config"
		if b.Worker {
			why = "neither the connector nor the worker has it"
		}
		b.Absent(output.Cannot, name, compatOptions, why)
	}
}
