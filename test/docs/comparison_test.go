package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// The comparison states nothing of others without a source: each cell of its tables has a page of
// ours, a command that measures it, or marks of the list of sources, or says that nothing was
// found. Each source is used.
func TestComparisonNamesItsSources(t *testing.T) {
	text, sources, ok := strings.Cut(pages.Text(t, "docs/comparison.md"), "\n## Sources\n")
	if !ok {
		t.Fatal("docs/comparison.md has no sources")
	}
	mark := regexp.MustCompile(`\b[A-Z]\d\b`)
	listed := map[string]int{}
	for _, found := range mark.FindAllString(sources, -1) {
		listed[found] = 0
	}
	cells := 0
	for line := range strings.Lines(text) {
		row := strings.Split(strings.Trim(line, "| \n"), " | ")
		if !strings.HasPrefix(line, "| ") || line[2] == '|' {
			continue
		}
		for _, cell := range row[1:] {
			cells++
			if !regexp.MustCompile("\\]\\(|`make |^not found|\\([A-Z]\\d(, [A-Z]\\d)*\\)$").MatchString(cell) {
				t.Errorf("%s: %q has no source", row[0], cell)
			}
		}
	}
	for _, marks := range regexp.MustCompile(`\(([A-Z]\d(?:, [A-Z]\d)*)\)`).FindAllStringSubmatch(text, -1) {
		for _, found := range strings.Split(marks[1], ", ") {
			if _, ok := listed[found]; !ok {
				t.Errorf("there is no source %s", found)
			}
			listed[found]++
		}
	}
	for source, uses := range listed {
		if uses == 0 {
			t.Errorf("nothing names the source %s", source)
		}
	}
	if cells < 100 {
		t.Errorf("only %d cells were found", cells)
	}
}
