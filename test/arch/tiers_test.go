package arch

import (
	"go/build/constraint"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tiers are the build tags of the tests that make test-all and make test-nightly add. systems are
// all others that a file may have.
var (
	tiers   = []string{"testall", "nightly"}
	systems = []string{"unix", "linux", "386", "race"} // in any expression
)

// A file that belongs to a tier, or stands for one, is a test or a test's helper: no tag of a tier
// changes what is built. A misspelt tag would be a test that nobody runs.
func TestTiers(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if line := regexp.MustCompile(`(?m)^//go:build .*$`).Find(text); line != nil {
			seen++
			name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
			if fault := tagFault(name, string(line)); fault != "" {
				t.Error(fault)
			}
			if strings.Contains(string(line), "!") && strings.Contains(string(text), "\nfunc Test") {
				t.Errorf("%s: %s: its tests would be missing in that tier", name, line)
			}
		}
		return nil
	})
	if err != nil || seen < 50 {
		t.Errorf("%d files with a build tag were found: %v", seen, err)
	}
}

// tagFault says what is wrong with the build line of a file; "" for nothing.
func tagFault(path, line string) string {
	expr, err := constraint.Parse(line)
	if err != nil {
		return path + ": " + err.Error()
	}
	system := true
	expr.Eval(func(tag string) bool {
		system = system && slices.Contains(systems, tag)
		return true
	})
	if system {
		return ""
	}
	if not, ok := expr.(*constraint.NotExpr); ok {
		expr = not.X
	}
	tag, ok := expr.(*constraint.TagExpr)
	switch {
	case !ok:
		return path + ": " + line + ": want one tag"
	case !slices.Contains(tiers, tag.Tag):
		return path + ": " + line + ": want one of " + strings.Join(slices.Concat(tiers, systems), ", ")
	case !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "test/"):
		return path + ": " + line + ": this is no test"
	}
	return ""
}

func TestTagFaults(t *testing.T) {
	for _, tc := range []struct{ path, line, want string }{
		{"test/fault/kill_all_test.go", "//go:build testall", ""},
		{"test/sim/seeds_test.go", "//go:build !nightly", ""},
		{"test/fault/stand/stand.go", "//go:build nightly", ""},
		{"internal/cli/operate/screen_unix.go", "//go:build unix", ""},
		{"internal/kafkaclient/socket/raw_unix.go", "//go:build unix && !(linux && !386 && !race)", ""},
		{"cmd/cdc-relay/run.go", "//go:build nightly", "no test"},
		{"test/fault/kill_all_test.go", "//go:build test_all", "want one of"},
		{"test/fault/kill_all_test.go", "//go:build testall && linux", "want one tag"},
	} {
		if got := tagFault(tc.path, tc.line); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s in %s: %q, want %q", tc.line, tc.path, got, tc.want)
		}
	}
}
