// A collector that is slow, refuses or is away does not affect the relay.

package tracing

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// logged is a log whose lines can be read as one text.
func logged() (*zap.Logger, func() string) {
	core, lines := observer.New(zap.DebugLevel)
	return zap.New(core), func() string {
		var all []string
		for _, l := range lines.All() {
			text := l.Message
			for _, v := range l.ContextMap() {
				if s, ok := v.(string); ok {
					text += " " + s
				}
			}
			all = append(all, text)
		}
		return strings.Join(all, "\n")
	}
}

const few = 20 // the queue's size in these tests

func bounded(t *testing.T, endpoint string) (tr *Tracer, stop func(), said func() string) {
	t.Helper()
	quiet(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")
	log, said := logged()
	tr, stop = started(t, Config{Log: log})
	return tr, stop, said
}

// flood makes more spans than have room.
func flood(tr *Tracer) {
	for i := range uint32(10 * few) {
		tr.Published(newEvent(i, recorded), 0, time.Now())
	}
}

// TestSilentCollector: when the collector never answers, a bounded number of spans is kept, the
// others are dropped and counted, nothing waits, and the shutdown is bounded.
func TestSilentCollector(t *testing.T) {
	c := servers.StartCollector(t)
	c.Hold(true)
	tr, stop, said := bounded(t, c.URL())
	flood(tr) // returns: nothing waits
	if got := tr.Stats(); got.Exported != 0 || got.Dropped != 9*few {
		t.Errorf("stats %+v, want %d dropped", got, 9*few)
	}
	await.Until(t, "the collector to be asked", func() bool { return c.Calls() > 0 })
	stop() // returns: flushTime, and the request is broken off
	if !strings.Contains(said(), "the last spans are not exported") {
		t.Errorf("log:\n%s", said())
	}
	tr.Published(newEvent(1, recorded), 0, time.Now()) // after the end
	if got := tr.Stats(); got.Dropped != 9*few+1 {
		t.Errorf("stats %+v", got)
	}
}

// TestRefusingCollector: each answer 500 costs the spans of that request. All of them together are
// one line of the log.
func TestRefusingCollector(t *testing.T) {
	c := servers.StartCollector(t)
	c.Refuse(http.StatusInternalServerError)
	tr, _, said := bounded(t, c.URL())
	for range 3 {
		before := tr.Stats().Failed
		flood(tr)
		await.Until(t, "spans to be refused", func() bool { return tr.Stats().Failed >= before+few })
	}
	if n := strings.Count(said(), "spans are not exported"); n != 1 || c.Calls() < 3 {
		t.Errorf("%d lines for %d refusals:\n%s", n, c.Calls(), said())
	}
	c.Refuse(http.StatusOK)
	await.Until(t, "the queue to be empty", func() bool { return tr.queue.isEmpty() })
	ev := newEvent(1000, recorded)
	tr.Published(ev, 0, time.Now())
	own := parsed(t, string(tr.Traceparent(ev, nil)))
	if _, err := c.WaitSpan(await.Context(t), func(s servers.Span) bool { return s.ID == own.SpanID() }); err != nil {
		t.Error(err)
	}
}
