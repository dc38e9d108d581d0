package metrics

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

// openMetrics returns the exemplars that an OpenMetrics scraper receives, in the order of their
// buckets.
func openMetrics(t *testing.T, m *Metrics) (exemplars []string) {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, request)
	for _, found := range regexp.MustCompile(`(?m)^outbox_publish_latency_seconds_bucket\{le="([^"]*)"\} .* # \{trace_id="([^"]*)"\}`).FindAllStringSubmatch(answer.Body.String(), -1) {
		exemplars = append(exemplars, found[1]+" "+found[2])
	}
	return exemplars
}

// One event a second whose trace is sampled is an exemplar of the latency, and no other.
func TestExemplars(t *testing.T) {
	m := New("", "", "")
	trace := func(digit string) string { return strings.Repeat(digit, 32) }
	newEvent := func(digit, flags string, latency time.Duration) *event.Event {
		return &event.Event{CommitTime: opstest.Noon.Add(-latency), Traceparent: []byte("00-" + trace(digit) + "-b7ad6b7169203331-" + flags)}
	}
	want := func(exemplars ...string) {
		t.Helper()
		if got := openMetrics(t, m); !slices.Equal(got, exemplars) {
			t.Errorf("exemplars are %q, want %q", got, exemplars)
		}
	}
	m.Confirmed(0, []*event.Event{{CommitTime: opstest.Noon}, newEvent("1", "00", 0)}, opstest.Noon)
	want()
	m.Confirmed(0, []*event.Event{newEvent("2", "00", 0), newEvent("3", "01", 2*time.Millisecond), newEvent("4", "01", time.Second)}, opstest.Noon)
	want("0.0025 " + trace("3"))
	m.Confirmed(0, []*event.Event{newEvent("5", "01", 0)}, opstest.Noon.Add(999*time.Millisecond))
	want("0.0025 " + trace("3"))
	m.Confirmed(0, []*event.Event{newEvent("6", "01", 8*time.Second)}, opstest.Noon.Add(time.Second))
	want("0.0025 "+trace("3"), "10.0 "+trace("6"))
	mustHave(t, scrape(t, m), `outbox_publish_latency_seconds_count 7`)
}
