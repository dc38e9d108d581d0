// table.expand.json.payload: the payload's text becomes a struct, with a schema that is made of it.

package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
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
	Names NameMode
}

// Expansion is the result of expanding a payload.
//
// Unchanged: the text is not what can be expanded, and goes on as it is, with its column's schema
// (Debezium warns).
//
// A Value that is Text: Debezium had made the schema when making the value failed (a number beyond
// 64 bits, an array at the top, an array of arrays that differ), and goes on with the new schema
// and the old text. StringConverter then sends the text; every other converter fails, and so does
// an envelope. Append of this package says the same.
type Expansion struct {
	Schema    *Schema
	Value     Value
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
	var schema *Schema
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
	return Expansion{Schema: schema, Value: TextValue(text)}, nil
}

// expansion is one call of Expand.
type expansion struct {
	*Expander
	budget *event.Budget
}

var errMixed = errors.New("an array whose members have no common schema")

var (
	optionalString  = &Schema{Type: String, Optional: true}
	optionalBoolean = &Schema{Type: Boolean, Optional: true}
	optionalInt32   = &Schema{Type: Int32, Optional: true}
	optionalInt64   = &Schema{Type: Int64, Optional: true}
	optionalFloat64 = &Schema{Type: Float64, Optional: true}
	optionalBytes   = &Schema{Type: Bytes, Optional: true}
)

// schema is the schema of the member name of the object that is called parent; nil: it is left out.
func (x *expansion) schema(parent, name string, n *node) (*Schema, error) {
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
				return &Schema{Type: Array, Optional: true, Items: optionalString}, nil
			}
			return nil, nil
		}
		items, err := x.items(parent, name, n)
		if err != nil {
			return nil, err
		}
		return &Schema{Type: Array, Optional: true, Items: items}, nil
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

func (x *expansion) object(key string, n *node) (*Schema, error) {
	s := &Schema{Type: Struct, Optional: true, Name: key}
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
		if field == nil || x.Names.adjusts() && places.find(names, name) >= 0 {
			continue
		}
		if name == "" {
			return nil, errors.New("a field without a name")
		}
		if x.Names.adjusts() {
			names = append(names, name)
		}
		s.Fields = append(s.Fields, Field{Name: name, Schema: field})
	}
	return s, nil
}

// adjust is a field's name under the option.
func (x *expansion) adjust(name string) (string, error) {
	if !x.Names.adjusts() {
		return name, nil
	}
	most := AdjustedMost * len(name)
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
func (x *expansion) record(n *node, s *Schema) (Value, bool) {
	if n.kind != objectNode || s.Type != Struct || !x.budget.Work(len(s.Fields)+missingWork*max(0, len(s.Fields)-len(n.names))) {
		return Value{}, false
	}
	v := Value{Kind: Record, Items: make([]Value, len(s.Fields))}
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

func (x *expansion) value(n *node, s *Schema) (Value, bool) {
	switch n.kind {
	case stringNode:
		return TextValue(n.text), s.Type == String
	case boolNode:
		return Value{Kind: Bool, Int: int64(n.number)}, s.Type == Boolean
	case intNode:
		return Value{Kind: Integer, Int: int64(n.number)}, s.Type == Int32
	case longNode:
		return Value{Kind: Integer, Int: int64(n.number)}, s.Type == Int64
	case doubleNode:
		return Value{Kind: Float, Float: math.Float64frombits(n.number)}, s.Type == Float64
	case bigNode: // a BigDecimal, which is no double
		return Value{}, false
	case arrayNode:
		if s.Type != Array || !x.budget.Work(len(n.items)) {
			return Value{}, false
		}
		v := Value{Kind: List, Items: make([]Value, len(n.items))}
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
		return Value{}, s.Optional
	}
}

// items is the schema of an array's members: that of the first which is not null, or of all objects
// merged.
func (x *expansion) items(parent, name string, array *node) (*Schema, error) {
	first, err := firstMember(array)
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
	m := merger{schema: &Schema{Type: Struct, Optional: true, Name: key}}
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

// firstMember is an array's first member that is not null, after a look at whether all are of one
// type; nil when all are null.
func firstMember(array *node) (*node, error) {
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
	schema, first *Schema
	names         []string // of the fields
	places        index
}

// add merges the schema of one more element into the schema of all. s is kept if it is the first.
func (m *merger) add(s *Schema) {
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
		} else if m.schema.Fields[at].Schema.Type == Bytes {
			m.schema.Fields[at] = f
		}
	}
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	boolNode
	intNode    // fits 32 bits
	longNode   // fits 64
	bigNode    // fits neither
	doubleNode // everything with a point or an exponent
	stringNode
	arrayNode
	objectNode
)

// node is a value of a JSON document. It is small, since a document may have nearly as many as
// bytes.
type node struct {
	kind   nodeKind
	number uint64 // of intNode, longNode, boolNode; the bits of a doubleNode's
	text   []byte // of stringNode
	*members
}

// members are the members of an arrayNode or objectNode.
type members struct {
	names []string // of objectNode
	items []node
}

// index finds a name in a list of names without repeats, which may grow. The zero value is for a
// list of its own.
type index struct{ places map[string]int }

// few is how many names are compared one by one.
const few = 8

// find is the name's place in names; -1: it has none.
func (x *index) find(names []string, name string) int {
	if len(names) <= few {
		return slices.Index(names, name)
	}
	if x.places == nil {
		x.places = make(map[string]int, len(names))
	}
	for i := len(x.places); i < len(names); i++ {
		x.places[names[i]] = i
	}
	if at, known := x.places[name]; known {
		return at
	}
	return -1
}

// The limits of Jackson's StreamReadConstraints that a payload can meet.
const (
	maxDigits = 1000
	maxName   = 50_000
)

var (
	errSurrogate = errors.New("a payload with half a surrogate pair is not expanded")
	errNotJSON   = errors.New("not JSON that Jackson reads")
)

// pairedEscapes are the escapes of JSON, of which those of surrogates stand in pairs.
var pairedEscapes = lazy.Regexp(`(?i)\\([^u]|u[0-9a-ce-f]...|ud[0-7]..|ud[89ab]..\\ud[c-f]..)`)

// parseNode reads the object or array that text begins with. Whatever follows it is not looked at:
// FAIL_ON_TRAILING_TOKENS is off. A name that comes twice keeps its first place and its last value.
func parseNode(text []byte, budget *event.Budget) (node, error) {
	p := nodeParser{Decoder: json.NewDecoder(bytes.NewReader(text)), budget: budget}
	p.UseNumber()
	n, err := p.value(0)
	switch {
	case budget.Err() != nil:
		return node{}, budget.Err()
	case err != nil:
		return node{}, errNotJSON
	}
	read := text[:p.InputOffset()]
	if bytes.Contains(read, []byte(`\u`)) && bytes.IndexByte(pairedEscapes().ReplaceAll(read, nil), '\\') >= 0 {
		return node{}, errSurrogate // encoding/json has read U+FFFD
	}
	return n, nil
}

type nodeParser struct {
	*json.Decoder
	budget *event.Budget
}

func (p *nodeParser) value(depth int) (node, error) {
	if !p.budget.Work(1) {
		return node{}, p.budget.Err()
	}
	token, err := p.Token()
	if err != nil {
		return node{}, err
	}
	switch v := token.(type) {
	case json.Delim:
		if depth == MaxDepth {
			return node{}, errNotJSON
		}
		if v == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case string:
		return node{kind: stringNode, text: []byte(v)}, nil
	case json.Number:
		return parseNumber(string(v))
	case bool:
		if v {
			return node{kind: boolNode, number: 1}, nil
		}
		return node{kind: boolNode}, nil
	default:
		return node{}, nil
	}
}

func (p *nodeParser) array(depth int) (node, error) {
	n := node{kind: arrayNode, members: new(members)}
	for p.More() {
		item, err := p.value(depth)
		if err != nil {
			return n, err
		}
		n.items = append(n.items, item)
	}
	_, err := p.Token()
	return n, err
}

func (p *nodeParser) object(depth int) (node, error) {
	n := node{kind: objectNode, members: new(members)}
	var places index
	for p.More() {
		token, err := p.Token()
		if err != nil {
			return n, err
		}
		name := token.(string) //nolint:forcetypeassert // a Decoder gives no other
		if len(name) > maxName {
			return n, errNotJSON
		}
		item, err := p.value(depth)
		if err != nil {
			return n, err
		}
		if place := places.find(n.names, name); place >= 0 {
			n.items[place] = item
		} else {
			n.names, n.items = append(n.names, name), append(n.items, item)
		}
	}
	_, err := p.Token()
	return n, err
}

func parseNumber(text string) (node, error) {
	if len(text) > maxDigits && len(strings.Join(strings.FieldsFunc(text, notDigit), "")) > maxDigits {
		return node{}, errNotJSON
	}
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // infinity, as Java has it
			return node{}, err
		}
		return node{kind: doubleNode, number: math.Float64bits(f)}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return node{kind: intNode, number: uint64(n)}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return node{kind: longNode, number: uint64(n)}, nil
	}
	return node{kind: bigNode}, nil
}

func notDigit(r rune) bool { return r < '0' || r > '9' }
