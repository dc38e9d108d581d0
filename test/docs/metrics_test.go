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

// metrics are the metrics of the relay, or of the package inbox, by the source of the package that
// registers them. TestMetrics in test/cli compares a scrape with a list.
func metrics(t *testing.T, of string) []string {
	t.Helper()
	return matches(`"(cdc_relay_[a-z_]+)"`, pages.Source(t, of, false))
}

func metricsOfRelay(t *testing.T) []string {
	t.Helper()
	names := metrics(t, "internal/ops/metrics")
	if len(names) < 50 {
		t.Fatalf("only %d metrics were found", len(names))
	}
	return names
}

// docs/metrics.md names every metric, state and reason.
func TestOperationsAreDocumented(t *testing.T) {
	text := pages.Text(t, metricsPage)
	for _, name := range metricsOfRelay(t) {
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

// Every metric that a page or a file of deploy/ names exists. In quotes it is a slot, and not each
// of our names is a metric's. That of docs/first-change.md is not in the code.
func TestMetricsThatAreNamedExist(t *testing.T) {
	exist := slices.Concat(metricsOfRelay(t), metrics(t, "inbox"))
	others := []string{"cdc_relay_owner", "cdc_relay_check", "cdc_relay_outbox_set_tx", "cdc_relay_kafka", "cdc_relay_unreported_events"}
	count := 0
	for _, dir := range []string{"docs", "deploy", "README.md"} {
		must(t, filepath.WalkDir(filepath.Join(pages.Root(), dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			must(t, err)
			for _, name := range regexp.MustCompile(`[^"\w](cdc_relay_[a-z_]*[a-z])\b`).FindAllStringSubmatch(string(text), -1) {
				count++
				base := regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(name[1], "")
				if !slices.Contains(exist, name[1]) && (!strings.HasSuffix(base, "_seconds") || base == name[1] || !slices.Contains(exist, base)) && !slices.Contains(others, name[1]) {
					t.Errorf("%s names %s, which does not exist", path, name[1])
				}
			}
			return nil
		}))
	}
	if count < 60 {
		t.Errorf("only %d names of metrics were found", count)
	}
}
