// The column types that the parts of an event may have, and lists for messages.

package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// TypeName is a type's name as Type frames have it; without schema it is PostgreSQL's own.
type TypeName struct{ Schema, Name string }

func (t TypeName) String() string {
	name, isArray := strings.CutPrefix(t.Name, "_")
	if isArray {
		name += "[]"
	}
	if t.Schema != "" {
		name = t.Schema + "." + name
	}
	return name
}

// NewColumn is a column of the type with that OID and name; of a domain it is its base type's name.
func NewColumn(name string, oid uint32, of TypeName) Column {
	c := Column{Name: name, TypeOID: oid}
	if oid < event.FirstMadeType {
		return c
	}
	c.Type = of
	if of.Schema != "" {
		return c
	}
	if base, ok := pgtype.NewMap().TypeForName(of.Name); ok {
		c.TypeOID, c.OwnOID = base.OID, oid
	} else if i := slices.IndexFunc(unusualTypes, func(t columnType) bool { return t.name == of.Name }); i >= 0 {
		c.TypeOID, c.OwnOID = unusualTypes[i].oid, oid
	}
	return c
}

// Shape is the column's shape, as far as the stream has it.
func (c Column) Shape(typmod int32) event.ColumnShape {
	s := event.ColumnShape{Name: c.Name, TypeOID: c.TypeOID, Typmod: typmod, Type: c.Type.String()}
	if c.OwnOID != 0 {
		s.TypeOID, s.Base = c.OwnOID, c.TypeOID
	}
	return s
}

// typeName is the type's name for messages.
func (c Column) typeName() string {
	if c.Type != (TypeName{}) {
		return c.Type.String()
	}
	if t, ok := pgtype.NewMap().TypeForOID(c.TypeOID); ok {
		return TypeName{Name: t.Name}.String()
	}
	if i := slices.IndexFunc(unusualTypes, func(t columnType) bool { return t.oid == c.TypeOID }); i >= 0 {
		return unusualTypes[i].name
	}
	return "unknown to this version"
}

// unusualTypes are those of PostgreSQL's own that a column may have and pgtype does not know.
var unusualTypes = []columnType{
	{24, "regproc"},
	{790, "money"},
	{pgtype.TimetzOID, "timetz"},
	{1790, "refcursor"},
	{2202, "regprocedure"},
	{2203, "regoper"},
	{2204, "regoperator"},
	{2205, "regclass"},
	{2206, "regtype"},
	{2970, "txid_snapshot"},
	{3220, "pg_lsn"},
	{3615, "tsquery"},
	{3734, "regconfig"},
	{3769, "regdictionary"},
	{4089, "regnamespace"},
	{4096, "regrole"},
	{4191, "regcollation"},
	{5038, "pg_snapshot"},
}

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
