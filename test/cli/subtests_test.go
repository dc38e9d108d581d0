// This file reads the names of a package's subtests from its source.
package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// subtestsIn are the names of the tests in some folders and those below them, and TestName/part for
// each part that is run by a name that stands there: in the call of Run itself, or in the literal
// that a loop around it goes through, as the key or as the field name. The literal may be that of a
// variable of the package, to which files of other tiers append.
func subtestsIn(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, dir := range packages(t, dirs) {
		var parsed []*ast.File
		files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
		must(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			one, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
			must(t, err)
			parsed = append(parsed, one)
		}
		variables := literals(parsed)
		for _, file := range parsed {
			for _, decl := range file.Decls {
				if test, ok := decl.(*ast.FuncDecl); ok && test.Recv == nil && strings.HasPrefix(test.Name.Name, "Test") {
					names[test.Name.Name] = true
					for _, part := range partsOf(test.Body, variables) {
						names[test.Name.Name+"/"+part] = true
					}
				}
			}
		}
	}
	return names
}

// literals are those of the variables of some files, by name: what they are set to, and what is
// appended to them.
func literals(files []*ast.File) map[string][]*ast.CompositeLit {
	found := map[string][]*ast.CompositeLit{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if len(n.Names) == 1 && len(n.Values) == 1 {
					if list, ok := n.Values[0].(*ast.CompositeLit); ok {
						found[n.Names[0].Name] = append(found[n.Names[0].Name], list)
					}
				}
			case *ast.CallExpr:
				if isIdent(n.Fun, "append") && len(n.Args) > 1 {
					if to, ok := n.Args[0].(*ast.Ident); ok {
						found[to.Name] = append(found[to.Name], &ast.CompositeLit{Elts: n.Args[1:]})
					}
				}
			}
			return true
		})
	}
	return found
}

func partsOf(body ast.Node, variables map[string][]*ast.CompositeLit) (parts []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if name := runs(n); name != nil {
				parts = append(parts, texts(name)...)
			}
		case *ast.RangeStmt:
			switch list := n.X.(type) {
			case *ast.CompositeLit:
				parts = append(parts, partsOfLoop(n, list)...)
			case *ast.Ident:
				for _, list := range variables[list.Name] {
					parts = append(parts, partsOfLoop(n, list)...)
				}
			}
		}
		return true
	})
	return parts
}

// runs is the name that a call of Run is given; nil for any other call.
func runs(call *ast.CallExpr) ast.Expr {
	if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Run" && len(call.Args) == 2 {
		return call.Args[0]
	}
	return nil
}

// partsOfLoop are those of the elements of a literal by which a loop over it calls Run.
func partsOfLoop(loop *ast.RangeStmt, list *ast.CompositeLit) (parts []string) {
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch name := runs(call).(type) {
		case *ast.Ident:
			if key, ok := loop.Key.(*ast.Ident); ok && name.Name == key.Name {
				parts = append(parts, texts(keys(list)...)...)
			}
		case *ast.SelectorExpr:
			if value, ok := loop.Value.(*ast.Ident); ok && isIdent(name.X, value.Name) && name.Sel.Name == "name" {
				for _, element := range list.Elts {
					parts = append(parts, texts(nameOf(element))...)
				}
			}
		}
		return true
	})
	return parts
}

func keys(list *ast.CompositeLit) (all []ast.Expr) {
	for _, element := range list.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			all = append(all, pair.Key)
		}
	}
	return all
}

// nameOf is the field name of an element of a list: it stands first, or by its own name.
func nameOf(element ast.Expr) ast.Expr {
	fields, ok := element.(*ast.CompositeLit)
	if !ok || len(fields.Elts) == 0 {
		return nil
	}
	for _, field := range fields.Elts {
		if pair, ok := field.(*ast.KeyValueExpr); ok && isIdent(pair.Key, "name") {
			return pair.Value
		}
	}
	return fields.Elts[0]
}

func isIdent(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && ident.Name == name
}

// texts are those of the expressions that are string literals.
func texts(all ...ast.Expr) (values []string) {
	for _, e := range all {
		if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if value, err := strconv.Unquote(literal.Value); err == nil {
				values = append(values, value)
			}
		}
	}
	return values
}
