package devenv

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Sentinel stands for personal data: tests put it into payloads, keys and headers, and it must be nowhere but there. Each place has
// a text of its own, so that a leak says where it comes from. Keys and payloads have a quote before it: what is shown up to a quote, or
// left out up to one, is not all.
const (
	Sentinel        = "s3ntinel"
	SentinelKey     = `"` + Sentinel + ".key"
	SentinelPayload = `"` + Sentinel + ".payload"
	SentinelHeader  = Sentinel + ".header"
)

// Leak is an error that shows the first line of a text that has the sentinel; nil when none has.
func Leak(where, text string) error {
	if !strings.Contains(text, Sentinel) {
		return nil
	}
	for line := range strings.Lines(text) {
		if at := strings.Index(line, Sentinel); at >= 0 {
			return fmt.Errorf("personal data in %s: %s", where, strings.TrimSpace(line[max(at-500, 0):min(at+500, len(line))]))
		}
	}
	return nil
}

// shows reports whether a path of the admin server is there to show what was asked for, keys and payloads among it.
func shows(path string) bool {
	for _, p := range []string{"/api/v1/dead-letters", "/api/v1/parked", "/api/v1/events"} {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

// leaks remember the first leak of a relay's answers.
type leaks struct {
	mu    sync.Mutex
	first error
}

func (l *leaks) look(path, body string) {
	if shows(path) {
		return
	}
	err := Leak(path, body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = err
	}
}

// lookForLeaks asks a relay that runs for what CheckLeaks looks at. One that is stopped is asked before.
func (r *Relay) lookForLeaks(more ...string) {
	if !r.Running() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, path := range append(more, "/metrics", "/api/v1/status", "/readyz", "/healthz", "/api/v1/slots") {
		if _, _, err := r.Get(ctx, path); err != nil {
			return // it is frozen, or ends just now
		}
	}
}

// CheckLeaks fails the test when what the relay has said so far has personal data: its log, metrics and status, and all that was
// asked of its admin server before.
func (r *Relay) CheckLeaks(t testing.TB) {
	t.Helper()
	r.lookForLeaks("/api/v1/check") // it connects to both sides, which is too dear for the end of each relay
	r.leaks.mu.Lock()
	first := r.leaks.first
	r.leaks.mu.Unlock()
	for _, err := range []error{first, Leak("the relay's log", r.Log())} {
		if err != nil {
			t.Error(err)
		}
	}
}

// sharedCollector watches the spans of all relays of this process that are sent to it, and keeps none.
var sharedCollector = sync.OnceValues(func() (*Collector, error) {
	c, err := LaunchCollector()
	if err == nil {
		c.watches = true
		shared.add(c.Close)
	}
	return c, err
})

// WatchedTraces is the environment of a relay some of whose events are traced. When the test ends it fails if any span of the
// process had personal data.
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
