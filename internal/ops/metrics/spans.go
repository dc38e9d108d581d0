// The metric of tracing.

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Spans are counts of the spans of events.
type Spans struct {
	Exported uint64 // the collector has them
	Failed   uint64 // it refused them, or was away for too long
	Dropped  uint64 // never made: too many others waited for the collector
}

// WatchSpans adds the metric of spans; to be called once.
func (m *Metrics) WatchSpans(spans func() Spans) {
	for result, of := range map[string]func(Spans) uint64{
		"exported": func(s Spans) uint64 { return s.Exported },
		"failed":   func(s Spans) uint64 { return s.Failed },
		"dropped":  func(s Spans) uint64 { return s.Dropped },
	} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "outbox_spans_total", Help: "Spans of events: exported, failed when the collector did not accept them, dropped when the queue was full. Absent without tracing.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(of(spans())) }))
	}
}
