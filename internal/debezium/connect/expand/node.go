// JSON as Jackson's ObjectMapper.readTree reads it, with its defaults.

package expand

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

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

// members are those of an arrayNode or objectNode.
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
		if depth == connect.MaxDepth {
			return node{}, errNotJSON
		}
		if v == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case string:
		return node{kind: stringNode, text: []byte(v)}, nil
	case json.Number:
		return number(string(v))
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

func number(text string) (node, error) {
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
