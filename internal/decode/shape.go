// The shape of a table, which records in Debezium's format depend on.

package decode

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

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
