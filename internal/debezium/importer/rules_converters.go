package importer

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
)

// This file has the rules about the bytes of keys, values and headers: Connect's converters and Debezium Server's formats.

func converterRules() []rule {
	const classes = "StringConverter, JsonConverter, ByteArrayConverter and BinaryDataConverter (its delegate: String or Json); header.converter: SimpleHeaderConverter, JsonConverter, StringConverter. Avro, Protobuf, CloudEvents and others: cannot. Without them the worker's count: `--worker-config`"
	const formats = "json, jsonbytearray, simplestring, binary and clientprovided as far as the profile has them; avro, protobuf, cloudevents, connect: cannot"
	return []rule{
		{names: []string{"key.converter", "value.converter", "header.converter"}, only: debezium.Connect, verdict: Honoured, target: compatOptions, why: classes},
		{names: []string{"key.converter.schemas.cache.size", "value.converter.schemas.cache.size", "header.converter.schemas.cache.size"}, only: debezium.Connect, verdict: Superseded, why: "a matter of Java's memory"},
		{names: []string{"key.converter.*", "value.converter.*", "header.converter.*"}, only: debezium.Connect, verdict: Honoured, target: compatOptions, why: "the options of these converters, verbatim"},
		{names: []string{"format.key", "format.value", "format.header", "format.header.class", "format.key.class", "format.value.class"}, only: debezium.Server, verdict: Honoured, target: compatOptions, why: formats},
		{names: []string{"format.schemas.enable", "format.key.schemas.enable", "format.value.schemas.enable", "format.header.schemas.enable"}, only: debezium.Server, verdict: Honoured, target: compatOptions},
		{names: []string{"format.*"}, only: debezium.Server, verdict: Honoured, target: compatOptions, why: "the options of these formats, verbatim"},
	}
}

// schemas is true when keys, values or headers, whichever are asked for, carry schemas, or may: by a reference that only the running
// relay knows.
func (b *builder) schemas(of ...string) bool {
	given := map[string]string{}
	for _, p := range b.props {
		if !converts(p.name) {
			continue
		}
		text, known := b.plain(p.name, "")
		if !known {
			return true
		}
		given[p.name] = text
	}
	return debezium.WritesSchemas(b.profile, given, of...)
}

// converts is true for an option of a converter or a format.
func converts(option string) bool {
	first, rest, _ := strings.Cut(option, ".")
	return first == "format" || rest == "converter" || strings.HasPrefix(rest, "converter.")
}

// converters says what Connect's worker would have to say.
func (b *builder) converters() {
	if !b.connect() {
		return
	}
	for _, name := range []string{"key.converter", "value.converter"} {
		if b.byName[name] != nil {
			continue
		}
		why := "the worker's counts: give its file with --worker-config"
		if b.worker {
			why = "neither the connector nor the worker has it"
		}
		b.absent(Cannot, name, compatOptions, why)
	}
}
