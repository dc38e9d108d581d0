//go:build testall

package fault

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/load"
	"github.com/cdc-relay/cdc-relay/internal/devenv/sentinel"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The way of a request through the relay to the consumer is one trace, whatever happens between.

// traced is a stand whose relay sends spans to a collector.
func traced(s *stand.Stand) *servers.Collector {
	s.T.Helper()
	c := servers.StartCollector(s.T)
	s.Env = append(s.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL(), "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG=1")
	return c
}

// withTrace inserts one row with a traceparent; "" for NULL.
func withTrace(s *stand.Stand, key, traceparent string, kind load.Kind) (id string) {
	s.T.Helper()
	return insert(s, row{Kind: kind, key: key, seq: 1, traceparent: traceparent})
}

// arrivedAs waits for an event, and returns the traceparent of its message.
func arrivedAs(s *stand.Stand, id string) string {
	s.T.Helper()
	s.Must(s.Consumer.WaitIDs(s.Context(), []string{id}))
	for _, d := range s.Consumer.Deliveries() {
		if d.ID == id {
			return d.Traceparent
		}
	}
	s.T.Fatalf("event %s has not arrived", id)
	return ""
}

// spanOf waits for the span of an event.
func spanOf(s *stand.Stand, c *servers.Collector, id string) servers.Span {
	s.T.Helper()
	span, err := c.WaitSpan(s.Context(), func(sp servers.Span) bool { return sp.Attributes["messaging.message.id"] == id })
	s.Must(err)
	return span
}

// request is a traceparent of somebody's request, by the number of its trace.
func request(n int, flags string) string {
	return fmt.Sprintf("00-%032x-%016x-%s", n, n+1, flags)
}

// link says what is wrong with the ordering group from a row's traceparent over the relay's span to
// the message's.
func link(row, message string, span servers.Span) error {
	parent := strings.Split(row, "-")
	want := fmt.Sprintf("00-%s-%s-01", span.Trace, span.ID)
	if message != want || row != "" && (span.Trace != parent[1] || span.Parent != parent[2]) || row == "" && span.Parent != "" {
		return fmt.Errorf("row %q, span %s of trace %s with parent %q, message %q", row, span.ID, span.Trace, span.Parent, message)
	}
	return nil
}

func TestTraceIsUnbroken(t *testing.T) {
	stand.KindKafka.OnRouted(t, func(s *stand.Stand) {
		const most = 2
		s.Retry = fmt.Sprintf("backoff: 50ms, max_backoff: 100ms, max_attempts: %d", most)
		c := traced(s)
		s.Broker.Spoil([]byte(spoilt))
		r := s.StartWatched()

		// What a message carries, by what its row has.
		recorded, unrecorded, garbage := request(0xa1, "01"), request(0xa2, "00"), "Root=1-67891233-abcdef012345678912345678"
		ids := map[string]string{}
		for key, traceparent := range map[string]string{"recorded": recorded, "unrecorded": unrecorded, "none": "", "garbage": garbage} {
			ids[key] = withTrace(s, key, traceparent, load.Kind{})
		}
		for key, row := range map[string]string{"recorded": recorded, "none": "", "garbage": ""} {
			if err := link(row, arrivedAs(s, ids[key]), spanOf(s, c, ids[key])); err != nil {
				s.T.Errorf("%s: %v", key, err)
			}
		}
		if got := arrivedAs(s, ids["unrecorded"]); got != unrecorded {
			s.T.Errorf("the message of a trace that is not recorded has %q, the row %q", got, unrecorded)
		}
		to := spanOf(s, c, ids["recorded"]).Attributes
		if to["messaging.system"] != "kafka" || to["messaging.destination.name"] != s.Usual() || to["outbox.outcome"] != "published" ||
			to["event.retry_count"] != "0" || to["messaging.destination.partition.id"] == "" {
			s.T.Errorf("attributes %v", to)
		}

		// A deferred one has its span when it is published, from the commit on, also by the next
		// process.
		deferred := withTrace(s, "deferred", request(0xb1, "01"), s.ToLater(1, 0))
		s.AwaitRows(checker.Deferred, 1)
		stopped(s, r, 0)
		r = s.Start()
		s.MakeLater()
		if err := link(request(0xb1, "01"), arrivedAs(s, deferred), spanOf(s, c, deferred)); err != nil {
			s.T.Errorf("deferred: %v", err)
		}
		waited := spanOf(s, c, deferred)
		var since time.Duration
		s.Query([]any{&since}, `SELECT now() - created_at FROM outbox WHERE id::text = $1`, deferred)
		if began := time.Since(waited.Start); began > since+time.Minute || began < since-time.Minute || waited.End.Before(waited.Start) {
			s.T.Errorf("the span of what was written %s ago is from %s to %s", since, waited.Start, waited.End)
		}

		// A dead letter has one, too, and the log names it.
		poison := withTrace(s, "poison", request(0xc1, "01"), s.Poison(1, 0))
		span := spanOf(s, c, poison)
		if span.Attributes["outbox.outcome"] != "dead_letter" || span.Error != "too_large" || span.Parent != fmt.Sprintf("%016x", 0xc2) || span.Attributes["event.retry_count"] != "0" {
			s.T.Errorf("the dead letter's span is %+v", span)
		}
		s.Must(r.WaitLog(s.Context(), fmt.Sprintf(`"trace_id":"%s","span_id":"%s"`, span.Trace, span.ID)))

		// One whose attempts were spent has a count of them.
		ailed := ailing(s, "ailing", 1)
		s.AwaitRows(checker.Deferred, 1)
		s.Until("it to die", func() bool {
			event(s, beside("ailing"), 1, load.Kind{}) // something passes there
			return s.RowsIn(checker.Open) == 2
		})
		span = spanOf(s, c, ailed)
		var attempts int
		s.Query([]any{&attempts}, `SELECT attempts::int FROM cdc_relay.dead_letter WHERE convert_from(id, 'UTF8') = $1`, ailed)
		if attempts < most || span.Attributes["event.retry_count"] != fmt.Sprint(attempts-1) || span.Error != "broker_exception" {
			s.T.Errorf("after %d attempts the span is %+v", attempts, span)
		}

		// A dead letter that is replayed is one message more, with a span of its own.
		operated(s, append([]string{"dead-letters", "replay", number(s, poison), "--wait", "10m"}, s.Antidote()...)...)
		replayed, err := c.WaitSpan(s.Context(), func(sp servers.Span) bool { return sp.Attributes["outbox.replay"] == "true" })
		s.Must(err)
		if err := link(request(0xc1, "01"), arrivedAs(s, poison), replayed); err != nil {
			s.T.Errorf("replayed: %v", err)
		}
		if replayed.ID == spanOf(s, c, poison).ID {
			s.T.Error("the replay has the span of the event that died")
		}
		stopped(s, r, 0)

		once := map[string]bool{}
		for _, sp := range c.Spans() {
			if err := sentinel.Leak("a span", sp.Text); err != nil {
				s.T.Error(err)
			}
			if once[sp.ID] {
				s.T.Errorf("span %s was exported twice: %s", sp.ID, sp.Text)
			}
			once[sp.ID] = true
		}
	})
}
