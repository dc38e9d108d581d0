// The members of an array that is expanded: what they have in common.

package expand

import "github.com/cdc-relay/cdc-relay/internal/debezium/connect"

// items is the schema of an array's members: that of the first which is not null, or of all objects
// merged.
func (x *expansion) items(key string, array *node) (*connect.Schema, error) {
	first, err := sample(array)
	if err != nil {
		return nil, err
	}
	if first == nil {
		if x.NullsAsBytes {
			return optionalBytes, nil
		}
		return nil, errMixed
	}
	if first.kind != objectNode {
		s, err := x.schema("", first)
		if err == nil && s == nil {
			err = errMixed
		}
		return s, err
	}
	merged := &connect.Schema{Type: connect.Struct, Optional: true, Name: key}
	var shapes []*connect.Schema
	for i := range array.items {
		if array.items[i].kind == objectNode {
			s, err := x.schema(key, &array.items[i])
			if err != nil {
				return nil, err
			}
			shapes = append(shapes, s)
		}
	}
	x.merge(merged, shapes)
	return merged, nil
}

// sample is an array's first member that is not null, after a look at whether all are of one type;
// nil when all are null.
func sample(array *node) (*node, error) {
	var first *node
	for i := range array.items {
		n := &array.items[i]
		switch {
		case n.kind == nullNode:
		case first == nil:
			first = n
		case kindOfSchema(n.kind) != kindOfSchema(first.kind):
			return nil, errMixed
		}
	}
	return first, nil
}

// kindOfSchema makes no difference between the numbers whose schema is the same.
func kindOfSchema(k nodeKind) nodeKind {
	if k == bigNode {
		return doubleNode
	}
	return k
}

// merge is mergeSchema: the fields of all, each with the schema that it has first, unless that is
// the bytes of a null. What was merged of different shapes is not optional any more
// (SchemaUtil.copySchemaBasics forgets that).
func (x *expansion) merge(merged *connect.Schema, shapes []*connect.Schema) {
	places := map[string]int{}
	for _, s := range shapes {
		merged.Optional = merged.Optional && s.Equal(shapes[0])
		for _, f := range s.Fields {
			at, known := places[f.Name]
			if !known {
				places[f.Name] = len(merged.Fields)
				merged.Fields = append(merged.Fields, f)
			} else if merged.Fields[at].Schema.Type == connect.Bytes {
				merged.Fields[at] = f
			}
		}
	}
	// In whatever order they are merged, the result is this one when the fields of each are the
	// first of all of them.
	for _, s := range shapes {
		for i, f := range s.Fields {
			known := merged.Fields[i]
			x.ragged = x.ragged || f.Name != known.Name || !f.Schema.Equal(known.Schema) && f.Schema.Type != connect.Bytes
		}
	}
}
