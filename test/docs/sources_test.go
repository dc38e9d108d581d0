package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// testsIn are the tests in some folders and those below them, by name, with the source of their
// package: the name of a part stands there in quotes.
func testsIn(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, dir := range dirs {
		for _, folder := range foldersBelow(t, dir) {
			source := goSource(t, folder, true)
			for _, name := range matches(`(?m)^func (Test\w+)\(`, source) {
				names[name] = source
			}
		}
	}
	return names
}

// foldersBelow are a folder and all those below it, from the root.
func foldersBelow(t *testing.T, dir string) (all []string) {
	t.Helper()
	must(t, fs.WalkDir(os.DirFS(pages.Root()), filepath.ToSlash(filepath.Clean(dir)), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	return all
}

// imports are the paths that source text imports, one a line.
func imports(source string) string {
	return strings.Join(matches(`(?m)^(?:import |\t)(?:[a-z.]+ )?"([a-z0-9./_-]+)"$`, source), "\n")
}

// goSource is the text of a folder's Go files: its tests, or all others.
func goSource(t *testing.T, dir string, ofTests bool) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pages.Root(), dir, "*.go"))
	must(t, err)
	var source strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") != ofTests {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		source.Write(text)
	}
	return source.String()
}

// matches are the first groups of all matches of a pattern.
func matches(pattern, text string) (all []string) {
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// The packages of `make quick` have no test that starts a server or the relay: their tests import
// nothing that does.
func TestQuickNeedsNoServer(t *testing.T) {
	_, list, _ := strings.Cut(pages.Text(t, "Makefile"), "\nQUICK := ")
	list, _, _ = strings.Cut(list, "\n\n")
	patterns := strings.Fields(strings.ReplaceAll(list, "\\\n", " "))
	if len(patterns) < 20 {
		t.Fatalf("QUICK has %q", patterns)
	}
	starts := regexp.MustCompile(`internal/devenv/(servers|runner|netproxy|processes)\b`)
	for _, pattern := range patterns {
		dir, tree := strings.CutSuffix(pattern, "/...")
		dirs := []string{dir}
		if tree {
			dirs = foldersBelow(t, dir)
		}
		for _, dir := range dirs {
			if found := starts.FindString(imports(goSource(t, dir, true))); found != "" {
				t.Errorf("a test of %s imports %s", dir, found)
			}
		}
	}
}
