// Extra columns as rows store them: with their names, because a row may outlive the configuration
// that listed them in some order. The shape of the row's table is stored among them.

package dlq

import "encoding/binary"

// shapeColumn is the name under which a row has the shape of its table, as if it was an extra
// column. Every version stores it so: an earlier one reads the rows of this one after a rollback,
// and this one reads theirs. A table's own column of this name would be taken for it.
const shapeColumn = "cdc_relay.shape"

// AppendShape appends a shape, as event.AppendShape writes it, to what AppendColumns has written.
// nil is no shape.
func AppendShape(b, shape []byte) []byte {
	if shape == nil {
		return b
	}
	return AppendColumns(b, []string{shapeColumn}, [][]byte{shape})
}

// AppendColumns appends per column the length of its name, the name, the length of its value + 1
// (0: NULL) and the value; lengths as unsigned LEB128. nil when there are no columns.
func AppendColumns(b []byte, names []string, values [][]byte) []byte {
	for i, value := range values {
		b = binary.AppendUvarint(b, uint64(len(names[i])))
		b = append(b, names[i]...)
		if value == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(value))+1)
		b = append(b, value...)
	}
	return b
}

// EachColumn calls each with every column's name and value, and returns the shape, nil for none;
// they alias b. It reports whether b is as AppendColumns and AppendShape write it, and stops where
// it is not.
func EachColumn(b []byte, each func(name, value []byte)) (shape []byte, ok bool) {
	for len(b) > 0 {
		name, rest, ok := cut(b, 0)
		if !ok {
			return shape, false
		}
		value, rest, ok := cut(rest, 1)
		if !ok {
			return shape, false
		}
		if string(name) == shapeColumn {
			shape = value
		} else {
			each(name, value)
		}
		b = rest
	}
	return shape, true
}

// cut reads a length, which is more too high, and that many bytes. A length below more is NULL.
func cut(b []byte, more uint64) (part, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, nil, false
	}
	b = b[n:]
	if size < more {
		return nil, b, true
	}
	size -= more
	if size > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:size:size], b[size:], true
}
