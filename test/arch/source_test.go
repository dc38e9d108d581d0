package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// clocks are the functions of package time that read a clock or wait for one.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"Tick": true, "NewTimer": true, "NewTicker": true,
}

// TestDecodeIsPure: the same bytes give the same events, whenever and wherever. No clock, no
// goroutine; TestArrows sees to the imports.
func TestDecodeIsPure(t *testing.T) {
	files, err := filepath.Glob("../../internal/decode/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("find sources of decode: %d files, %v", len(files), err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, fault := range impurities(t, file, nil) {
			t.Error(fault)
		}
	}
}

// impurities names the clocks and goroutines of a source file; src nil reads the file.
func impurities(t *testing.T, file string, src any) []string {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse source: %v", err)
	}
	var found []string
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, fmt.Sprintf("%s: go statement", fset.Position(n.Pos())))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && clocks[n.Sel.Name] {
				found = append(found, fmt.Sprintf("%s: time.%s", fset.Position(n.Pos()), n.Sel.Name))
			}
		}
		return true
	})
	return found
}
