// A collector that watches the spans of all relays of a process.

package servers

import (
	"sync"
	"testing"
)

// sharedCollector watches the spans of all relays of this process that are sent to it, and keeps
// none.
var sharedCollector = sync.OnceValues(func() (*Collector, error) {
	c, err := LaunchCollector()
	if err == nil {
		c.watches = true
		shared.add(c.Close)
	}
	return c, err
})

// WatchedTraces is the environment of a relay some of whose events are traced. When the test ends
// it fails if any span of the process had personal data.
func WatchedTraces(t testing.TB) []string {
	t.Helper()
	c, err := sharedCollector()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.leak != nil {
			t.Error(c.leak)
		}
	})
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL(), "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.05"}
}
