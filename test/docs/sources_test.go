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
		must(t, fs.WalkDir(os.DirFS(pages.Root()), dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			source := goSource(t, path, true)
			for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(source, -1) {
				names[found[1]] = source
			}
			return nil
		}))
	}
	return names
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
