package admin

import (
	"net/http"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// The list of a key's events takes the parameters that it knows, and each once.
func TestEventsOfTheAPI(t *testing.T) {
	base := serve(t, func(c *Config) { c.API.Operators = dlq.New(down{}, "s") }) + "/api/v1/events"
	for query, want := range map[string]int{
		"?key=42": 503, "?key=42&state=dead-letter&aggregate=a&type=t&from=2026-11-20T00:00:00Z&to=2026-11-21T00:00:00Z&limit=7": 503, "?key=": 503,
		"": 400, "?key=42&key=43": 400, "?key=42&destination=x": 400, "?key=42&cursor=1": 400, "?key=42&state=open": 400, "?key=42&state=": 400, "?key=42&limit=0": 400,
		"?key=42&from=yesterday": 400, "?key=42&from=2026-11-21T00:00:00Z&to=2026-11-20T00:00:00Z": 400,
	} {
		if code, _ := ask(t, http.MethodGet, base+query, asAnn, nil); code != want {
			t.Errorf("%s answers %d, want %d", query, code, want)
		}
	}
}

// Rows are counted instead of listed, and nothing but the state chooses them.
func TestGroupsOfTheAPI(t *testing.T) {
	base := serve(t, func(c *Config) { c.API.Operators = dlq.New(down{}, "s") }) + "/api/v1/"
	for query, want := range map[string]int{
		"dead-letters?group=reason": 503, "dead-letters?group=destination&state=discarded": 503, "dead-letters?group=type": 503, "deferred?group=destination": 503,
		"dead-letters?group=": 400, "dead-letters?group=key": 400, "dead-letters?group=reason&group=type": 400, "dead-letters?group=reason&state=purged": 400,
		"dead-letters?group=reason&state=gone": 400, "dead-letters?group=reason&state=": 400, "dead-letters?group=reason&key_of=7": 400, "dead-letters?group=reason&class=permanent": 400,
		"dead-letters?group=reason&limit=50": 400, "dead-letters?group=reason&cursor=5": 400, "deferred?group=reason": 503, "deferred?group=type": 503, "deferred?group=key": 400, "deferred?group=destination&state=open": 400, "events?key=42&group=state": 400,
	} {
		if code, _ := ask(t, http.MethodGet, base+query, asAnn, nil); code != want {
			t.Errorf("%s answers %d, want %d", query, code, want)
		}
	}
}
