// JSON as Jackson's ObjectMapper.readTree reads it, with its defaults.

package expand

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
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

// node is a value of a JSON document.
type node struct {
	kind   nodeKind
	int    int64 // of intNode, longNode, boolNode
	double float64
	text   []byte   // of stringNode
	names  []string // of objectNode
	items  []node   // of arrayNode, objectNode
}

// The limits of Jackson's StreamReadConstraints that a payload can meet.
const (
	maxDigits = 1000
	maxName   = 50_000
)

// maxMembers is a limit of our own.
const maxMembers = 1 << 20

var (
	errMembers   = errors.New("a payload of more than 1,048,576 members is not expanded")
	errSurrogate = errors.New("a payload with half a surrogate pair is not expanded")
	errNotJSON   = errors.New("not JSON that Jackson reads")
)

// pairedEscapes are the escapes of JSON, of which those of surrogates stand in pairs.
var pairedEscapes = lazy.Regexp(`(?i)\\([^u]|u[0-9a-ce-f]...|ud[0-7]..|ud[89ab]..\\ud[c-f]..)`)

// parseNode reads the object or array that text begins with. Whatever follows it is not looked at:
// FAIL_ON_TRAILING_TOKENS is off. A name that comes twice keeps its first place and its last value.
func parseNode(text []byte) (node, error) {
	p := nodeParser{Decoder: json.NewDecoder(bytes.NewReader(text))}
	p.UseNumber()
	n, err := p.value(0)
	switch {
	case errors.Is(err, errMembers):
		return node{}, err
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
	members int
}

func (p *nodeParser) value(depth int) (node, error) {
	if p.members++; p.members > maxMembers {
		return node{}, errMembers
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
			return node{kind: boolNode, int: 1}, nil
		}
		return node{kind: boolNode}, nil
	default:
		return node{}, nil
	}
}

func (p *nodeParser) array(depth int) (node, error) {
	n := node{kind: arrayNode}
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
	n := node{kind: objectNode}
	places := map[string]int{}
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
		if place, twice := places[name]; twice {
			n.items[place] = item
		} else {
			places[name] = len(n.items)
			n.names, n.items = append(n.names, name), append(n.items, item)
		}
	}
	_, err := p.Token()
	return n, err
}

func number(text string) (node, error) {
	if len(strings.Join(strings.FieldsFunc(text, notDigit), "")) > maxDigits {
		return node{}, errNotJSON
	}
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // infinity, as Java has it
			return node{}, err
		}
		return node{kind: doubleNode, double: f}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return node{kind: intNode, int: n}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return node{kind: longNode, int: n}, nil
	}
	return node{kind: bigNode}, nil
}

func notDigit(r rune) bool { return r < '0' || r > '9' }
