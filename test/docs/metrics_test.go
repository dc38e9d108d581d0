package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

const metricsPage = "docs/metrics.md"

// metrics are the relay's metrics, by the source of the package that registers them. TestMetrics in
// test/cli compares a scrape with a list.
func metrics(t *testing.T) []string {
	t.Helper()
	names := matches(`"(outbox_[a-z_]+)"`, pages.Source(t, "internal/ops/metrics", false))
	if len(names) < 50 {
		t.Fatalf("only %d metrics were found", len(names))
	}
	return names
}

// docs/metrics.md names every metric, state and reason.
func TestOperationsAreDocumented(t *testing.T) {
	text := pages.Text(t, metricsPage)
	for _, name := range metrics(t) {
		if !regexp.MustCompile("`" + name + "[`{]").MatchString(text) {
			t.Errorf("the metric %s is not named", name)
		}
	}
	states := matches(`(?m)^\tState\w+ += "(.+)"`, pages.Source(t, "internal/ops", false))
	reasons := matches(`(?m)^\t\w+ +Reason += "(.+?)"`, pages.Text(t, "internal/sink/outcome.go"))
	if len(states) < 11 || len(reasons) < 13 {
		t.Fatalf("only %d states and %d reasons were found", len(states), len(reasons))
	}
	for _, name := range slices.Concat(states, reasons) {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the state or reason `%s` is not named", name)
		}
	}
}

// Every metric that a page or a file of deploy/ names is one of the relay's.
func TestMetricsThatAreNamedExist(t *testing.T) {
	exist := metrics(t)
	count := 0
	for _, dir := range []string{"docs", "deploy", "README.md"} {
		must(t, filepath.WalkDir(filepath.Join(pages.Root(), dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			must(t, err)
			// the view of the outbox is no metric
			for _, name := range regexp.MustCompile(`\boutbox_[a-z_]*[a-z]\b`).FindAllString(string(text), -1) {
				count++
				base := regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(name, "")
				if !slices.Contains(exist, name) && (base != "outbox_publish_latency_seconds" || base == name) {
					t.Errorf("%s names %s, which does not exist", path, name)
				}
			}
			return nil
		}))
	}
	if count < 60 {
		t.Errorf("only %d names of metrics were found", count)
	}
}
