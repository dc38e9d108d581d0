// JSON as Jackson's ObjectMapper.readTree reads it, with its defaults.

package expand

import (
	"errors"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/debezium/connect"
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
	errMembers = errors.New("a payload of more than 1,048,576 members is not expanded")
	errNotJSON = errors.New("not JSON that Jackson reads")
)

// parseNode reads the object or array that text begins with. Whatever follows it is not looked at:
// FAIL_ON_TRAILING_TOKENS is off. A name that comes twice keeps its first place and its last value.
func parseNode(text []byte) (node, error) {
	p := nodeParser{text: text}
	n := p.value(0)
	switch {
	case p.members > maxMembers:
		return node{}, errMembers
	case p.failed:
		return node{}, errNotJSON
	}
	return n, nil
}

func (p *nodeParser) fail() node {
	p.failed = true
	return node{}
}

func (p *nodeParser) value(depth int) node {
	if p.members++; p.members > maxMembers {
		return p.fail()
	}
	switch c := p.peek(); {
	case c == '{' || c == '[':
		if depth == connect.MaxDepth {
			return p.fail()
		}
		p.at++
		if c == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case c == '"':
		return node{kind: stringNode, text: p.string()}
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case p.word("true"):
		return node{kind: boolNode, int: 1}
	case p.word("false"):
		return node{kind: boolNode}
	case p.word("null"):
		return node{}
	default:
		return p.fail()
	}
}

func (p *nodeParser) array(depth int) node {
	n := node{kind: arrayNode}
	if p.peek() == ']' {
		p.at++
		return n
	}
	for !p.failed {
		n.items = append(n.items, p.value(depth))
		if p.more(']') {
			return n
		}
	}
	return n
}

func (p *nodeParser) object(depth int) node {
	n := node{kind: objectNode}
	if p.peek() == '}' {
		p.at++
		return n
	}
	places := map[string]int{}
	for !p.failed {
		if p.peek() != '"' {
			return p.fail()
		}
		name := string(p.string())
		if p.peek() != ':' || len(name) > maxName {
			return p.fail()
		}
		p.at++
		item := p.value(depth)
		if place, twice := places[name]; twice {
			n.items[place] = item
		} else {
			places[name] = len(n.items)
			n.names, n.items = append(n.names, name), append(n.items, item)
		}
		if p.more('}') {
			return n
		}
	}
	return n
}

// more takes the comma before the next member, or the end of them.
func (p *nodeParser) more(end byte) (ended bool) {
	switch p.peek() {
	case end:
		p.at++
		return true
	case ',':
		p.at++
		return false
	default:
		p.failed = true
		return true
	}
}

func (p *nodeParser) digits() int {
	start := p.at
	for p.at < len(p.text) && p.text[p.at]-'0' <= 9 {
		p.at++
	}
	return p.at - start
}

func (p *nodeParser) number() node {
	start := p.at
	if p.text[p.at] == '-' {
		p.at++
	}
	zero := p.at < len(p.text) && p.text[p.at] == '0'
	count := p.digits()
	if count == 0 || zero && count > 1 {
		return p.fail()
	}
	double := false
	if p.at < len(p.text) && p.text[p.at] == '.' {
		p.at++
		n := p.digits()
		if n == 0 {
			return p.fail()
		}
		double, count = true, count+n
	}
	if p.at < len(p.text) && p.text[p.at]|0x20 == 'e' {
		p.at++
		if p.at < len(p.text) && (p.text[p.at] == '+' || p.text[p.at] == '-') {
			p.at++
		}
		n := p.digits()
		if n == 0 {
			return p.fail()
		}
		double, count = true, count+n
	}
	if count > maxDigits {
		return p.fail()
	}
	text := string(p.text[start:p.at])
	if double {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // infinity, as Java has it
			return p.fail()
		}
		return node{kind: doubleNode, double: f}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return node{kind: bigNode}
	case n == int64(int32(n)):
		return node{kind: intNode, int: n}
	default:
		return node{kind: longNode, int: n}
	}
}
