// Package alerts proves the Prometheus rules of deploy/prometheus: promtool checks and unit-tests
// them, each alert has a case in which it fires and one in which it does not, and their runbooks
// exist.
package alerts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const (
	dir       = "../../deploy/prometheus/"
	shipped   = dir + "cdc-relay.rules.yml"
	unitTests = dir + "cdc-relay.rules.test.yml"
)

// rules is a file of alerting rules.
type rules struct {
	Groups []group `yaml:"groups"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// readRules reads the shipped rules; what this package does not know of is a fault.
func readRules(t *testing.T) rules {
	t.Helper()
	text, err := os.ReadFile(shipped)
	must(t, err)
	var r rules
	must(t, yaml.UnmarshalWithOptions(text, &r, yaml.Strict()))
	return r
}

// all are the alerts by their names.
func (r rules) all(t *testing.T) map[string]rule {
	t.Helper()
	all := map[string]rule{}
	for _, g := range r.Groups {
		for _, rule := range g.Rules {
			if _, twice := all[rule.Alert]; twice || rule.Alert == "" {
				t.Errorf("the name %q is there twice, or is none", rule.Alert)
			}
			all[rule.Alert] = rule
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d alerts were found", len(all))
	}
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What promtool does not ask: that no alert is left out of the unit tests. Each is quiet, too, in
// the case in which it fires: before it is time, or after; what comes close and never fires lies
// beside it there, as another job. The healthy case is of them all.
func TestEachAlertHasAFiringAndAQuietCase(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(unitTests)
	must(t, err)
	var file struct {
		RuleFiles []string `yaml:"rule_files"`
		Tests     []struct {
			Series []struct {
				Series string `yaml:"series"`
			} `yaml:"input_series"`
			Checks []struct {
				Alert  string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	must(t, yaml.Unmarshal(text, &file))
	if len(file.RuleFiles) != 1 || file.RuleFiles[0] != filepath.Base(shipped) {
		t.Fatalf("the unit tests are of %v", file.RuleFiles)
	}
	type cases struct{ fires, quiet int }
	seen := map[string]*cases{}
	all := readRules(t).all(t)
	for name := range all {
		seen[name] = &cases{}
	}
	for _, test := range file.Tests {
		var series []string
		for _, s := range test.Series {
			series = append(series, s.Series)
		}
		given := strings.Join(series, "\n")
		firing := map[string]bool{} // in this one
		for _, check := range test.Checks {
			firing[check.Alert] = firing[check.Alert] || len(check.Alerts) > 0
		}
		for _, check := range test.Checks {
			c, ok := seen[check.Alert]
			if !ok {
				t.Errorf("there is no alert %s to test", check.Alert)
				continue
			}
			if len(check.Alerts) > 0 {
				c.fires++
				continue
			}
			// That an alert is quiet about metrics that are not there, or about pure health, says
			// little.
			if firing[check.Alert] && strings.Contains(given, metrics(all[check.Alert].Expr)[0]) {
				c.quiet++
			}
		}
	}
	for name, c := range seen {
		if c.fires == 0 || c.quiet == 0 {
			t.Errorf("%s: it fires in %d cases, and is quiet at another time of them in %d", name, c.fires, c.quiet)
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:cdc_relay|pg_replication|process)_\w+`)

// metrics are the names of metrics in an expression.
func metrics(expr string) []string { return metricName.FindAllString(expr, -1) }

// Whoever is woken by an alert finds what it means and what to do.
func TestEachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	const repository = "https://github.com/cdc-relay/cdc-relay/blob/main/"
	headings := map[string]map[string]bool{} // of a page
	for name, rule := range readRules(t).all(t) {
		if s := rule.Labels["severity"]; s != "critical" && s != "warning" || len(rule.Labels) != 1 {
			t.Errorf("%s has the labels %v", name, rule.Labels)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || len(rule.Annotations) != 3 {
			t.Errorf("%s has the annotations %v", name, rule.Annotations)
		}
		page, anchor, _ := strings.Cut(strings.TrimPrefix(rule.Annotations["runbook_url"], repository), "#")
		if page != "docs/metrics.md" || anchor != strings.ToLower(name) {
			t.Errorf("%s: the runbook is at %q", name, rule.Annotations["runbook_url"])
			continue
		}
		if headings[page] == nil {
			headings[page] = runbooks(t, page)
		}
		if !headings[page][anchor] {
			t.Errorf("%s: there is no heading #%s in %s", name, anchor, page)
		}
		delete(headings[page], anchor)
	}
	for page, left := range headings {
		for anchor := range left {
			t.Errorf("%s: the runbook #%s is of no alert", page, anchor)
		}
	}
}

// runbooks are the anchors of the headings of a page that are one word of ours, as GitHub makes
// them.
func runbooks(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	must(t, err)
	anchors := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (CdcRelay\w+)$`).FindAllStringSubmatch(string(text), -1) {
		anchors[strings.ToLower(h[1])] = true
	}
	return anchors
}
