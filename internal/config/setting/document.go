// YAML, or a variable, read as a tree of nodes with their places, the references in their texts
// resolved. Nothing here knows a configuration key.
//
// goccy/go-yaml parses. Its strict decoder is not used: it stops at the first unknown key, and does
// not report where a value stood that a later check refuses.

package setting

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	java "github.com/magiconair/properties"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Kind is the kind of a node of the document.
type Kind uint8

// The kinds.
const (
	Null Kind = iota
	Scalar
	List
	Mapping
)

func (k Kind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a mapping"}[k]
}

// Node is a value of the file or of a variable: kind, place, and the text exactly as written. A
// scalar is not given a type here, so a password of 0123 or yes stays that.
type Node struct {
	Kind    Kind
	Where   Place
	Text    string  // of a scalar
	Items   []*Node // of a list
	Entries []Entry // of a mapping
}

// Values is the items of a list, or a single value as a list of one.
func (n *Node) Values() []*Node {
	if n.Kind == List {
		return n.Items
	}
	return []*Node{n}
}

// Entry is a key of a mapping with its value.
type Entry struct {
	Name  string
	Where Place
	Value *Node
}

// maxTokens is how many words, brackets and colons a document may have; a large configuration has a
// few thousand. The parser needs time and memory by the square of the nesting, and of the number of
// keys, so that a file of 1 MiB could keep it busy for minutes; the lexer needs neither.
const maxTokens = 20_000

// Parse reads one YAML document. It refuses anchors, aliases, tags and merge keys: a value stands
// where it is used.
func Parse(file string, content []byte) (*Node, []*Fault) {
	t := &tree{file: file}
	if len(content) > MaxFileBytes {
		return nil, []*Fault{t.tooLarge(fmt.Sprintf("has more than %d KiB", MaxFileBytes>>10))}
	}
	tokens := lexer.Tokenize(string(content))
	if len(tokens) > maxTokens {
		return nil, []*Fault{t.tooLarge(fmt.Sprintf("has more than %d YAML tokens", maxTokens))}
	}
	parsed, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, []*Fault{t.syntax(err, string(content))}
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
		return &Node{Where: Place{File: file, Line: 1, column: 1}}, nil
	}
	return t.node(body), t.faults
}

func (t *tree) tooLarge(how string) *Fault {
	return &Fault{Where: Place{File: t.file, Line: 1, column: 1}, What: how + ", the most a configuration may have; name the relay's own file with -c"}
}

type tree struct {
	file   string
	faults []*Fault
}

func (t *tree) place(tok *token.Token) Place {
	if tok == nil || tok.Position == nil {
		return Place{File: t.file, Line: 1, column: 1}
	}
	return Place{File: t.file, Line: tok.Position.Line, column: tok.Position.Column}
}

func (t *tree) fault(tok *token.Token, what string) {
	t.faults = append(t.faults, &Fault{Where: t.place(tok), What: what})
}

// syntax keeps the message and the place of a parse error and drops the source text that it quotes.
func (t *tree) syntax(err error, content string) *Fault {
	var at yaml.Error
	if errors.As(err, &at) {
		if where := t.place(at.GetToken()); isIndentedAlone(strings.Split(content, "\n"), where.Line) {
			return &Fault{Where: where, What: "not valid YAML: this line is indented like no key above it; the keys of a section are indented by the same number of spaces"}
		}
		return &Fault{Where: t.place(at.GetToken()), What: "not valid YAML: " + plainly(at.GetMessage())}
	}
	return &Fault{Where: t.place(nil), What: "not valid YAML"}
}

// isIndentedAlone reports whether a line is a key whose indentation is less than that of the key
// above it, and equal to that of no section around it. This is the commonest mistake, and the
// parser's own message about it does not help.
func isIndentedAlone(lines []string, number int) bool {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	if number < 1 || number > len(lines) || !blockKey().MatchString(lines[number-1]) {
		return false
	}
	var open []int // the indents of the sections that are open, outermost first
	for _, line := range lines[:number] {
		if !blockKey().MatchString(line) {
			continue
		}
		for len(open) > 0 && open[len(open)-1] > indent(line) {
			open = open[:len(open)-1]
			if len(open) == 0 || open[len(open)-1] < indent(line) {
				return true
			}
		}
		if len(open) == 0 || open[len(open)-1] < indent(line) {
			open = append(open, indent(line))
		}
	}
	return false
}

// blockKey is a line with a key of a mapping that is not in brackets.
var blockKey = lazy.Regexp(`^ *[A-Za-z_"'][^:{\[]*:(?: |\r?$)`)

// plainly replaces the parser's text for two common mistakes with a plain one.
func plainly(message string) string {
	switch {
	case strings.Contains(message, "tab character"), strings.Contains(message, "'\t'"):
		return "a tab is not allowed here; YAML is indented with spaces"
	case message == "mapping value is not allowed in this context":
		return message + "; is the line below it indented too far, or is a colon with a space in a value without quotes?"
	case message == "found an invalid key for this map", message == "value is not allowed in this context":
		return message + `; a value with [ ] { } or : in it is written in quotes, such as "[::1]:9092"`
	}
	return message
}

func (t *tree) node(n ast.Node) *Node {
	out := &Node{Where: t.place(n.GetToken())}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		out.Kind = Mapping
		for _, value := range n.Values {
			t.entry(out, value)
		}
		if !n.IsFlowStyle && len(out.Entries) > 0 {
			out.Where = out.Entries[0].Where // the mapping has no token of its own
		}
	case *ast.MappingValueNode:
		out.Kind = Mapping
		t.entry(out, n)
	case *ast.SequenceNode:
		out.Kind = List
		for _, value := range n.Values {
			if item := t.withColon(value); item != nil {
				out.Items = append(out.Items, item)
			} else {
				out.Items = append(out.Items, t.node(value))
			}
		}
	case *ast.StringNode:
		out.Kind, out.Text = Scalar, n.Value
	case *ast.LiteralNode:
		out.Kind, out.Text = Scalar, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		out.Kind, out.Text = Scalar, n.GetToken().Value
	default:
		t.fault(n.GetToken(), "YAML anchors, aliases, tags and merge keys are not used here; write the value itself")
	}
	return out
}

// withColon is a list's item such as localhost:9092, which YAML takes for a text, but the parser
// inside of {} for a mapping; nil for any other item.
func (t *tree) withColon(n ast.Node) *Node {
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
	return &Node{Kind: Scalar, Where: t.place(name), Text: name.Value + ":" + value.Value}
}

func (t *tree) entry(into *Node, value *ast.MappingValueNode) {
	key := value.Key.GetToken()
	name := key.Value
	if text, ok := value.Key.(*ast.StringNode); ok {
		name = text.Value
	}
	if _, merge := value.Key.(*ast.MergeKeyNode); merge {
		t.fault(key, "YAML anchors, aliases, tags and merge keys are not used here; write the value itself")
		return
	}
	for _, earlier := range into.Entries {
		if earlier.Name == name {
			t.faults = append(t.faults, &Fault{Where: t.place(key), Key: name, What: "given twice, first at " + earlier.Where.String()})
			return
		}
	}
	into.Entries = append(into.Entries, Entry{Name: name, Where: t.place(key), Value: t.node(value.Value)})
}

// FromVariable makes a node from the text of a variable. The items of a list are separated by
// commas, and so are the entries name=column of a mapping; {} is an empty mapping.
func FromVariable(variable, text string, want Kind) *Node {
	at := Place{Variable: variable}
	out := &Node{Kind: want, Where: at}
	switch want {
	case List:
		for _, item := range SplitList(text) {
			out.Items = append(out.Items, &Node{Kind: Scalar, Where: at, Text: item})
		}
	case Mapping:
		if strings.TrimSpace(text) == "{}" {
			break
		}
		for _, item := range SplitList(text) {
			name, column, _ := strings.Cut(item, "=")
			value := &Node{Kind: Scalar, Where: at, Text: strings.TrimSpace(column)}
			out.Entries = append(out.Entries, Entry{Name: strings.TrimSpace(name), Where: at, Value: value})
		}
	default:
		out.Kind, out.Text = Scalar, text
	}
	return out
}

// addressBreak is a comma between two addresses: a password may have others.
var addressBreak = lazy.Regexp(`\s*,\s*(amqps?://)`)

// AddressesFromVariable makes a list of the addresses in a variable.
func AddressesFromVariable(variable, text string) *Node {
	at := Place{Variable: variable}
	out := &Node{Kind: List, Where: at}
	for item := range strings.SplitSeq(addressBreak().ReplaceAllString(strings.TrimSpace(text), "\n$1"), "\n") {
		if item != "" {
			out.Items = append(out.Items, &Node{Kind: Scalar, Where: at, Text: item})
		}
	}
	return out
}

// SplitList splits at commas and trims spaces. It keeps empty items, except that an empty text has
// no items.
func SplitList(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	items := strings.Split(text, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// Expand replaces ${VAR}, ${VAR:-default}, ${file:/path}, ${file:/path:key} and $$ in the text of a
// scalar. What it puts in is not expanded again. A dollar sign before anything else stands for
// itself. The content of a file loses its last line end.
//
// As in a shell, the default is taken for a variable that is unset or empty; without a default only
// an unset variable is an error.
func Expand(text string, env map[string]string) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), nil
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "{"):
			reference, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return "", errors.New("a ${ without its } (a literal $ before { is written $$)")
			}
			value, err := resolve(reference, env)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

// resolve is the value of the text between ${ and }.
func resolve(reference string, env map[string]string) (string, error) {
	if path, ok := strings.CutPrefix(reference, "file:"); ok {
		value, err := readReference(path)
		if err != nil {
			return "", fmt.Errorf("read ${%s}: %w", reference, err)
		}
		return value, nil
	}
	if strings.HasPrefix(reference, "exec:") {
		return "", errNotWhole
	}
	name, fallback, hasFallback := strings.Cut(reference, ":-")
	if !isVariable(name) {
		return "", errors.New("between ${ and } there must be VAR, VAR:-default or file:/path (a literal $ before { is written $$)")
	}
	value, set := env[name]
	switch {
	case hasFallback && value == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("the environment variable %s is not set", name)
	}
	return value, nil
}

// readReference is the content of the file at path; where there is none, and path ends in :key,
// that key of a .properties file, as Kafka Connect's FileConfigProvider reads it.
func readReference(path string) (string, error) {
	content, err := readSecretFile(path)
	if err == nil {
		return strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r"), nil
	}
	i := strings.LastIndexByte(path, ':')
	if i <= 0 || strings.ContainsRune(path[i:], '/') || !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	file, key := path[:i], path[i+1:]
	if content, err = readSecretFile(file); err != nil {
		return "", err
	}
	loader := java.Loader{Encoding: java.UTF8, DisableExpansion: true}
	read, err := loader.LoadBytes(content)
	if err != nil {
		// the library quotes the line, which may hold the secret
		return "", errors.New("it is not a .properties file")
	}
	value, ok := read.Get(key)
	if !ok {
		return "", fmt.Errorf("%s has no key %s", file, key)
	}
	return value, nil
}

func isVariable(name string) bool {
	for i, r := range name {
		deadLetter := r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !deadLetter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// Literal writes text so that Expand gives it back.
func Literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// The most that is read of a file.
const (
	MaxFileBytes   = 256 << 10 // of the configuration
	maxSecretBytes = 64 << 10  // of one that ${file:} names
)

// ReadFile reads the configuration. It may be a pipe, such as the output of a program that decrypts
// it. A file of more than MaxFileBytes is read a little further than that, for Parse to refuse it.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// readSecretFile reads a small regular file. It is read again at every connect, where a FIFO would
// wait for a writer and a device such as /dev/zero never end.
func readSecretFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO does not wait
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err == nil && len(content) > maxSecretBytes {
		err = fmt.Errorf("%s has more than %d KiB, the most a secret may have", path, maxSecretBytes>>10)
	}
	return content, err
}

// Fault is one thing that is wrong with the configuration: `cdc-relay.yaml:3:5: source.slot: what
// is wrong`.
type Fault struct {
	Where Place
	Key   string // the path of the key, "" for the file as a whole
	What  string
}

// Error is the fault on one line.
func (f *Fault) Error() string {
	var parts []string
	for _, part := range []string{f.Where.String(), f.Key, f.What} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Faults is everything that is wrong, in the order of the file, then of the variables.
type Faults []*Fault

// maxShown is how many faults are printed: a file that is not a configuration has thousands.
const maxShown = 50

// Error is a single fault on its line, or a count and then one fault on a line.
func (fs Faults) Error() string {
	if len(fs) == 1 {
		return fs[0].Error()
	}
	lines := make([]string, 1, len(fs)+1)
	lines[0] = strconv.Itoa(len(fs)) + " faults"
	for i, f := range fs {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more", len(fs)-i))
			break
		}
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n  ")
}

// Stop sorts the faults and wraps them with exit code 2; no faults are no error.
func (fs Faults) Stop() error {
	if len(fs) == 0 {
		return nil
	}
	slices.SortStableFunc(fs, func(a, b *Fault) int { return a.Where.compare(b.Where) })
	return &event.Stop{Code: event.ExitUsage, Reason: "config", What: "the configuration cannot be used", Err: fs}
}

// Place is where a value was written: a place in a file, a variable, or neither for a default.
type Place struct {
	File         string
	Line, column int
	Variable     string
}

// String is file:line:column, the variable's name, or "".
func (p Place) String() string {
	if p.Variable != "" || p.File == "" {
		return p.Variable
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.column)
}

// compare orders places: first those in the file, by line, then variables by name, then values
// without a place.
func (p Place) compare(q Place) int {
	return cmp.Or(
		cmp.Compare(p.rank(), q.rank()),
		cmp.Compare(p.Line, q.Line),
		cmp.Compare(p.column, q.column),
		cmp.Compare(p.Variable, q.Variable),
	)
}

func (p Place) rank() int {
	switch {
	case p.File != "":
		return 0
	case p.Variable != "":
		return 1
	}
	return 2
}
