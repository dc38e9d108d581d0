package lazy_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// An expression that does not compile would panic at its first use: here each is used.
func TestExpressionsCompile(t *testing.T) {
	call := regexp.MustCompile("lazy\\.Regexp\\((`[^`]*`(?:\\s*\\+\\s*`[^`]*`)*)\\)")
	part := regexp.MustCompile("`([^`]*)`")
	count := 0
	sources := os.DirFS("..")
	err := fs.WalkDir(sources, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		source, err := fs.ReadFile(sources, path)
		for _, found := range call.FindAllStringSubmatch(string(source), -1) {
			expr := ""
			for _, p := range part.FindAllStringSubmatch(found[1], -1) {
				expr += p[1]
			}
			if _, err := regexp.Compile(expr); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			count++
		}
		return err
	})
	if err != nil || count < 30 {
		t.Errorf("%d expressions, %v", count, err)
	}
}
