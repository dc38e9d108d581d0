// The name of the value's schema in a value that carries its schema.

package compare

import (
	"bytes"
	"encoding/json"
)

// span is a part of a value.
type span struct{ from, to int }

// valueSchemaName is where the name of the value's own schema stands in a value that carries its
// schema, quotes and all. Debezium calls the schema of an envelope PREFIX.SCHEMA.TABLE.ROUTE.Value,
// and keeps for each shape the name of the first event it saw since it started. Other names
// ("io.debezium.data.Json") are not meant.
func valueSchemaName(value []byte) (span, bool) {
	if !bytes.HasPrefix(value, []byte(`{"schema":{`)) {
		return span{}, false
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	for range 3 { // { "schema" {
		if _, err := dec.Token(); err != nil {
			return span{}, false
		}
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return span{}, false
		}
		from := int(dec.InputOffset()) + 1 // the colon
		var part json.RawMessage
		if err := dec.Decode(&part); err != nil {
			return span{}, false
		}
		if key == "name" {
			return span{from, int(dec.InputOffset())}, bytes.HasSuffix(part, []byte(`.Value"`))
		}
	}
	return span{}, false
}
