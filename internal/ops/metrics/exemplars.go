// The latency histogram, with a trace now and then.

package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// latencyHistogram observes with an exemplar, the trace of an event, at most once in each second:
// it costs a microsecond and nine allocations, and what reads exemplars keeps a few a minute.
type latencyHistogram struct {
	prometheus.Histogram
	second atomic.Int64 // of the last exemplar, Unix time
}

// due is the second of the last exemplar, and whether there may be one at this time.
func (s *latencyHistogram) due(at time.Time) (last int64, due bool) {
	last = s.second.Load()
	return last, last != at.Unix()
}

// observe is Observe, with an exemplar when the traceparent is that of a sampled trace and no other
// exemplar came since last.
func (s *latencyHistogram) observe(seconds float64, traceparent []byte, last int64, at time.Time) (taken bool) {
	trace, ok := event.ParseTraceparent(traceparent)
	with, can := s.Histogram.(prometheus.ExemplarObserver)
	if !ok || !trace.Sampled() || !can || !s.second.CompareAndSwap(last, at.Unix()) {
		s.Observe(seconds)
		return false
	}
	with.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": trace.TraceID()})
	return true
}
