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

// The table of what differs on purpose has every difference that a case has, by its name, and each
// of its rows is shown: by cases that have this difference, wherever any has it, by tests that
// exist, or it is said why by none.
func TestDifferences(t *testing.T) {
	text, err := os.ReadFile("../../docs/from-debezium.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What differs on purpose\n")
	section, _, _ = strings.Cut(section, "\n## ")
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
	tests := allTests(t)
	row := regexp.MustCompile("^\\| `([a-z-]+)` \\|.*\\| ([^|]+) \\|$")
	quoted := regexp.MustCompile("^`[A-Za-z/-]+`(, `[A-Za-z/-]+`)*$")
	rows := map[cases.Difference]bool{}
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| | |") {
			continue
		}
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("this row has no name: %s", line)
			continue
		}
		d, shown := cases.Difference(m[1]), m[2]
		if rows[d] {
			t.Errorf("%s is there twice", d)
		}
		rows[d] = true
		if why, none := strings.CutPrefix(shown, "none: "); none {
			if by[d] || len(why) < 10 {
				t.Errorf("%s: by no case, or test, because %q", d, why)
			}
			continue
		}
		if !quoted.MatchString(shown) {
			t.Errorf("%s is shown by %s", d, shown)
			continue
		}
		for name := range strings.SplitSeq(shown, ", ") {
			name = strings.Trim(name, "`")
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
		if !rows[d] {
			t.Errorf("a case differs by %s, of which the table says nothing", d)
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
