package config

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

type kind uint8

const (
	null kind = iota
	scalar
	list
	mapping
)

func (k kind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a mapping"}[k]
}

// node is a value of the file or of a variable: kind, place, and the text exactly as written. A scalar is not given a
// type here, so a password of 0123 or yes stays that.
type node struct {
	kind    kind
	where   place
	text    string  // of a scalar
	items   []*node // of a list
	entries []entry // of a mapping
}

type entry struct {
	name  string
	where place
	value *node
}

// parse reads one YAML document. It refuses anchors, aliases, tags and merge keys: a value stands where it is used.
func parse(file string, content []byte) (*node, []*Fault) {
	t := &tree{file: file}
	parsed, err := parser.ParseBytes(content, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, []*Fault{t.syntax(err)}
	}
	var body ast.Node
	for _, doc := range parsed.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			t.fault(doc.Body.GetToken(), "a second YAML document; the configuration is one document")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		return &node{where: place{file: file, line: 1, column: 1}}, nil
	}
	return t.node(body), t.faults
}

type tree struct {
	file   string
	faults []*Fault
}

func (t *tree) place(tok *token.Token) place {
	if tok == nil || tok.Position == nil {
		return place{file: t.file, line: 1, column: 1}
	}
	return place{file: t.file, line: tok.Position.Line, column: tok.Position.Column}
}

func (t *tree) fault(tok *token.Token, what string) {
	t.faults = append(t.faults, &Fault{where: t.place(tok), What: what})
}

// syntax keeps the message and the place of a parse error and drops the source text that it quotes.
func (t *tree) syntax(err error) *Fault {
	var at yaml.Error
	if errors.As(err, &at) {
		return &Fault{where: t.place(at.GetToken()), What: "not valid YAML: " + plainly(at.GetMessage())}
	}
	return &Fault{where: t.place(nil), What: "not valid YAML"}
}

// plainly says what the parser means of two mistakes that people make and it has strange words for.
func plainly(message string) string {
	switch {
	case strings.Contains(message, "tab character"), strings.Contains(message, "'\t'"):
		return "a tab is not allowed here; YAML is indented with spaces"
	case message == "found an invalid key for this map", message == "value is not allowed in this context":
		return message + `; a value with [ ] { } or : in it is written in quotes, such as "[::1]:9092"`
	}
	return message
}

func (t *tree) node(n ast.Node) *node {
	out := &node{where: t.place(n.GetToken())}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		out.kind = mapping
		for _, value := range n.Values {
			t.entry(out, value)
		}
		if !n.IsFlowStyle && len(out.entries) > 0 {
			out.where = out.entries[0].where // the mapping has no token of its own
		}
	case *ast.MappingValueNode:
		out.kind = mapping
		t.entry(out, n)
	case *ast.SequenceNode:
		out.kind = list
		for _, value := range n.Values {
			if item := t.withColon(value); item != nil {
				out.items = append(out.items, item)
			} else {
				out.items = append(out.items, t.node(value))
			}
		}
	case *ast.StringNode:
		out.kind, out.text = scalar, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = scalar, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = scalar, n.GetToken().Value
	default:
		t.fault(n.GetToken(), "YAML anchors, aliases, tags and merge keys are not used here; write the value itself")
	}
	return out
}

// withColon is a list's item such as localhost:9092, which YAML takes for a text, but the parser
// inside of {} for a mapping; nil for any other item.
func (t *tree) withColon(n ast.Node) *node {
	pair, ok := n.(*ast.MappingNode)
	if !ok || pair.IsFlowStyle || len(pair.Values) != 1 {
		return nil
	}
	name, colon, value := pair.Values[0].Key.GetToken(), pair.Values[0].Start, pair.Values[0].Value.GetToken()
	for _, part := range []*token.Token{name, value} {
		if part.Indicator != token.NotIndicator {
			return nil // in quotes, or no single value
		}
	}
	at := name.Position.Column + utf8.RuneCountInString(name.Value)
	if colon.Position.Line != value.Position.Line || colon.Position.Column != at || value.Position.Column != at+1 {
		return nil
	}
	return &node{kind: scalar, where: t.place(name), text: name.Value + ":" + value.Value}
}

func (t *tree) entry(into *node, value *ast.MappingValueNode) {
	key := value.Key.GetToken()
	name := key.Value
	if text, ok := value.Key.(*ast.StringNode); ok {
		name = text.Value
	}
	if _, merge := value.Key.(*ast.MergeKeyNode); merge {
		t.fault(key, "YAML anchors, aliases, tags and merge keys are not used here; write the value itself")
		return
	}
	for _, earlier := range into.entries {
		if earlier.name == name {
			t.faults = append(t.faults, &Fault{where: t.place(key), Key: name, What: "given twice, first at " + earlier.where.String()})
			return
		}
	}
	into.entries = append(into.entries, entry{name: name, where: t.place(key), value: t.node(value.Value)})
}

// fromVariable makes a node of the text of a variable: a list is separated by commas, a mapping is name=column, comma
// separated, {} an empty one.
func fromVariable(variable, text string, want kind) *node {
	at := place{variable: variable}
	out := &node{kind: want, where: at}
	switch want {
	case list:
		for _, item := range splitList(text) {
			out.items = append(out.items, &node{kind: scalar, where: at, text: item})
		}
	case mapping:
		if strings.TrimSpace(text) == "{}" {
			break
		}
		for _, item := range splitList(text) {
			name, column, _ := strings.Cut(item, "=")
			value := &node{kind: scalar, where: at, text: strings.TrimSpace(column)}
			out.entries = append(out.entries, entry{name: strings.TrimSpace(name), where: at, value: value})
		}
	default:
		out.kind, out.text = scalar, text
	}
	return out
}

// splitList splits at commas, trims spaces and drops nothing but an altogether empty text.
func splitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}
