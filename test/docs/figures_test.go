package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

// results are the reports in bench/results, by path.
func results(t *testing.T) map[string]string {
	t.Helper()
	reports := map[string]string{}
	for _, page := range pages.All(t) {
		if strings.HasPrefix(page, "bench/results/") {
			reports[page] = pages.Text(t, page)
		}
	}
	if len(reports) < 8 {
		t.Fatalf("bench/results has %d reports", len(reports))
	}
	return reports
}

// The figures of two commits cannot be compared, and those of a checkout with changes cannot be
// measured again.
func TestResultsAreOfOneCommit(t *testing.T) {
	commits := map[string][]string{}
	for name, text := range results(t) {
		commit := regexp.MustCompile(`(?m)^- commit [0-9a-f]+$`).FindString(text)
		commits[commit] = append(commits[commit], name)
		if commit == "" {
			t.Errorf("%s names no commit, or one with changes", name)
		}
	}
	if len(commits) != 1 {
		t.Errorf("bench/results is of several commits: %v", commits)
	}
}

// measured are the figures with a unit, and counts of counts, as the reports and the pages write
// them.
var measured = regexp.MustCompile(`\d[\d,.]*( |)(k/s|/s|µs|ms|MiB|×)|\d[\d,]* of \d[\d,]*`)

// Every figure in a table of a page that says "measured" stands in a report of bench.
func TestFiguresAreMeasured(t *testing.T) {
	plain := strings.NewReplacer(" ", "", ",", "").Replace
	var known []string
	for _, text := range results(t) {
		for _, figure := range measured.FindAllString(text, -1) {
			known = append(known, plain(figure))
		}
	}
	least := map[string]int{
		"README.md": 20, "docs/performance.md": 20, "docs/running.md": 5, "docs/is-it-for-me.md": 9, "docs/comparison.md": 4,
	}
	count := map[string]int{}
	for page := range least {
		for _, table := range strings.Split(pages.Text(t, page), "\n\n") {
			if _, marked, ok := strings.Cut(table, "-->\n"); ok {
				table = marked
			}
			head, rows, _ := strings.Cut(strings.TrimSpace(table), "\n")
			if !strings.HasPrefix(head, "|") || !strings.Contains(strings.ToLower(head), "measured") {
				continue
			}
			for _, figure := range measured.FindAllString(rows, -1) {
				if count[page]++; !slices.Contains(known, plain(figure)) {
					t.Errorf("%s has the figure %s, and no report has it", page, figure)
				}
			}
		}
	}
	for page, want := range least {
		if count[page] < want {
			t.Errorf("only %d figures were found in %s", count[page], page)
		}
	}
}
