//go:build testall

package alerts

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// faster is by how much time is made to pass faster for the rules: every "for" and every range in
// an expression is divided by it, as if each second were five. Scrapes and evaluations are 1 s
// apart instead of the 5 s that this stands for. The thresholds, and everything else of the shipped
// rules, stay as they are.
const faster = 5

var budget = regexp.MustCompile(`\[(\d+[smhd])\]`)

// writeFaster writes the shipped rules with their durations divided.
func writeFaster(t *testing.T) (path string) {
	t.Helper()
	r := readRules(t)
	for _, g := range r.Groups {
		for i := range g.Rules {
			rule := &g.Rules[i]
			if rule.For != "" {
				rule.For = divided(t, rule.For)
			}
			rule.Expr = budget.ReplaceAllStringFunc(rule.Expr, func(w string) string { return "[" + divided(t, strings.Trim(w, "[]")) + "]" })
		}
	}
	text, err := yaml.Marshal(r)
	must(t, err)
	path = filepath.Join(t.TempDir(), "rules.yml")
	must(t, os.WriteFile(path, text, 0o644))
	return path
}

func divided(t *testing.T, duration string) string {
	t.Helper()
	d, err := model.ParseDuration(duration)
	must(t, err)
	return model.Duration(time.Duration(d) / faster).String()
}

// TestLive has a real Prometheus with the shipped rules watch real relays: nothing fires in health;
// then each of some faults fires its alert in the stated time, and nothing else, also not for the
// pipeline beside it that is well.
//
// Health is seen twice. All pipelines are well for 24 s, which are two minutes to the rules with
// their durations divided. The pipeline that stays well goes on for two minutes of the clock under
// load, beside the faults of the others, and another Prometheus watches it with the rules as they
// are shipped.
func TestLive(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	path, err := filepath.Abs(writeFaster(t))
	must(t, err)
	p := s.prometheus(servers.PrometheusOptions{RuleFiles: []string{path}, Jobs: s.jobs()})
	native := s.prometheus(servers.PrometheusOptions{Jobs: s.jobs(), Flags: []string{"--enable-feature=native-histograms"}})
	asShipped, err := filepath.Abs(shipped)
	must(t, err)
	unhurried := s.prometheus(servers.PrometheusOptions{
		Interval: 5 * time.Second, RuleFiles: []string{asShipped}, Jobs: map[string][]string{well: s.jobs()[well]},
	})

	stop := s.pipelines[well].Load(50)
	s.until("two healthy minutes, five times as fast", func() bool {
		scraped := vector(t, p, `count_over_time(outbox_leader[1h])`)
		return len(scraped) == s.relays() && !slices.ContainsFunc(scraped, func(x *model.Sample) bool { return x.Value < 120/faster })
	})
	if fired := fired(t, p); len(fired) > 0 {
		t.Fatalf("in health these have fired: %v", fired)
	}
	latencyIsSeen(t, p, native)

	for _, f := range faults {
		s.play(f)
	}
	for _, f := range faults {
		s.awaitFiring(p, f)
	}
	s.onlyExpected(p, faults)
	s.servesEachMetric(p, native)
	s.pipelines[well].Until("two healthy minutes", func() bool {
		scraped := vector(t, unhurried, `count_over_time(outbox_leader[1h])`)
		return len(scraped) == 2 && !slices.ContainsFunc(scraped, func(x *model.Sample) bool { return x.Value <= 120/5 })
	})
	if fired := fired(t, unhurried); len(fired) > 0 {
		t.Errorf("in two healthy minutes these have fired: %v", fired)
	}
	stop()
	// The last one is alone, and of the others nothing is asked: without a broker no pipeline is
	// well.
	s.play(brokerStops)
	s.awaitFiring(p, brokerStops)
	s.awaitFiring(p, unread)
	if strings.Contains(p.Log(), "Evaluating rule failed") {
		t.Error("a rule could not be evaluated:", p.Log())
	}
}

// prometheus starts one, until the test ends.
func (s *scene) prometheus(opt servers.PrometheusOptions) *servers.Prometheus {
	s.t.Helper()
	p, err := servers.StartPrometheus(s.t.Context(), opt)
	must(s.t, err)
	s.t.Cleanup(func() { must(s.t, p.Close()) })
	return p
}

func vector(t *testing.T, p *servers.Prometheus, promql string) model.Vector {
	t.Helper()
	value, err := p.Query(t.Context(), promql, time.Now())
	must(t, err)
	v, ok := value.(model.Vector)
	if !ok {
		t.Fatalf("%s is a %T", promql, value)
	}
	return v
}

// fired are the alerts that have fired since Prometheus was started, by their jobs.
func fired(t *testing.T, p *servers.Prometheus) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, sample := range vector(t, p, `group by (job, alertname) (last_over_time(ALERTS{alertstate="firing"}[1h]))`) {
		job := string(sample.Metric["job"])
		found[job] = append(found[job], string(sample.Metric["alertname"]))
	}
	return found
}

// latencyIsSeen asks each Prometheus for what CdcRelayPublishSlow compares: both take the
// histogram, one in buckets and the other one as it is.
func latencyIsSeen(t *testing.T, classic, native *servers.Prometheus) {
	t.Helper()
	expr, limit, ok := strings.Cut(readRules(t).all(t)["CdcRelayPublishSlow"].Expr, ") > ")
	if !ok || strings.TrimSpace(limit) != "1" {
		t.Fatalf("the limit is %q", limit)
	}
	for _, p := range []*servers.Prometheus{classic, native} {
		got := vector(t, p, expr+")")
		if !slices.ContainsFunc(got, func(x *model.Sample) bool { return x.Metric["job"] == well && x.Value > 0 }) {
			t.Errorf("the latency is %v", got)
		}
	}
	if buckets := vector(t, native, `outbox_publish_latency_seconds_bucket`); len(buckets) > 0 {
		t.Error("it takes buckets, too: this shows nothing of native histograms")
	}
}

// servesEachMetric fails for a metric of the rules that no relay has served.
func (s *scene) servesEachMetric(all ...*servers.Prometheus) {
	s.t.Helper()
	for name, rule := range readRules(s.t).all(s.t) {
		for _, metric := range metrics(rule.Expr) {
			if !slices.ContainsFunc(all, func(p *servers.Prometheus) bool {
				return len(vector(s.t, p, "group(last_over_time("+metric+"[1h]))")) > 0
			}) {
				s.t.Errorf("%s: no relay serves %s", name, metric)
			}
		}
	}
}
