package docs

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// imports are the paths that source text imports, one a line.
func imports(source string) string {
	return strings.Join(matches(`(?m)^(?:import |\t)(?:[a-z.]+ )?"([a-z0-9./_-]+)"$`, source), "\n")
}

// matches are the first groups of all matches of a pattern.
func matches(pattern, text string) (all []string) {
	for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// Each package that has tests is in a list of the Makefile that `make test-all` runs. The lists
// leave out packages of each other, so one that leaves a list may be in none.
func TestEveryPackageIsTested(t *testing.T) {
	lines := func(name string, args ...string) (all []string) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = "../..", append(os.Environ(), "MAKEFLAGS=", "TAGS=testall")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return strings.Fields(string(out))
	}
	tested := lines("make", "-s", "tested-packages", "TAGS=testall")
	with := lines("go", "list", "-e", "-tags", "testall", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "work")
	if len(with) < 60 {
		t.Fatalf("only %d packages have tests", len(with))
	}
	for _, pkg := range with {
		if !slices.Contains(tested, pkg) {
			t.Errorf("no list of make test-all has %s", pkg)
		}
	}
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
			dirs = pages.Folders(t, dir)
		}
		for _, dir := range dirs {
			if found := starts.FindString(imports(pages.Source(t, dir, true))); found != "" {
				t.Errorf("a test of %s imports %s", dir, found)
			}
		}
	}
}
