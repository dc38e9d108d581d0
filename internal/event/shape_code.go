// The binary form of a table's shape: it travels with each event as one of its extra columns, into
// the retry table too.

package event

import (
	"encoding/binary"
	"errors"
)

// ShapeColumn is the name of an extra column that no table has: its value is the Shape of the table
// that the row is of. A name with a dot is possible in PostgreSQL, but decode never looks for this
// one among a table's columns.
const ShapeColumn = "cdc_relay.shape"

// Shape is a table as a record depends on it. A row that waits in the retry table keeps the shape
// of its time, so that it is the same record weeks later, whatever became of the table.
type Shape struct {
	Schema, Table string
	Columns       []ColumnShape // those that an event is made of
}

// shapeVersion begins every shape, so that another form can be told from this one.
const shapeVersion = 1

// The bits of a column's flags.
const (
	shapeNotNull = 1 << iota
	shapeDefault
	shapeLabels
	shapeType
)

// AppendShape appends a shape: a version, the two names, then per column its name, type, modifier +
// 1, flags and, when it has them, its default, how many labels and these, and its type's name.
// Numbers and lengths are unsigned LEB128.
func AppendShape(b []byte, s *Shape) []byte {
	b = append(b, shapeVersion)
	b = appendText(b, s.Schema)
	b = appendText(b, s.Table)
	b = binary.AppendUvarint(b, uint64(len(s.Columns)))
	for i := range s.Columns {
		c := &s.Columns[i]
		b = appendText(b, c.Name)
		b = binary.AppendUvarint(b, uint64(c.TypeOID))
		b = binary.AppendUvarint(b, uint64(uint32(c.Typmod+1)))
		var flags byte
		if c.NotNull {
			flags |= shapeNotNull
		}
		if c.Default != nil {
			flags |= shapeDefault
		}
		if c.Labels != nil {
			flags |= shapeLabels
		}
		if c.Type != "" {
			flags |= shapeType
		}
		b = append(b, flags)
		if c.Default != nil {
			b = appendText(b, *c.Default)
		}
		if c.Labels != nil {
			b = binary.AppendUvarint(b, uint64(len(c.Labels)))
			for _, label := range c.Labels {
				b = appendText(b, label)
			}
		}
		if c.Type != "" {
			b = appendText(b, c.Type)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errShape = errors.New("not a table shape in this relay's format")

// ParseShape reads what AppendShape has written, and nothing else. It keeps nothing of b.
func ParseShape(b []byte) (*Shape, error) {
	r := shapeReader{rest: b}
	if r.byte() != shapeVersion {
		return nil, errShape
	}
	s := &Shape{Schema: r.text(), Table: r.text()}
	const least = 4 // bytes of a column
	n := r.number()
	if r.bad || n > uint64(len(r.rest)/least) {
		return nil, errShape
	}
	s.Columns = make([]ColumnShape, n)
	for i := range s.Columns {
		c := &s.Columns[i]
		c.Name = r.text()
		c.TypeOID = uint32(r.bounded())
		c.Typmod = int32(uint32(r.bounded())) - 1
		flags := r.byte()
		if flags&^(shapeNotNull|shapeDefault|shapeLabels|shapeType) != 0 {
			return nil, errShape
		}
		c.NotNull = flags&shapeNotNull != 0
		if flags&shapeDefault != 0 {
			text := r.text()
			c.Default = &text
		}
		if flags&shapeLabels != 0 {
			labels := r.number()
			if r.bad || labels > uint64(len(r.rest)) { // each has a byte at least
				return nil, errShape
			}
			c.Labels = make([]string, labels)
			for j := range c.Labels {
				c.Labels[j] = r.text()
			}
		}
		if flags&shapeType != 0 {
			if c.Type = r.text(); c.Type == "" {
				return nil, errShape
			}
		}
	}
	if r.bad || len(r.rest) > 0 {
		return nil, errShape
	}
	return s, nil
}

// shapeReader is what is left to read. A read beyond the end gives zeroes and sets bad, which
// stays.
type shapeReader struct {
	rest []byte
	bad  bool
}

func (r *shapeReader) fail() {
	r.bad, r.rest = true, nil
}

func (r *shapeReader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

func (r *shapeReader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// bounded is a number of 32 bits.
func (r *shapeReader) bounded() uint64 {
	v := r.number()
	if v > 1<<32-1 {
		r.fail()
		return 0
	}
	return v
}

func (r *shapeReader) text() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.fail()
		return ""
	}
	v := string(r.rest[:n])
	r.rest = r.rest[n:]
	return v
}
