//go:build testall

package servers

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

func TestPrometheus(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	metrics := func(text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	rules := filepath.Join(t.TempDir(), "rules.yml")
	await.Must(t, os.WriteFile(rules, []byte("groups: [{name: g, rules: [{alert: High, expr: height > 2}]}]\n"), 0o644))
	low, high := metrics("height 1\n"), metrics("height 3\n")
	p, err := StartPrometheus(ctx, PrometheusOptions{Interval: 200 * time.Millisecond, RuleFiles: []string{rules}, Jobs: map[string][]string{"a": {low}}})
	await.Must(t, err)
	defer func() { await.Must(t, p.Close()) }()

	await.Must(t, p.WaitScraped(ctx))
	heights := func(want string) {
		t.Helper()
		value, err := p.Query(ctx, "sort(max by (job) (height))", time.Now())
		await.Must(t, err)
		var got []string
		for _, sample := range value.(model.Vector) {
			got = append(got, string(sample.Metric["job"])+"="+sample.Value.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("heights are %v, want %s", got, want)
		}
	}
	heights("a=1")
	if alerts, err := p.Alerts(ctx); err != nil || len(alerts) > 0 {
		t.Errorf("alerts %v, %v: nothing is high", alerts, err)
	}

	// Another target, while it runs.
	await.Must(t, p.Scrape(ctx, map[string][]string{"a": {low}, "b": {high}}))
	await.Must(t, p.WaitScraped(ctx))
	heights("a=1 b=3")
	await.Must(t, processes.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		alerts, err := p.Alerts(ctx)
		return len(alerts) == 1 && alerts[0].State == v1.AlertStateFiring && alerts[0].Labels["job"] == "b", err
	}))

	now := time.Now()
	value, err := p.QueryRange(ctx, "height", v1.Range{Start: now.Add(-time.Second), End: now, Step: 500 * time.Millisecond})
	await.Must(t, err)
	if len(value.(model.Matrix)) != 2 {
		t.Errorf("over the last second: %v", value)
	}
	if _, err := p.Query(ctx, "height >", now); err == nil {
		t.Error("half an expression is taken")
	}
}
