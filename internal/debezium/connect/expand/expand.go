// Package expand is table.expand.json.payload: the payload's text becomes a struct, with a schema
// that is made of it. It is pure.
package expand

import (
	"errors"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
)

// Expander makes a schema and a value of a JSON text, as the Event Router does with
// table.expand.json.payload (JsonSchemaData).
type Expander struct {
	// of the payload column: the root's name, and the beginning of all others
	Name string
	// table.json.payload.null.behavior optional_bytes: nulls stay; else they are left out
	NullsAsBytes bool
	// table.json.payload.empty.array.behavior optional_string: empty arrays stay (Debezium 3.7)
	EmptyAsString bool
	// field.name.adjustment.mode of the transformation; a member whose name it changes is null
	Names connect.NameMode
}

// Expansion is what became of a payload.
//
// Unchanged: the text is not what can be expanded, and goes on as it is, with its column's schema
// (Debezium warns).
//
// A Value that is Text: Debezium had made the schema when making the value failed (a number beyond
// 64 bits, an array at the top, an array of arrays that differ), and goes on with the new schema
// and the old text. StringConverter then sends the text; every other converter fails, and so does
// an envelope. Append of this package says the same.
type Expansion struct {
	Schema    *connect.Schema
	Value     connect.Value
	Unchanged bool
}

// Expand expands a payload that is not NULL.
//
// The error is for a payload of more than 1,048,576 members, or one that merged schemas would swell
// to that, because it costs too much; and for half a surrogate pair, which has no UTF-8.
func (e *Expander) Expand(text []byte) (Expansion, error) {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return Expansion{Unchanged: true}, nil
	}
	document, err := parseNode(text)
	if errors.Is(err, errMembers) || errors.Is(err, errSurrogate) {
		return Expansion{}, err
	}
	if err != nil {
		return Expansion{Unchanged: true}, nil //nolint:nilerr // Debezium's warning
	}
	x := expansion{Expander: e}
	schema, err := x.schema(e.Name, &document)
	if err != nil {
		return Expansion{Unchanged: true}, nil //nolint:nilerr // Debezium's warning
	}
	if document.kind == objectNode {
		v, ok := x.record(&document, schema)
		if x.members > maxMembers {
			return Expansion{}, errMembers
		}
		if ok {
			return Expansion{Schema: schema, Value: v}, nil
		}
	}
	return Expansion{Schema: schema, Value: connect.TextValue(text)}, nil
}

// expansion is one call of Expand.
type expansion struct {
	*Expander
	members int
}

var errMixed = errors.New("an array whose members have no common schema")

var (
	optionalString  = &connect.Schema{Type: connect.String, Optional: true}
	optionalBoolean = &connect.Schema{Type: connect.Boolean, Optional: true}
	optionalInt32   = &connect.Schema{Type: connect.Int32, Optional: true}
	optionalInt64   = &connect.Schema{Type: connect.Int64, Optional: true}
	optionalFloat64 = &connect.Schema{Type: connect.Float64, Optional: true}
	optionalBytes   = &connect.Schema{Type: connect.Bytes, Optional: true}
)

// schema is a node's schema, nil for what is left out.
func (x *expansion) schema(key string, n *node) (*connect.Schema, error) {
	switch n.kind {
	case stringNode:
		return optionalString, nil
	case boolNode:
		return optionalBoolean, nil
	case intNode:
		return optionalInt32, nil
	case longNode:
		return optionalInt64, nil
	case doubleNode, bigNode:
		return optionalFloat64, nil
	case arrayNode:
		if len(n.items) == 0 {
			if x.EmptyAsString {
				return &connect.Schema{Type: connect.Array, Optional: true, Items: optionalString}, nil
			}
			return nil, nil
		}
		items, err := x.items(key, n)
		if err != nil {
			return nil, err
		}
		return &connect.Schema{Type: connect.Array, Optional: true, Items: items}, nil
	case objectNode:
		return x.object(key, n)
	default:
		if x.NullsAsBytes {
			return optionalBytes, nil
		}
		return nil, nil
	}
}

func (x *expansion) object(key string, n *node) (*connect.Schema, error) {
	s := &connect.Schema{Type: connect.Struct, Optional: true, Name: key}
	if key != "" {
		key += "."
	}
	for i := range n.items {
		name := x.Names.Field(n.names[i])
		field, err := x.schema(key+name, &n.items[i])
		if err != nil {
			return nil, err
		}
		if field == nil || x.Names != connect.NamesAsTheyAre && fieldIndex(s, name) >= 0 {
			continue
		}
		if name == "" {
			return nil, errors.New("a field without a name")
		}
		s.Fields = append(s.Fields, connect.Field{Name: name, Schema: field})
	}
	return s, nil
}

func fieldIndex(s *connect.Schema, name string) int {
	return slices.IndexFunc(s.Fields, func(f connect.Field) bool { return f.Name == name })
}

// record is the node's value as that struct; false where Connect would find a value that is not of
// its schema's type.
func (x *expansion) record(n *node, s *connect.Schema) (connect.Value, bool) {
	if x.members += len(s.Fields); n.kind != objectNode || s.Type != connect.Struct || x.members > maxMembers {
		return connect.Value{}, false
	}
	v := connect.Value{Kind: connect.Record, Items: make([]connect.Value, len(s.Fields))}
	// The fields come in the document's order, but for merged schemas and adjusted names.
	from := 0
	for i, f := range s.Fields {
		at := find(n.names, f.Name, from)
		if at < 0 {
			continue
		}
		from = at + 1
		item, ok := x.value(&n.items[at], f.Schema)
		if !ok {
			return v, false
		}
		v.Items[i] = item
	}
	return v, true
}

// find looks for a name, first where it should be.
func find(names []string, name string, from int) int {
	for i := range names {
		if at := (from + i) % len(names); names[at] == name {
			return at
		}
	}
	return -1
}

func (x *expansion) value(n *node, s *connect.Schema) (connect.Value, bool) {
	switch n.kind {
	case stringNode:
		return connect.TextValue(n.text), s.Type == connect.String
	case boolNode:
		return connect.Value{Kind: connect.Bool, Int: n.int}, s.Type == connect.Boolean
	case intNode:
		return connect.Value{Kind: connect.Integer, Int: n.int}, s.Type == connect.Int32
	case longNode:
		return connect.Value{Kind: connect.Integer, Int: n.int}, s.Type == connect.Int64
	case doubleNode:
		return connect.Value{Kind: connect.Float, Float: n.double}, s.Type == connect.Float64
	case bigNode: // a BigDecimal, which is no double
		return connect.Value{}, false
	case arrayNode:
		v := connect.Value{Kind: connect.List, Items: make([]connect.Value, len(n.items))}
		if s.Type != connect.Array {
			return v, false
		}
		for i := range n.items {
			item, ok := x.value(&n.items[i], s.Items)
			if !ok {
				return v, false
			}
			v.Items[i] = item
		}
		return v, true
	case objectNode:
		return x.record(n, s)
	default:
		return connect.Value{}, s.Optional
	}
}

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
	merge(merged, shapes)
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
// (SchemaUtil.copySchemaBasics forgets that). Debezium merges in the order of a hash set, which is
// another one in each JVM: its order of fields cannot be met, ours is that of the document.
func merge(merged *connect.Schema, shapes []*connect.Schema) {
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
}
