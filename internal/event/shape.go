// The shape of a table: what a record's bytes depend on beyond the values of the row. It travels
// with each event, into the retry table too.

package event

import (
	"encoding/json"
	"fmt"
)

// Shape is a table as a record depends on it. A row that waits in the retry table keeps the shape
// of its time, so that it is the same record weeks later, whatever became of the table. It is
// immutable once events have it: all events of a table share one.
type Shape struct {
	Schema  string        `json:"schema"`
	Table   string        `json:"table"`
	Columns []ColumnShape `json:"columns"` // those that an event is made of
}

// ColumnShape is one column of a table as the catalogue knows it.
type ColumnShape struct {
	Name    string   `json:"name"`
	TypeOID uint32   `json:"oid"`
	Typmod  int32    `json:"mod"` // -1: none
	NotNull bool     `json:"not_null,omitzero"`
	Default *string  `json:"default,omitzero"` // its expression as pg_get_expr prints it; nil: none
	Labels  []string `json:"labels,omitzero"`  // of an enum, in their order; nil: it is none
	// the type's name, where its OID alone would tell nobody which it is
	Type string `json:"type,omitzero"`
	// of a domain over one of PostgreSQL's own types, as the stream has it: the OID of that one
	Base uint32 `json:"-"`
}

// FirstMadeType is the least OID of a type that is not PostgreSQL's own: a domain, an enum, an
// extension's. Below 16384 are those that initdb makes, the domains of information_schema.
const FirstMadeType = 12000

// AppendShape appends a shape as JSON.
func AppendShape(b []byte, s *Shape) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and numbers can always be written
	}
	return append(b, text...)
}

// ParseShape reads what AppendShape has written.
func ParseShape(b []byte) (*Shape, error) {
	s := new(Shape)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("not a table shape in this relay's format: %w", err)
	}
	return s, nil
}
