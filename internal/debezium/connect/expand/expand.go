// Package expand is table.expand.json.payload: the payload's text becomes a struct, with a schema
// that is made of it. It is pure.
package expand

import (
	"errors"
	"math"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
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

// Expand expands a payload that is not NULL, within the event's budget.
//
// The error is for a payload that is over it, and for half a surrogate pair, which has no UTF-8.
func (e *Expander) Expand(text []byte, budget *event.Budget) (Expansion, error) {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return Expansion{Unchanged: true}, nil
	}
	x := expansion{Expander: e, budget: budget}
	document, err := parseNode(text, budget)
	var schema *connect.Schema
	if err == nil {
		schema, err = x.schema("", e.Name, &document)
	}
	switch {
	case budget.Err() != nil:
		return Expansion{}, budget.Err()
	case errors.Is(err, errSurrogate):
		return Expansion{}, err
	case err != nil:
		return Expansion{Unchanged: true}, nil //nolint:nilerr // Debezium's warning
	}
	if document.kind == objectNode {
		v, ok := x.record(&document, schema)
		if budget.Err() != nil {
			return Expansion{}, budget.Err()
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
	budget *event.Budget
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

// schema is the schema of a member of what has the name parent; nil for what is left out.
func (x *expansion) schema(parent, name string, n *node) (*connect.Schema, error) {
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
		items, err := x.items(parent, name, n)
		if err != nil {
			return nil, err
		}
		return &connect.Schema{Type: connect.Array, Optional: true, Items: items}, nil
	case objectNode:
		key, err := x.join(parent, name)
		if err != nil {
			return nil, err
		}
		return x.object(key, n)
	default:
		if x.NullsAsBytes {
			return optionalBytes, nil
		}
		return nil, nil
	}
}

// join is the name of a schema. Each has those of all around it, so that they grow with the square
// of the depth.
func (x *expansion) join(parent, name string) (string, error) {
	if parent == "" {
		return name, nil
	}
	if !x.budget.Make(len(parent) + 1 + len(name)) {
		return "", x.budget.Err()
	}
	return parent + "." + name, nil
}

func (x *expansion) object(key string, n *node) (*connect.Schema, error) {
	s := &connect.Schema{Type: connect.Struct, Optional: true, Name: key}
	if !x.budget.Work(1 + len(n.items)) {
		return nil, x.budget.Err()
	}
	var names []string // adjusted ones, of which two may be the same
	var places index
	for i := range n.items {
		name, err := x.adjust(n.names[i])
		if err != nil {
			return nil, err
		}
		field, err := x.schema(key, name, &n.items[i])
		if err != nil {
			return nil, err
		}
		if field == nil || x.Names != connect.NamesAsTheyAre && places.find(names, name) >= 0 {
			continue
		}
		if name == "" {
			return nil, errors.New("a field without a name")
		}
		if x.Names != connect.NamesAsTheyAre {
			names = append(names, name)
		}
		s.Fields = append(s.Fields, connect.Field{Name: name, Schema: field})
	}
	return s, nil
}

// adjust is a field's name under the option.
func (x *expansion) adjust(name string) (string, error) {
	if x.Names == connect.NamesAsTheyAre {
		return name, nil
	}
	most := connect.AdjustedMost * len(name)
	if !x.budget.Make(most) {
		return "", x.budget.Err()
	}
	adjusted := x.Names.Field(name)
	x.budget.Make(len(adjusted) - most)
	return adjusted, nil
}

// missingWork is what a field costs that an object lacks: an object of a merged schema has a value
// for each field of all others.
const missingWork = 4

// record is the node's value as that struct; false where Connect would find a value that is not of
// its schema's type, and where the budget is used up.
func (x *expansion) record(n *node, s *connect.Schema) (connect.Value, bool) {
	if n.kind != objectNode || s.Type != connect.Struct || !x.budget.Work(len(s.Fields)+missingWork*max(0, len(s.Fields)-len(n.names))) {
		return connect.Value{}, false
	}
	v := connect.Value{Kind: connect.Record, Items: make([]connect.Value, len(s.Fields))}
	// The fields come in the document's order, but for merged schemas and adjusted names.
	var places index
	from := 0
	for i, f := range s.Fields {
		at := from
		if at >= len(n.names) || n.names[at] != f.Name {
			at = places.find(n.names, f.Name)
		}
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

func (x *expansion) value(n *node, s *connect.Schema) (connect.Value, bool) {
	switch n.kind {
	case stringNode:
		return connect.TextValue(n.text), s.Type == connect.String
	case boolNode:
		return connect.Value{Kind: connect.Bool, Int: int64(n.number)}, s.Type == connect.Boolean
	case intNode:
		return connect.Value{Kind: connect.Integer, Int: int64(n.number)}, s.Type == connect.Int32
	case longNode:
		return connect.Value{Kind: connect.Integer, Int: int64(n.number)}, s.Type == connect.Int64
	case doubleNode:
		return connect.Value{Kind: connect.Float, Float: math.Float64frombits(n.number)}, s.Type == connect.Float64
	case bigNode: // a BigDecimal, which is no double
		return connect.Value{}, false
	case arrayNode:
		if s.Type != connect.Array || !x.budget.Work(len(n.items)) {
			return connect.Value{}, false
		}
		v := connect.Value{Kind: connect.List, Items: make([]connect.Value, len(n.items))}
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
func (x *expansion) items(parent, name string, array *node) (*connect.Schema, error) {
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
		s, err := x.schema("", "", first)
		if err == nil && s == nil {
			err = errMixed
		}
		return s, err
	}
	key, err := x.join(parent, name)
	if err != nil {
		return nil, err
	}
	m := merger{schema: &connect.Schema{Type: connect.Struct, Optional: true, Name: key}}
	for i := range array.items {
		if array.items[i].kind != objectNode {
			continue
		}
		s, err := x.object(key, &array.items[i])
		if err != nil {
			return nil, err
		}
		m.add(s)
	}
	return m.schema, nil
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

// merger is mergeSchema: the fields of all, each with the schema that it has first, unless that is
// the bytes of a null. What was merged of different shapes is not optional any more
// (SchemaUtil.copySchemaBasics forgets that). Debezium merges in the order of a hash set, which is
// another one in each JVM: its order of fields cannot be met, ours is that of the document.
type merger struct {
	schema, first *connect.Schema
	names         []string // of the fields
	places        index
}

// add takes one more shape, which is not kept unless it is the first.
func (m *merger) add(s *connect.Schema) {
	if m.first == nil {
		m.first = s
	}
	m.schema.Optional = m.schema.Optional && (s == m.first || s.Equal(m.first))
	for i, f := range s.Fields {
		at := i
		if at >= len(m.names) || m.names[at] != f.Name {
			at = m.places.find(m.names, f.Name)
		}
		if at < 0 {
			m.names, m.schema.Fields = append(m.names, f.Name), append(m.schema.Fields, f)
		} else if m.schema.Fields[at].Schema.Type == connect.Bytes {
			m.schema.Fields[at] = f
		}
	}
}
