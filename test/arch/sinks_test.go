package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// mayNameSinks are the folders below internal that may name a sink: its own, the client of its
// brokers, what runs brokers for tests, and two tools that are about Debezium, whose
// sinks have these names too.
var mayNameSinks = []string{"sink/...", "kafkaclient/...", "devenv/...", "migrate/...", "cli/compare"}

// TestSinksAreNamedByTheirDrivers: no code asks which sink it has. What differs between sinks is a
// field or a method of the driver, so that adding one is a folder and a line.
func TestSinksAreNamedByTheirDrivers(t *testing.T) {
	read := 0
	for _, root := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel("../../internal", filepath.Dir(path))
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || matches(filepath.ToSlash(rel), mayNameSinks) {
				return err
			}
			read++
			for _, fault := range namesOfSinks(t, path, nil) {
				t.Error(fault)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 50 {
		t.Errorf("%d files were read", read)
	}
	if got := namesOfSinks(t, "x.go", "package x\nvar is = kind == \"kafka\" || kind == \"other\"\n"); len(got) != 1 {
		t.Errorf("found %q, want the name of one sink", got)
	}
}

// namesOfSinks are the texts of a source file that are the name of a sink; src nil reads the file.
func namesOfSinks(t *testing.T, file string, src any) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse source: %v", err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil && drivers.ByName(text) != nil {
				found = append(found, fmt.Sprintf("%s: names a sink: ask its sink.Driver", fset.Position(n.Pos())))
			}
		}
		return true
	})
	return found
}
