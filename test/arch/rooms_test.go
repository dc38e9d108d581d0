package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// maxFiles is how many production files a folder may hold: more are two rooms under one name.
const maxFiles = 15

// room is one package of the binary or of its tools, as go list describes it.
type room struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Standard                bool
}

// TestFoldersAreSmall: a newcomer takes in a folder at one look.
func TestFoldersAreSmall(t *testing.T) {
	rooms, _ := exported(t)
	for _, r := range rooms {
		name := strings.TrimPrefix(r.ImportPath, module+"/internal/")
		if n := len(r.GoFiles); n > maxFiles {
			t.Errorf("%s holds %d production files, more than %d: put a floor inside", name, n, maxFiles)
		}
	}
}

// TestFilesCallDownward: within a package, no two files call each other, not even through third
// ones. So every package can be read from its top file down.
func TestFilesCallDownward(t *testing.T) {
	rooms, exports := exported(t)
	for _, r := range rooms {
		name := strings.TrimPrefix(r.ImportPath, module+"/internal/")
		calls, err := callsOf(r, exports)
		if err != nil {
			t.Fatalf("type-check %s: %v", name, err)
		}
		if bad := onCircles(calls); len(bad) > 0 {
			t.Errorf("%s has %d arrows on circles between its files:\n  %s", name, len(bad), strings.Join(bad, "\n  "))
		}
	}
}

func TestCirclesAreFound(t *testing.T) {
	calls := map[string]map[string][]string{"a": {"b": {"f"}}, "b": {"c": {"g"}}, "c": {"b": {"h"}}}
	if got := onCircles(calls); !slices.Equal(got, []string{"b -> c: g", "c -> b: h"}) {
		t.Errorf("on circles are %q", got)
	}
}

// exportedOnce is what go list says, for all tests that ask.
var exportedOnce = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Standard", "./cmd/...", "./internal/...", "./outbox/...", "./inbox/...", "./examples/...")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	return cmd.Output()
})

// exported asks go list for the packages of the module that are not only tests, and for the export
// data of all they import.
func exported(t *testing.T) (rooms []room, exports map[string]string) {
	t.Helper()
	out, err := exportedOnce()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	exports = map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var r room
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		exports[r.ImportPath] = r.Export
		if strings.HasPrefix(r.ImportPath, module+"/") {
			rooms = append(rooms, r)
		}
	}
	if len(rooms) < 5 {
		t.Fatalf("go list found %d packages, want the whole module", len(rooms))
	}
	return rooms, exports
}

// callsOf returns which file of a package uses which functions and methods of which other file.
func callsOf(r room, exports map[string]string) (map[string]map[string][]string, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range r.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(r.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	pkg, err := conf.Check(r.ImportPath, fset, files, info)
	if err != nil {
		return nil, err
	}
	calls := map[string]map[string][]string{}
	for id, obj := range info.Uses {
		fn, ok := obj.(*types.Func)
		if !ok || fn.Pkg() != pkg || fn.Signature().Recv() != nil && types.IsInterface(fn.Signature().Recv().Type()) {
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(fn.Origin().Pos()).Filename)
		if from == to {
			continue
		}
		if calls[from] == nil {
			calls[from] = map[string][]string{}
		}
		if !slices.Contains(calls[from][to], fn.Name()) {
			calls[from][to] = append(calls[from][to], fn.Name())
		}
	}
	return calls, nil
}

// onCircles returns the arrows a -> b where b leads back to a, with the names used, in order.
func onCircles(calls map[string]map[string][]string) (bad []string) {
	leads := func(from, to string) bool {
		seen, next := map[string]bool{}, []string{from}
		for len(next) > 0 {
			at := next[len(next)-1]
			next = next[:len(next)-1]
			if at == to {
				return true
			}
			if !seen[at] {
				seen[at] = true
				next = slices.AppendSeq(next, maps.Keys(calls[at]))
			}
		}
		return false
	}
	for from, tos := range calls {
		for to, names := range tos {
			if leads(to, from) {
				slices.Sort(names)
				bad = append(bad, fmt.Sprintf("%s -> %s: %s", from, to, strings.Join(names, " ")))
			}
		}
	}
	slices.Sort(bad)
	return bad
}
