package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublicNamesAreDocumented: every exported name of a package that users import, each field and
// method too, has a comment of its own.
func TestPublicNamesAreDocumented(t *testing.T) {
	documented, seen := map[string]bool{}, 0
	for _, root := range []string{"../../outbox", "../../inbox"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "internal":
				return fs.SkipDir
			case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			dir := filepath.ToSlash(filepath.Dir(path))
			bare, names, hasDoc := undocumented(t, path, nil)
			documented[dir] = documented[dir] || hasDoc
			seen += names
			for _, name := range bare {
				t.Errorf("%s has no comment", name)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", dir)
		}
	}
	if seen < 20 {
		t.Errorf("%d exported names were found", seen)
	}
	const src = "package x\n\ntype T struct {\n\tA int // is one\n\tB, c int\n}\n\n// I is one.\ntype I interface{ M() }\n\nfunc (t) F() {}\nfunc (*T) G() {}\nconst (\n\tC = 1\n)\n"
	if bare, _, _ := undocumented(t, "x.go", src); len(bare) != 5 {
		t.Errorf("found %q, want T, B, M, G and C", bare)
	}
}

// undocumented are the exported names of a file that have no comment; src nil reads the file. names
// is how many there are, hasDoc whether the file has the package's comment.
func undocumented(t *testing.T, file string, src any) (bare []string, names int, hasDoc bool) {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parse source: %v", err)
	}
	check := func(comments []*ast.CommentGroup, idents ...*ast.Ident) {
		for _, id := range idents {
			if !id.IsExported() {
				continue
			}
			names++
			has := false
			for _, c := range comments {
				has = has || c != nil
			}
			if !has {
				bare = append(bare, fmt.Sprintf("%s: %s", fset.Position(id.Pos()), id.Name))
			}
		}
	}
	for _, decl := range tree.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || exportedReceiver(d.Recv.List[0].Type) {
				check([]*ast.CommentGroup{d.Doc}, d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					check([]*ast.CommentGroup{d.Doc, s.Doc, s.Comment}, s.Names...)
				case *ast.TypeSpec:
					check([]*ast.CommentGroup{d.Doc, s.Doc, s.Comment}, s.Name)
					for _, f := range fieldsOf(s) {
						check([]*ast.CommentGroup{f.Doc, f.Comment}, f.Names...)
					}
				}
			}
		}
	}
	return bare, names, tree.Doc != nil && strings.HasPrefix(tree.Doc.Text(), "Package ")
}

// fieldsOf are the fields of an exported struct, or the methods of an exported interface.
func fieldsOf(s *ast.TypeSpec) []*ast.Field {
	if !s.Name.IsExported() {
		return nil
	}
	switch typ := s.Type.(type) {
	case *ast.StructType:
		return typ.Fields.List
	case *ast.InterfaceType:
		return typ.Methods.List
	}
	return nil
}

func exportedReceiver(typ ast.Expr) bool {
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}
