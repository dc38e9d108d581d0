// The bugs of a package in one build: to link a package's tests takes longer than most of them run.
// A function that a bug changes is there twice, and calls the changed one when the environment
// names the bug. A bug that changes more than bodies of functions has a build of its own.

package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// planted is the variable of the environment that names the bug.
const planted = "CDC_RELAY_PLANTED_BUG"

// build is the test binary of a package, with those bugs in it that could be merged.
type build struct {
	binary  string
	overlay string          // of what the test itself builds
	has     map[*bug]string // the name in the environment
}

// build merges what it can of the bugs of a package in dir. Without any, or when the result does
// not compile, there is no build, and each bug is planted by itself, which says what is wrong with
// it.
func (l *lab) build(ctx context.Context, dir, pkg string, bugs []*bug) *build {
	in := &build{binary: filepath.Join(dir, "test"), has: map[*bug]string{}}
	merged := map[string]*mergedFile{} // by path in the tree
	for n, b := range bugs {
		name := fmt.Sprint("PlantedBug", n)
		if l.merge(ctx, filepath.Join(dir, name), b, name, merged) == nil {
			in.has[b] = name
		}
	}
	if len(in.has) == 0 {
		return nil
	}
	texts := map[string]string{} // by path in the tree
	for name, f := range merged {
		texts[name] = f.text()
		texts[filepath.Join(filepath.Dir(name), "planted_bug.go")] = fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar plantedBug = os.Getenv(%q)\n", f.pkg, planted)
	}
	replace := map[string]string{}
	for name, text := range texts {
		to := filepath.Join(dir, "merged", name)
		if write(to, []byte(text)) != nil {
			return nil
		}
		replace[filepath.Join(l.root, name)] = to
	}
	var err error
	if in.overlay, err = writeOverlay(dir, replace); err != nil {
		return nil
	}
	compile := l.command(ctx, in.overlay, "test", "-c", "-vet=off", "-tags", "testall", "-ldflags=-s -w", "-o", in.binary, pkg)
	if compile.Run() != nil {
		return nil
	}
	return in
}

// test runs tests of the build with the bug that has this name in it; "" is none.
func (l *lab) test(ctx context.Context, timeout time.Duration, in *build, pkg, bug string, args ...string) outcome {
	ctx, cancel := context.WithTimeout(ctx, timeout+time.Minute)
	defer cancel()
	args = append([]string{
		"tool", "test2json", "-p", pkg, in.binary, "-test.v=test2json", "-test.paniconexit0", "-test.failfast",
		"-test.timeout", timeout.String(),
	}, args...)
	cmd := l.command(ctx, in.overlay, args...)
	cmd.Dir = filepath.Join(l.root, pkg)
	cmd.Env = append(cmd.Env, planted+"="+bug)
	return runTests(cmd)
}

// merge adds a bug to the files that it changes: all of it, or nothing and why not.
func (l *lab) merge(ctx context.Context, dir string, b *bug, as string, into map[string]*mergedFile) error {
	if _, err := l.patch(ctx, dir, b); err != nil {
		return err
	}
	added := map[string]*mergedFile{}
	for _, name := range b.files {
		f := new(mergedFile)
		if earlier := into[name]; earlier != nil {
			*f = mergedFile{earlier.old, earlier.pkg, maps.Clone(earlier.inserts), earlier.copies}
		} else {
			old, err := os.ReadFile(filepath.Join(l.root, name))
			if err != nil {
				return fmt.Errorf("read file: %w", err)
			}
			f.old = string(old)
		}
		changed, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read patched file: %w", err)
		}
		if err := f.add(as, string(changed)); err != nil {
			return err
		}
		added[name] = f
	}
	maps.Copy(into, added)
	return nil
}

// mergedFile is a file with bugs.
type mergedFile struct {
	old, pkg string
	inserts  map[int]string // at the offsets in old where the bodies of functions begin
	copies   string         // of functions
}

func (f *mergedFile) text() string {
	text := f.old
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(f.inserts))) {
		text = text[:at] + f.inserts[at] + text[at:]
	}
	return text + f.copies
}

// add adds what a bug changes; the bug's name is a part of those of its functions.
func (f *mergedFile) add(bug, changed string) error {
	before, err := split(f.old)
	if err != nil {
		return err
	}
	after, err := split(changed)
	if err != nil {
		return err
	}
	if f.pkg = before.pkg; f.inserts == nil {
		f.inserts = map[int]string{}
	}
	switch {
	case before.rest != after.rest:
		return fmt.Errorf("it changes more than functions")
	case !maps.Equal(before.heads, after.heads):
		return fmt.Errorf("it changes the head of a function")
	}
	for _, imported := range after.imports {
		if !slices.Contains(before.imports, imported) {
			return fmt.Errorf("it imports %s", imported)
		}
	}
	for head, decl := range after.functions {
		was := before.functions[head]
		begin, end := int(decl.Pos())-1, int(decl.End())-1 // positions count from 1
		if changed[begin:end] == f.old[int(was.Pos())-1:int(was.End())-1] {
			continue
		}
		name := int(decl.Name.End()) - 1
		f.copies += "\n" + changed[begin:name] + bug + changed[name:end] + "\n"
		call, err := callOf(decl, decl.Name.Name+bug)
		if err != nil {
			return err
		}
		f.inserts[int(was.Body.Lbrace)] += fmt.Sprintf(" if plantedBug == %q { %s }; ", bug, call)
	}
	return nil
}

// parts are those of a file.
type parts struct {
	pkg       string
	imports   []string
	functions map[string]*ast.FuncDecl // by their heads
	heads     map[string]bool
	rest      string // other declarations
}

func split(text string) (*parts, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	p := &parts{pkg: file.Name.Name, functions: map[string]*ast.FuncDecl{}, heads: map[string]bool{}}
	for _, decl := range file.Decls {
		begin, end := int(decl.Pos())-1, int(decl.End())-1
		function, ok := decl.(*ast.FuncDecl)
		imported, _ := decl.(*ast.GenDecl)
		switch {
		case ok && function.Body != nil:
			head := text[begin : int(function.Body.Lbrace)-1]
			p.functions[head], p.heads[head] = function, true
		case imported != nil && imported.Tok == token.IMPORT:
			for _, spec := range imported.Specs {
				p.imports = append(p.imports, text[int(spec.Pos())-1:int(spec.End())-1])
			}
		default:
			p.rest += text[begin:end] + "\n"
		}
	}
	return p, nil
}

// callOf is the statement that hands a call of a function over to another one with the same head.
func callOf(decl *ast.FuncDecl, name string) (string, error) {
	if decl.Type.TypeParams != nil {
		return "", fmt.Errorf("%s is generic", decl.Name)
	}
	if decl.Recv != nil {
		of := decl.Recv.List[0].Names
		if len(of) == 0 || of[0].Name == "_" {
			return "", fmt.Errorf("the receiver of %s has no name", decl.Name)
		}
		name = of[0].Name + "." + name
	}
	var args []string
	for _, field := range decl.Type.Params.List {
		if len(field.Names) == 0 {
			return "", fmt.Errorf("a parameter of %s has no name", decl.Name)
		}
		for _, of := range field.Names {
			if of.Name == "_" {
				return "", fmt.Errorf("a parameter of %s has no name", decl.Name)
			}
			arg := of.Name
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if decl.Type.Results != nil {
		return "return " + call, nil
	}
	return call + "; return", nil
}
