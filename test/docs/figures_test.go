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

// measured are the figures with a unit, as the reports and the pages write them.
var measured = regexp.MustCompile(`\d[\d,.]*( |)(k/s|/s|µs|ms|MiB|×)`)

// Every figure in a table of a page that says "measured" stands in a report of bench.
func TestFiguresAreMeasured(t *testing.T) {
	plain := strings.NewReplacer(" ", "", ",", "").Replace
	var known []string
	for _, text := range results(t) {
		for _, figure := range measured.FindAllString(text, -1) {
			known = append(known, plain(figure))
		}
	}
	count := map[string]int{}
	for _, page := range []string{"README.md", "docs/performance.md", "docs/running.md"} {
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
	if count["README.md"] < 20 || count["docs/performance.md"] < 20 || count["docs/running.md"] < 5 {
		t.Errorf("few figures were found: %v", count)
	}
}
