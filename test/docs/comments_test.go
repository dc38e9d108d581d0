package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// foreignNames are the names in comments that nothing in the repository has: names of other
// programs, and words that only look like a name. A name with a dot is here as a whole, or its
// first part is. First come Java's and Kafka's names, then those of PostgreSQL and of Go libraries.
var foreignNames = strings.Fields(`
	AbstractCollection AbstractEventRouterTest AbstractTopicNamingStrategy AppInfoParser BigDecimal
	BigInteger Boolean ConfigTransformer ConsumerProtocol DelayedProduce DescribeClientQuotas EventRouterTest
	IncrementalAlterConfigs InitProducerID JdbcValueConverters JsonConverter JsonSchema JsonSchemaData
	JsonSchemaDataTest LocalDate LocalTime MurmurHash2 PGStatement PREFIX Partition
	PostgresValueConverter ReplicaManager SchemaNameAdjuster SchemaUtil StreamReadConstraints
	StreamWriteConstraints UUID UnifiedLog UtilsTest Values application.yaml convertDecimal java
	kafka-consumer-groups.sh mergeSchema org sink.kafka.producer

	BackendKeyData LogicalConfirmReceivedLocation NotificationResponse SnapBuildXactNeedsSkip
	StartupMessage XLogData

	DialFunc QueryTracer ReaderConfig

	BuildKit GitHub OpenMetrics PromQL SipHash TestX log.caller relay.yaml schema.type
`)

// TestCommentsNameWhatExists finds names in Go comments that nothing has: an identifier that was
// renamed, a file that was moved, a key, a metric or a table that is gone. It also finds a comment
// above a declaration that begins with another name than its own. In the pages for people who
// change the code it looks at what stands in backticks.
func TestCommentsNameWhatExists(t *testing.T) {
	known := newVocabulary()
	for _, word := range foreignNames {
		known.foreign[word] = true
	}
	must(t, known.addFolder(pages.Root()))
	if len(known.sources) < 500 || len(known.sections) < 8 {
		t.Fatalf("only %d Go files and the sections %q were read", len(known.sources), slices.Collect(maps.Keys(known.sections)))
	}
	faults := known.faults()
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "bench/README.md"} {
		for i, line := range strings.Split(withoutCode(pages.Text(t, page)), "\n") {
			for _, code := range matches("`([\\w.]+)`", line) {
				for _, name := range known.missing(code) {
					faults = append(faults, fmt.Sprintf("%s:%d: %s does not exist%s", page, i+1, name, known.nearest(name)))
				}
			}
		}
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// TestFaultsOfComments has one comment of each kind that must be found, and those that must not.
func TestFaultsOfComments(t *testing.T) {
	known := newVocabulary()
	known.foreign["RabbitMQ"] = true
	must(t, known.addSource("line/line.go", []byte(`// Package line is in line.go; see rooms.md and the decision 0001-rooms.md.
package line

import "example.org/pgx"

// keys: "delivery.max_in_flight", "cdc_relay_lag_seconds", "cdc_relay.slots"
const keys = "delivery.max_in_flight cdc_relay_lag_seconds cdc_relay.slots"

// Line calls moveWatermark, line.Line, Line.Event, pgx.Anything; RabbitMQ has delivery.max_in_flight.
// It counts cdc_relay_lag_seconds_total of cdc_relay.slots, at https://example.org/NoSuchName.
type Line struct{ Event int }

// moveMark moves it with settleAll, Line.Settle and line.Settle (TestGone in gone_test.go).
func moveWatermark() {} // as cdc_relay.slot, cdc_relay_lag and delivery.in_flight have it
`)))
	known.files["rooms.md"], known.files["0001-rooms.md"] = true, true
	known.sections["delivery"] = true
	var found []string
	for _, fault := range known.faults() {
		found = append(found, regexp.MustCompile(`^\S+ (\S+)`).FindStringSubmatch(fault)[1])
	}
	slices.Sort(found)
	want := []string{
		"Line.Settle", "TestGone", "cdc_relay.slot", "cdc_relay_lag", "delivery.in_flight", "gone_test.go", "line.Settle", "moveMark", "moveMark", "settleAll",
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

// vocabulary is what the repository has names for. Names of different packages are not told apart:
// a comment may name what is in another one.
type vocabulary struct {
	fset    *token.FileSet
	sources map[string]*ast.File // Go files by path
	// identifiers of Go code, words of its strings and of other files; and pairs of them with a dot
	names, pairs map[string]bool
	packages     map[string]map[string]bool // what our packages declare, by the package's name
	types        map[string]map[string]bool // fields and methods of our types, by the type's name
	open         map[string]bool            // types with members that are not seen here
	imported     map[string]bool            // packages of others
	sections     map[string]bool            // first words of configuration keys
	files        map[string]bool            // names of files, without their folder
	foreign      map[string]bool
}

func newVocabulary() *vocabulary {
	set := func() map[string]bool { return map[string]bool{} }
	return &vocabulary{
		fset: token.NewFileSet(), sources: map[string]*ast.File{}, packages: map[string]map[string]bool{}, types: map[string]map[string]bool{},
		names: set(), pairs: set(), open: set(), imported: set(), sections: set(), files: set(), foreign: set(),
	}
}

// Pages are left out: what only a page names may be gone. So are planted bugs, which have old text.
var textOfOthers = regexp.MustCompile(`\.(md|patch|png|svg|jsonl|sum)$`)

// addFolder adds all files below a folder.
func (v *vocabulary) addFolder(root string) error {
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "bin" || name == "dist"):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		v.files[name] = true
		if textOfOthers.MatchString(name) {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err == nil && path.Ext(name) == ".go" {
			return v.addSource(filepath.ToSlash(rel), text)
		}
		v.addText(string(text))
		return err
	})
}

var (
	nameInText = regexp.MustCompile(`[A-Za-z_]\w*`)
	pairInText = regexp.MustCompile(`[A-Za-z_]\w*(?:\.\w+)+`)
)

func (v *vocabulary) addText(text string) {
	for _, name := range nameInText.FindAllString(text, -1) {
		v.names[name] = true
	}
	for _, pair := range pairInText.FindAllString(text, -1) {
		for at := strings.LastIndexByte(pair, '.'); at > 0; at = strings.LastIndexByte(pair, '.') {
			v.pairs[pair] = true // and sink.kafka of sink.kafka.brokers
			pair = pair[:at]
		}
	}
}

// addSource adds a Go file: its code, not its comments.
func (v *vocabulary) addSource(file string, text []byte) error {
	source, err := parser.ParseFile(v.fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	v.sources[file], v.files[path.Base(file)] = source, true
	declared := v.packages[source.Name.Name]
	if declared == nil {
		declared = map[string]bool{}
		v.packages[source.Name.Name] = declared
	}
	isConfig := strings.HasPrefix(file, "internal/config/") && !strings.HasSuffix(file, "_test.go")
	for _, decl := range source.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil {
				declared[decl.Name.Name] = true
			} else {
				v.membersOf(receiver(decl.Recv.List[0].Type))[decl.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					declared[spec.Name.Name] = true
					v.addType(spec)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						declared[name.Name] = true
					}
				}
			}
		}
	}
	ast.Inspect(source, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec:
			if name, _ := strconv.Unquote(node.Path.Value); !strings.Contains(name, "cdc-relay/cdc-relay") {
				v.imported[path.Base(majorVersion.ReplaceAllString(name, ""))] = true
			}
			return false
		case *ast.Ident:
			v.names[node.Name] = true
		case *ast.SelectorExpr:
			if of, ok := node.X.(*ast.Ident); ok {
				v.pairs[of.Name+"."+node.Sel.Name] = true
			}
		case *ast.BasicLit:
			if node.Kind == token.STRING {
				value, _ := strconv.Unquote(node.Value)
				v.addText(value)
				if section, rest, ok := strings.Cut(value, "."); ok && isConfig && keyWord.MatchString(section) && keyWord.MatchString(rest) {
					v.sections[section] = true
				}
			}
		}
		return true
	})
	return nil
}

var majorVersion = regexp.MustCompile(`/v\d+$`) // github.com/jackc/pgx/v5 is pgx

var keyWord = regexp.MustCompile(`^[a-z][a-z_]*$`)

// receiver is the name of a receiver's type, of a field's that is embedded, or of a base type; "":
// it is of another package.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.SelectorExpr:
		return of.Sel.Name
	case *ast.Ident:
		return of.Name
	}
	return ""
}

func (v *vocabulary) membersOf(name string) map[string]bool {
	if v.types[name] == nil {
		v.types[name] = map[string]bool{}
	}
	return v.types[name]
}

// addType adds the fields of a struct and the methods of an interface. Members of what is embedded
// are not followed: the type is open.
func (v *vocabulary) addType(spec *ast.TypeSpec) {
	members := v.membersOf(spec.Name.Name)
	var fields *ast.FieldList
	switch is := spec.Type.(type) {
	case *ast.StructType:
		fields = is.Fields
	case *ast.InterfaceType:
		fields = is.Methods
	default:
		v.open[spec.Name.Name] = spec.Assign.IsValid() // an alias
		return
	}
	for _, field := range fields.List {
		if len(field.Names) == 0 {
			members[receiver(field.Type)], v.open[spec.Name.Name] = true, true
		}
		for _, name := range field.Names {
			members[name.Name] = true
		}
	}
}

// faults are the names in comments that do not exist, each as path:line name: the nearest that
// does.
func (v *vocabulary) faults() (all []string) {
	all = append(all, v.misnamed()...)
	for _, file := range slices.Sorted(maps.Keys(v.sources)) {
		for _, group := range v.sources[file].Comments {
			for _, comment := range group.List {
				if strings.HasPrefix(comment.Text, "//") && !strings.HasPrefix(comment.Text, "// ") {
					continue // a directive
				}
				at := v.fset.Position(comment.Pos())
				for i, line := range strings.Split(comment.Text, "\n") {
					for _, name := range v.missing(line) {
						all = append(all, fmt.Sprintf("%s:%d: %s does not exist%s", at.Filename, at.Line+i, name, v.nearest(name)))
					}
				}
			}
		}
	}
	return all
}

// misnamed finds comments above a declaration that begin with another name. A sentence begins with
// a capital, so a first word without one is a name; so is one with a capital inside.
func (v *vocabulary) misnamed() (faults []string) {
	check := func(doc *ast.CommentGroup, name string) {
		if doc == nil || testName.MatchString(name) {
			return
		}
		first := firstWord.FindStringSubmatch(doc.List[0].Text)
		if first == nil || first[1] == name || !(first[1][0] >= 'a' && first[1][0] <= 'z' || inside.MatchString(first[1])) || v.foreign[first[1]] {
			return
		}
		at := v.fset.Position(doc.Pos())
		faults = append(faults, fmt.Sprintf("%s:%d: %s begins the comment on %s", at.Filename, at.Line, first[1], name))
	}
	for _, file := range slices.Sorted(maps.Keys(v.sources)) {
		for _, decl := range v.sources[file].Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				check(decl.Doc, decl.Name.Name)
			case *ast.GenDecl:
				if len(decl.Specs) != 1 || decl.Lparen.IsValid() {
					continue
				}
				switch spec := decl.Specs[0].(type) {
				case *ast.TypeSpec:
					check(decl.Doc, spec.Name.Name)
				case *ast.ValueSpec:
					if len(spec.Names) == 1 {
						check(decl.Doc, spec.Names[0].Name)
					}
				}
			}
		}
	}
	return faults
}

var (
	testName  = regexp.MustCompile(`^(Test|Benchmark|Fuzz|Example)`)
	firstWord = regexp.MustCompile(`^// (\w+)`)
)

var (
	address  = regexp.MustCompile(`\S+://\S+|\\\w+`) // or an escape, such as \u00e9
	fileName = regexp.MustCompile(`[\w-]+\.(?:go|md|sql|yaml|yml|sh|py|patch)\b`)
	dotted   = regexp.MustCompile(`[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*`)
	inside   = regexp.MustCompile(`[a-z0-9][A-Z]`) // a capital inside of a name
)

// missing are the names in a line that do not exist.
func (v *vocabulary) missing(line string) (names []string) {
	line = address.ReplaceAllString(line, "")
	for _, name := range fileName.FindAllString(line, -1) {
		if !v.files[name] && !v.foreign[name] {
			names = append(names, name)
		}
	}
	for _, name := range dotted.FindAllString(fileName.ReplaceAllString(line, ""), -1) {
		if !v.exists(name) {
			names = append(names, name)
		}
	}
	return names
}

// series are the endings that Prometheus adds to a metric's name.
var series = regexp.MustCompile(`_(total|bucket|count|sum)$`)

func (v *vocabulary) exists(name string) bool {
	of, member, hasDot := strings.Cut(name, ".")
	switch {
	case v.foreign[of], v.foreign[name]:
		return true
	case !hasDot && strings.HasPrefix(name, "cdc_relay_"):
		return v.names[name] || v.names[series.ReplaceAllString(name, "")]
	case !hasDot:
		return v.names[name] || !inside.MatchString(name)
	case v.pairs[name]:
		return true
	}
	member, more, deeper := strings.Cut(member, ".")
	switch declared, members := v.packages[of], v.types[of]; {
	case declared != nil && declared[member]:
		return !deeper || v.exists(member+"."+more)
	case declared == nil && members != nil && (members[member] || v.open[of] && v.names[member]):
		return true
	case declared != nil || members != nil, of == "cdc_relay", v.sections[of]:
		return false
	case v.imported[of]:
		return true
	}
	return v.names[of] && v.names[member]
}

// nearest is the end of a sentence about a name that does not exist.
func (v *vocabulary) nearest(name string) string {
	known := v.names
	if _, _, hasDot := strings.Cut(name, "."); hasDot {
		known = v.pairs
		if fileName.MatchString(name) {
			known = v.files
		}
	}
	if near := setting.Nearest(name, slices.Sorted(maps.Keys(known))); near != "" {
		return ", the nearest known one is " + near
	}
	return ""
}
