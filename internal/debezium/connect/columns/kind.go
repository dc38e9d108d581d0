// What every column type has: its schema, and the readers of its values.

package columns

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// reader makes a value of a text that PostgreSQL printed, with DateStyle ISO and bytea_output hex.
// What it cannot take from text it appends to scratch, and gives back scratch as it is then.
type reader func(scratch, text []byte) (connect.Value, []byte, error)

// columnKind is what a column's type gives.
type columnKind struct {
	schema connect.Schema
	read   reader
	raw    reader // of bytea's bytes
	parse  reader // of a default's literal; nil: Debezium reads no defaults of this type
	filler string // what stands for a default that a function makes
	// literal takes a default's literal out of its expression in another way than the usual one;
	// nil: in that one
	literal func(expression string) (string, error)
}

// logical is a schema with a name, in Debezium always in version 1.
func logical(t connect.Type, name string) connect.Schema {
	return connect.Schema{Type: t, Name: name, Version: connect.Versioned(1)}
}

var (
	errNotIts     = errors.New("the value is not one of its type")
	errOutOfRange = errors.New("the value has no place in the schema's type")
)
