package debezium

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/debezium/cases"
)

// The tables of what differs on purpose, in docs/from-debezium.md, have the differences of
// cases.AllShown, each once and in their order.
func TestDifferencesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/from-debezium.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What differs on purpose\n")
	section, _, _ = strings.Cut(section, "\n## ")
	row := regexp.MustCompile("^\\| `([a-z-]+)` \\| [^|]+ \\| [^|]+ \\|$")
	var documented, known []cases.Difference
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || line == "| Difference | Debezium | cdc-relay |" {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("this row has no name, or not three columns: %s", line)
			continue
		}
		documented = append(documented, cases.Difference(m[1]))
	}
	for _, s := range cases.AllShown {
		known = append(known, s.Difference)
	}
	if !slices.Equal(documented, known) {
		t.Errorf("the page has\n%s, cases.AllShown has\n%s", documented, known)
	}
}

// Each difference is there once. It is shown by cases that have it, wherever any has it, by tests
// that exist, or it is said why by none.
func TestDifferencesAreShown(t *testing.T) {
	has, err := cases.Differing("testdata")
	if err != nil {
		t.Fatal(err)
	}
	by := map[cases.Difference]bool{} // by a case
	for name, differences := range has {
		for _, d := range differences {
			by[d] = true
		}
		if strings.HasPrefix(name, "stops-") && len(differences) == 0 {
			t.Errorf("%s stops Debezium, and is not said to differ", name)
		}
	}
	tests, shown := allTests(t), map[cases.Difference]bool{}
	for _, s := range cases.AllShown {
		d := s.Difference
		if shown[d] {
			t.Errorf("%s is there twice", d)
		}
		shown[d] = true
		if len(s.By) == 0 && (by[d] || len(s.Nothing) < 10) || len(s.By) > 0 && s.Nothing != "" {
			t.Errorf("%s is shown by %q, because %q; a case has it: %v", d, s.By, s.Nothing, by[d])
		}
		for _, name := range s.By {
			switch {
			case strings.Contains(name, "/"):
				if !slices.Contains(has[name], d) {
					t.Errorf("%s is shown by the case %s, which has %v", d, name, has[name])
				}
			case by[d]:
				t.Errorf("%s is shown by %s, although a case has it", d, name)
			case !tests[name]:
				t.Errorf("%s is shown by %s, which is not there", d, name)
			}
		}
	}
	for d := range by {
		if !shown[d] {
			t.Errorf("a case differs by %s, which is not known", d)
		}
	}
}

// allTests are the names of the repository's tests.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, dir := range []string{"../../internal", "../../test"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range test.FindAllSubmatch(source, -1) {
				names[string(bytes.Clone(m[1]))] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}
