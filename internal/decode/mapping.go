// The mapping: which column is which part of an event, whether a table's columns fit, and the types
// that they may have.

package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Names are the candidates for one part of an event. Its value in a row is that of the first one
// which the table has and which is not NULL in the row. So a column can be renamed, or replaced by
// another while old and new versions of an application each fill their own. Without candidates the
// part is not mapped.
type Names struct {
	Any []string
	// The table may lack it, or have it with a type that does not fit: nobody wrote this default.
	Optional bool
}

// Mapping names the columns of an event's parts. ID and Payload must be mapped.
type Mapping struct {
	ID, Aggregate, Key, Type, Payload, Timestamp, Traceparent, Headers Names
	// Transaction is the column with the transaction that wrote the row: see package sent. No event
	// has it, and a message has none.
	Transaction Names
	// Compat takes the types that Debezium's Event Router takes: a payload of any type, as its
	// text, and for the timestamp only one without time zone.
	Compat bool
	// Untimed does not read the timestamp: the column must exist with the right type, but an event
	// has the time of its commit.
	Untimed bool
}

// The parts that a mapping names, by their place in places.part and in Decoder.members. The extra
// columns come after them.
const (
	partID = iota
	partAggregate
	partKey
	partType
	partPayload
	partTimestamp
	partTraceparent
	partHeaders
	partExtra
)

// partKeys are the parts as the configuration names them.
var partKeys = [partExtra]string{"id", "aggregate", "key", "type", "payload", "timestamp", "traceparent", "headers_column"}

// partNames are the names of each part.
func (m *Mapping) partNames() [partExtra]Names {
	return [partExtra]Names{m.ID, m.Aggregate, m.Key, m.Type, m.Payload, m.Timestamp, m.Traceparent, m.Headers}
}

// Table is an outbox table as configured.
type Table struct {
	Schema, Name string
	OID          uint32 // 0: of the first table that comes under the name
	// OIDs of other tables that had the name: what is inserted into them is ours under any name
	Former  []uint32
	Mapping Mapping
	May     []string // extra columns that it may lack: their value is NULL then
	Unused  []string // what Defaults says of the table in the catalogue
	// Fits returns further misfits of columns whose types are resolved; nil: no further check.
	Fits func(columns []event.ColumnShape) []string
}

// String is the table's name in messages: schema.name.
func (t Table) String() string { return t.Schema + "." + t.Name }

// Column is a column as the stream or the catalogue describes it.
type Column struct {
	Name string
	// pg_type.oid; of a domain over one of PostgreSQL's own types that of its base type
	TypeOID uint32
	OwnOID  uint32   // of a domain its own
	Type    TypeName // of a type that is not PostgreSQL's own; of a domain its base type's
}

// Check reports whether the mapping and the extra columns fit a table with these columns: those
// that the publication sends, which are fewer than the table's if it has a column list or generated
// columns. The error is an *event.Stop (exit 4) that names the table, every misfit, what was wanted
// and what is there. The check of Fits is in CheckShapes.
func (t Table) Check(columns []Column, extra []string) error {
	_, misfits := t.bindColumns(columns, extra)
	if t.Mapping.Compat {
		return t.misfitStop(columns, misfits, "change the table, or the names of its columns under sink.compat.options in the configuration")
	}
	return t.misfitStop(columns, misfits, "change the table, or the column names under outbox: in the configuration (a list of names allows for a rename)")
}

// Defaults says of each column that only a default names, and that does not fit, why it is not
// used.
func (t Table) Defaults(columns []Column) []string {
	b := binding{columns: columns}
	for part, names := range t.Mapping.partNames() {
		if names.Optional {
			b.findColumns(partKeys[part], names, t.Mapping.typesOf(part))
		}
	}
	return b.unused
}

// CheckShapes runs Fits for a table that passed Check, with the columns as the catalogue has them.
func (t Table) CheckShapes(shapes []event.ColumnShape) error {
	if t.Fits == nil {
		return nil
	}
	columns := make([]Column, len(shapes))
	for i, c := range shapes {
		columns[i] = Column{Name: c.Name}
	}
	return t.misfitStop(columns, t.Fits(shapes), "change the column to a supported type (listed in docs/from-debezium.md#column-types), take it out of sink.compat.options, or keep Debezium for this table")
}

// misfitStop returns the Stop for misfits, nil if there are none.
func (t Table) misfitStop(columns []Column, misfits []string, fix string) error {
	if len(misfits) == 0 {
		return nil
	}
	return &event.Stop{
		Code:   event.ExitMapping,
		Reason: "mapping",
		What: fmt.Sprintf("table %s does not fit the mapping: %s (columns there: %s)",
			t, strings.Join(misfits, "; "), listColumns(columns)),
		Fix: fix,
	}
}

// Misses are the hidden columns that an event lacks: each is the first name of a part, or an extra
// column, of which no name is among the columns that are not hidden.
func (t Table) Misses(columns []Column, hidden, extra []string) []string {
	isHidden := func(name string) bool { return slices.Contains(hidden, name) }
	isSent := func(name string) bool {
		return !isHidden(name) && slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name })
	}
	var missed []string
	for _, part := range t.allNames(extra) {
		i := slices.IndexFunc(part.Any, isHidden)
		if i >= 0 && !slices.ContainsFunc(part.Any, isSent) && !slices.Contains(missed, part.Any[i]) {
			missed = append(missed, part.Any[i])
		}
	}
	return missed
}

// Reads are those of the columns that an event may be made of: a row may have its value under any
// name of a part.
func (t Table) Reads(columns, extra []string) (read []string) {
	for _, part := range t.allNames(extra) {
		for _, name := range part.Any {
			if slices.Contains(columns, name) && !slices.Contains(read, name) {
				read = append(read, name)
			}
		}
	}
	return read
}

// allNames returns the names of each part and of each extra column.
func (t Table) allNames(extra []string) []Names {
	mapped := t.Mapping.partNames()
	parts := mapped[:]
	for _, name := range extra {
		parts = append(parts, Names{Any: []string{name}})
	}
	return parts
}

// places are the indexes in a tuple of an event's parts.
type places struct {
	part        [partExtra]int // -1: not mapped
	extra       []int          // -1: the table lacks it
	transaction int            // -1: the table lacks it
	payloadKind event.PayloadKind
	// several are the columns of the parts that have more than one, by part and in the order of the
	// names; nil as a rule. part and payloadKind are those of one row then: see chooseColumns.
	several []candidate
}

// candidate is one of several columns of a part.
type candidate struct {
	part, place int
	kind        event.PayloadKind // of a payload
}

// bindColumns finds the places, or returns what does not fit.
func (t Table) bindColumns(columns []Column, extra []string) (p places, misfits []string) {
	b := binding{columns: columns}
	for part, names := range t.Mapping.partNames() {
		if len(names.Any) == 0 && (part == partID || part == partPayload) {
			b.misfits = append(b.misfits, partKeys[part]+" is not mapped to a column")
		}
		p.part[part] = -1
		found := b.findColumns(partKeys[part], names, t.Mapping.typesOf(part))
		if len(found) > 0 {
			p.part[part] = found[0]
		}
		if len(found) > 1 {
			for _, place := range found {
				p.several = append(p.several, candidate{part, place, payloadKind(columns[place].TypeOID)})
			}
		}
	}
	for _, name := range extra {
		place := -1
		if found := b.findColumns("template, header or property", Names{Any: []string{name}, Optional: slices.Contains(t.May, name)}, nil); len(found) > 0 {
			place = found[0]
		}
		p.extra = append(p.extra, place)
	}
	p.transaction = b.findTransaction(t.Mapping.Transaction)
	if len(b.misfits) > 0 {
		return places{}, b.misfits
	}
	p.payloadKind = payloadKind(columns[p.part[partPayload]].TypeOID)
	return p, nil
}

// findTransaction finds the column of the row's transaction; -1: there is none. A column of that
// name and another type is somebody else's, unless the configuration names it.
func (b *binding) findTransaction(names Names) int {
	of := binding{columns: b.columns}
	found := of.findColumns("transaction", names, transactionTypes)
	if !names.Optional {
		b.misfits = append(b.misfits, of.misfits...)
	}
	if len(found) == 0 {
		return -1
	}
	return found[0]
}

// misfitsInStream runs Fits on a frame's columns of PostgreSQL's own types. The stream does not say
// all of other types: rows with one that does not fit become dead letters.
func (t Table) misfitsInStream(columns []Column) []string {
	if t.Fits == nil {
		return nil
	}
	var shapes []event.ColumnShape
	for _, c := range columns {
		if c.OwnOID == 0 && c.TypeOID < event.FirstMadeType {
			shapes = append(shapes, event.ColumnShape{Name: c.Name, TypeOID: c.TypeOID, Typmod: -1, Type: c.typeName()})
		}
	}
	return t.Fits(shapes)
}

// binding collects what does not fit.
type binding struct {
	columns []Column
	misfits []string
	unused  []string // misfits that a default names
}

// findColumns returns the indexes of the columns with these names, and collects misfits. Each
// column must have one of the types, as any of them may have a row's value; if only a default names
// it, it is left out instead.
func (b *binding) findColumns(part string, names Names, types []columnType) (found []int) {
	for _, name := range names.Any {
		i := slices.IndexFunc(b.columns, func(c Column) bool { return c.Name == name })
		if i < 0 {
			continue
		}
		if c := b.columns[i]; !acceptsType(types, c.TypeOID) {
			misfit := fmt.Sprintf("%s: column %q has type %s, wanted %s", part, name, c.typeName(), listTypes(types))
			if part == partKeys[partHeaders] {
				misfit += " (`" + part + ": \"\"` goes without)"
			}
			if names.Optional {
				b.unused = append(b.unused, misfit)
				continue
			}
			b.misfits = append(b.misfits, misfit)
		}
		found = append(found, i)
	}
	if len(found) == 0 && len(names.Any) > 0 && !names.Optional {
		b.misfits = append(b.misfits, fmt.Sprintf("%s: no column %s", part, listNames(names.Any)))
	}
	return found
}

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

// unusualTypes are types of PostgreSQL that a column may have and that pgtype does not know.
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

// typesOf are those that a part may have; nil is any.
func (m *Mapping) typesOf(part int) []columnType {
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

// acceptsType reports whether oid is among types; no types means any.
func acceptsType(types []columnType, oid uint32) bool {
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
