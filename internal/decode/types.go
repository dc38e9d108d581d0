// The column types that the parts of an event may have, and lists for messages.

package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// firstMadeType is the least OID of a type that is not PostgreSQL's own: a domain, an enum, an
// extension's. Below 16384 are those that initdb makes, the domains of information_schema.
const firstMadeType = 12000

type columnType struct {
	oid  uint32
	name string
}

var (
	payloadTypes = []columnType{
		{pgtype.JSONOID, "json"},
		{pgtype.JSONBOID, "jsonb"},
		{pgtype.TextOID, "text"},
		{pgtype.VarcharOID, "varchar"},
		{pgtype.BPCharOID, "char"},
		{pgtype.ByteaOID, "bytea"},
	}
	timestampTypes = []columnType{{pgtype.TimestamptzOID, "timestamptz"}, {pgtype.TimestampOID, "timestamp"}}
	// xid8 has no array of constants in pgtype: pg_type.dat has 5069
	transactionTypes = []columnType{{5069, "xid8"}, {pgtype.Int8OID, "bigint"}}
	headersTypes     = []columnType{{pgtype.JSONBOID, "jsonb"}, {pgtype.JSONOID, "json"}}
)

// types are those that a part may have; nil is any.
func (m *Mapping) types(part int) []columnType {
	switch {
	case part == partPayload && !m.Compat:
		return payloadTypes
	case part == partTimestamp && m.Compat:
		return timestampTypes[1:]
	case part == partTimestamp:
		return timestampTypes
	case part == partHeaders:
		return headersTypes
	default:
		return nil
	}
}

func payloadKind(oid uint32) event.PayloadKind {
	switch oid {
	case pgtype.JSONOID, pgtype.JSONBOID:
		return event.JSON
	case pgtype.ByteaOID:
		return event.Binary
	default:
		return event.Text
	}
}

// accepts reports whether oid is among types; no types means any.
func accepts(types []columnType, oid uint32) bool {
	return types == nil || slices.ContainsFunc(types, func(t columnType) bool { return t.oid == oid })
}

func listTypes(types []columnType) string {
	var names []string
	for _, t := range types {
		names = append(names, t.name)
	}
	return orList(names)
}

func listNames(names []string) string {
	var quoted []string
	for _, n := range names {
		quoted = append(quoted, fmt.Sprintf("%q", n))
	}
	return orList(quoted)
}

func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// listColumns names the first columns of a table; a table may have 1,600.
func listColumns(columns []Column) string {
	const most = 30
	if len(columns) == 0 {
		return "none"
	}
	var names []string
	for _, c := range columns[:min(len(columns), most)] {
		names = append(names, c.Name)
	}
	if more := len(columns) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
