// The mapping: which column is which part of an event, and whether a table's columns fit.

package decode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Names are the candidates for one part of an event: the first that the table has is taken, so that a column can be
// renamed while the relay runs. Without candidates the part is not mapped.
type Names struct {
	Any      []string
	Optional bool // the table may lack it (a default that nobody wrote)
}

// Mapping names the columns of an event's parts. ID and Payload must be mapped.
type Mapping struct {
	ID, Aggregate, Key, Type, Payload, Timestamp, Traceparent, Headers Names
	// Compat takes the types that Debezium's Event Router takes: a payload of any type, as its text, and for the timestamp only
	// one without time zone.
	Compat bool
	// Untimed leaves the timestamp unread: it must be there, and of its type, but an event has the time of its commit.
	Untimed bool
}

// Table is an outbox table as configured.
type Table struct {
	Schema, Name string
	OID          uint32   // 0: not known
	Also         []uint32 // OIDs of other tables that had the name: what is inserted into them is ours under any name
	Mapping      Mapping
	May          []string // extra columns that it may lack: their value is NULL then
	// Fits says what else does not fit, of columns of which it is known what their types stand for; nil: nothing does.
	Fits   func(columns []outbox.ColumnShape) []string
	Parted bool // it is partitioned
}

// String is the table's name in messages: schema.name.
func (t Table) String() string { return t.Schema + "." + t.Name }

// Column is a column as a Relation frame or the catalogue describes it.
type Column struct {
	Name    string
	TypeOID uint32 // pg_type.oid; of a domain its own, not its base type's
}

// Check says whether the mapping and the extra columns fit a table with these columns: those that the publication sends,
// which are fewer than the table's when it has a column list or generated columns. The error is an *outbox.Stop (exit 4)
// that names the table, every misfit, what was wanted and what is there. What Fits says is for CheckShapes.
func (t Table) Check(columns []Column, extra []string) error {
	_, misfits := t.bind(columns, extra)
	if t.Mapping.Compat {
		return t.misfit(columns, misfits, "change the table, or the names of its columns under sink.compat.options in the configuration")
	}
	return t.misfit(columns, misfits, "change the table, or the column names under outbox: in the configuration (a list of names allows for a rename)")
}

// CheckShapes says what Fits says of a table that Check has nothing against: of columns as the catalogue knows them.
func (t Table) CheckShapes(shapes []outbox.ColumnShape) error {
	if t.Fits == nil {
		return nil
	}
	columns := make([]Column, len(shapes))
	for i, c := range shapes {
		columns[i] = Column{Name: c.Name, TypeOID: c.TypeOID}
	}
	return t.misfit(columns, t.Fits(shapes), "give the column a type that is taken (docs/from-debezium.md lists them), take it out of sink.compat.options, or keep Debezium for this table")
}

// misfit is the Stop for what does not fit, nil for nothing.
func (t Table) misfit(columns []Column, misfits []string, mend string) error {
	if len(misfits) == 0 {
		return nil
	}
	return &outbox.Stop{
		Code:   outbox.ExitMapping,
		Reason: "mapping",
		What: fmt.Sprintf("table %s does not fit the mapping: %s (columns there: %s)",
			t, strings.Join(misfits, "; "), listColumns(columns)),
		Mend: mend,
	}
}

// Misses are the hidden columns that an event lacks: each is the first name of a part, or an extra column, of which no name
// is among the columns that are not hidden.
func (t Table) Misses(columns []Column, hidden, extra []string) []string {
	m := t.Mapping
	parts := []Names{m.ID, m.Aggregate, m.Key, m.Type, m.Payload, m.Timestamp, m.Traceparent, m.Headers}
	for _, name := range extra {
		parts = append(parts, Names{Any: []string{name}}) // that of the shape is hidden by nobody
	}
	isHidden := func(name string) bool { return slices.Contains(hidden, name) }
	isSent := func(name string) bool {
		return !isHidden(name) && slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name })
	}
	var missed []string
	for _, part := range parts {
		i := slices.IndexFunc(part.Any, isHidden)
		if i >= 0 && !slices.ContainsFunc(part.Any, isSent) && !slices.Contains(missed, part.Any[i]) {
			missed = append(missed, part.Any[i])
		}
	}
	return missed
}

// theShape is the place of outbox.ShapeColumn, which is no column of a tuple.
const theShape = -2

// places are the indexes in a tuple of an event's parts; -1 is not mapped.
type places struct {
	id, aggregate, key, typ, payload, timestamp, traceparent, headers int

	extra       []int
	payloadKind outbox.PayloadKind
}

// bind finds the places, or says what does not fit.
func (t Table) bind(columns []Column, extra []string) (p places, misfits []string) {
	b := binding{columns: columns}
	m := t.Mapping
	p = places{
		id:          b.required("id", m.ID, nil),
		aggregate:   b.place("aggregate", m.Aggregate, nil),
		key:         b.place("key", m.Key, nil),
		typ:         b.place("type", m.Type, nil),
		payload:     b.required("payload", m.Payload, m.payloadTypes()),
		timestamp:   b.place("timestamp", m.Timestamp, m.timestampTypes()),
		traceparent: b.place("traceparent", m.Traceparent, nil),
		headers:     b.place("headers_column", m.Headers, headersTypes),
	}
	for _, name := range extra {
		if name == outbox.ShapeColumn {
			p.extra = append(p.extra, theShape)
			continue
		}
		p.extra = append(p.extra, b.place("template, header or property", Names{Any: []string{name}, Optional: slices.Contains(t.May, name)}, nil))
	}
	if len(b.misfits) > 0 {
		return places{}, b.misfits
	}
	p.payloadKind = payloadKind(columns[p.payload].TypeOID)
	return p, nil
}

// unfit is what Fits says of a frame's columns, which do not tell what types that were made stand for.
func (t Table) unfit(columns []Column) []string {
	if t.Fits == nil {
		return nil
	}
	var shapes []outbox.ColumnShape
	for _, c := range columns {
		if c.TypeOID < firstMadeType {
			shapes = append(shapes, outbox.ColumnShape{Name: c.Name, TypeOID: c.TypeOID, Typmod: -1})
		}
	}
	return t.Fits(shapes)
}

// binding collects what does not fit.
type binding struct {
	columns []Column
	misfits []string
}

func (b *binding) required(part string, names Names, types []columnType) int {
	if len(names.Any) == 0 {
		b.misfits = append(b.misfits, part+" is not mapped to a column")
		return -1
	}
	return b.place(part, names, types)
}

func (b *binding) place(part string, names Names, types []columnType) int {
	for _, name := range names.Any {
		i := slices.IndexFunc(b.columns, func(c Column) bool { return c.Name == name })
		if i < 0 {
			continue
		}
		if oid := b.columns[i].TypeOID; !accepts(types, oid) {
			b.misfits = append(b.misfits, fmt.Sprintf("%s: column %q has type OID %d, wanted %s", part, name, oid, listTypes(types)))
		}
		return i
	}
	if len(names.Any) > 0 && !names.Optional {
		b.misfits = append(b.misfits, fmt.Sprintf("%s: no column %s", part, listNames(names.Any)))
	}
	return -1
}
