// Relation frames: which tables are configured, where in a tuple their columns are, and the shape
// of a table, which records in Debezium's format depend on.

package decode

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// relation is the table, or other relation, that the stream of this session has described under an
// OID.
type relation struct {
	columns     int    // of its tuples
	table       *Table // nil: not ours
	names       []string
	padded      []bool // of char(n); nil: no column is
	places      places
	shape       *event.Shape // nil: it is not wanted
	shaped      bool         // the shape is complete: Shaped was called
	name        string       // of a table that is not ours: schema.name
	foreignSaid bool         // not ours, and a Foreign message was returned for it
}

// decodeRelation reads a Relation frame. The server sends one before the first change of a table
// and again after the table was changed, so rows always meet the places of their own shape.
func (d *Decoder) decodeRelation(f *frame, msg *Message) error {
	oid := f.uint32()
	schema, name := string(f.string()), string(f.string())
	f.byte() // replica identity
	columns, typmods, err := d.decodeColumns(f)
	if err != nil {
		return err
	}
	defer clear(d.types)
	before := d.relations[oid]
	// Until the new description is accepted, rows of this table are an error, not rows of the old
	// shape.
	delete(d.relations, oid)
	rel := &relation{columns: len(columns)}
	i, ours := d.configuredTable(oid, schema, name)
	if ours {
		rel.table = &d.tables[i]
		for i, c := range columns {
			if t, ok := d.types[c.TypeOID]; ok {
				columns[i] = NewColumn(c.Name, c.TypeOID, t)
			}
		}
		var misfits []string
		if rel.places, misfits = rel.table.bindColumns(columns, d.extraColumns); len(misfits) == 0 {
			misfits = rel.table.misfitsInStream(columns)
		}
		if err := rel.table.misfitStop(columns, misfits, rel.table.fixInStream()); err != nil {
			return err
		}
		if err := rel.lostParts(before, columns); err != nil {
			return err
		}
		for i, c := range columns {
			rel.names = append(rel.names, c.Name)
			if c.TypeOID == pgtype.BPCharOID {
				if rel.padded == nil {
					rel.padded = make([]bool, len(columns))
				}
				rel.padded[i] = true
			}
		}
		if d.shapes {
			rel.shape = rel.places.shape(schema, name, columns, typmods)
			msg.Shape, msg.OID = rel.shape, oid
		}
	}
	d.relations[oid] = rel
	if !ours {
		rel.name = schema + "." + name
		if i >= 0 {
			msg.Kind, msg.Table, msg.OID = Replaced, &d.tables[i], oid
		}
	}
	if len(d.values) < rel.columns {
		d.values = make([]value, rel.columns)
	}
	return nil
}

// decodeType reads a Type frame. The server sends one for each type of a relation that was not
// there when the cluster was made, as it was when the rows were written, before it describes the
// relation. Of a domain it has the base type's name.
func (d *Decoder) decodeType(f *frame) error {
	oid, schema, name := f.uint32(), f.string(), f.string()
	if err := f.checkEnd(); err != nil {
		return err
	}
	d.types[oid] = TypeName{string(schema), string(name)}
	return nil
}

// fixInStream is the fix for a misfit in the stream: the next row has the shape that the table had
// when the row was written, whatever happens to the table.
func (t Table) fixInStream() string {
	if t.Mapping.Compat { // where a column has one name
		return "rows that are committed keep the columns they were written with: start the relay with the names that these rows have under sink.compat.options, and let the table keep them until then (rename a column back, while nothing is inserted); when it stops again, at the first row with other names, go on with those; docs/failure-modes.md#after-exit-4 has the steps"
	}
	return "rows that are committed keep the shape they were written in, so changing the table back is not enough: give the names of both shapes under outbox: in the configuration (such as `payload: [payload, body]`); where no names help, see docs/failure-modes.md#after-exit-4"
}

// lostParts returns the Stop for parts whose column earlier rows of this session had and later rows
// lack; nil: there are none. Only a default that is not set in the configuration gets here: a table
// may lack its column, but not lose it within a session.
func (rel *relation) lostParts(before *relation, columns []Column) error {
	if before == nil || before.table != rel.table {
		return nil
	}
	var misfits []string
	fix := ""
	for part, place := range before.places.part {
		if place < 0 || rel.places.part[part] >= 0 {
			continue
		}
		key, name := partKeys[part], before.names[place]
		is := "is gone"
		if slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name }) {
			is = "has another type"
		}
		misfits = append(misfits, fmt.Sprintf("%s: column %q %s, but earlier rows had it", key, name, is))
		if fix == "" {
			fix = "start the relay again to go on without it"
			if !rel.table.Mapping.Compat {
				fix += fmt.Sprintf("; if it was renamed, give both names first, under outbox: in the configuration (`%s: [%s, ...]`)", key, name)
			}
		}
	}
	return rel.table.misfitStop(columns, misfits, fix)
}

// decodeColumns reads the columns and their type modifiers, to the end of the frame.
func (d *Decoder) decodeColumns(f *frame) ([]Column, []int32, error) {
	const least = 1 + 1 + 4 + 4 // flags, an empty name, type, modifier
	n := int(f.uint16())
	if len(f.rest) < n*least {
		f.setError(errShort)
		return nil, nil, f.checkEnd()
	}
	columns, typmods := make([]Column, n), make([]int32, n)
	for i := range columns {
		f.byte() // flags: part of the key
		columns[i].Name = string(f.string())
		columns[i].TypeOID = f.uint32()
		typmods[i] = int32(f.uint32())
	}
	return columns, typmods, f.checkEnd()
}

// configuredTable finds the configured table of a relation by its OID, so that a table renamed in
// mid-stream stays ours. Another table with a configured name is not ours, but table is its index.
// table is -1 when there is neither.
func (d *Decoder) configuredTable(oid uint32, schema, name string) (table int, ok bool) {
	if i, ok := d.tableOf[oid]; ok {
		return i, true
	}
	for i := range d.tables {
		t := &d.tables[i]
		if t.Schema != schema || t.Name != name {
			continue
		}
		if t.OID == 0 {
			t.OID = oid
			d.tableOf[oid] = i
			return i, true
		}
		return i, false
	}
	return -1, false
}

// relationOf finds the relation of a change. Without its description it is unknown whether the
// change is an event.
func (d *Decoder) relationOf(oid uint32) (*relation, error) {
	if rel := d.relations[oid]; rel != nil {
		return rel, nil
	}
	return nil, fmt.Errorf("relation %d was not described", oid)
}

// shape returns the shape of the columns that an event is made of, as far as the frame contains it.
func (p *places) shape(schema, table string, columns []Column, typmods []int32) *event.Shape {
	// without several: a profile names one column
	used := slices.Concat(p.part[:partTimestamp+1], p.extra)
	s := &event.Shape{Schema: schema, Table: table}
	for i, c := range columns {
		if slices.Contains(used, i) {
			s.Columns = append(s.Columns, c.Shape(typmods[i]))
		}
	}
	return s
}

// Shaped takes back a Message.Shape, now complete, for the table of that OID. Its rows have it from
// now on, and it does not change any more.
func (d *Decoder) Shaped(oid uint32, shape *event.Shape) error {
	rel := d.relations[oid]
	if rel == nil || rel.shape != shape {
		return fmt.Errorf("relation %d was not described with this shape", oid)
	}
	rel.shaped = true
	return nil
}
