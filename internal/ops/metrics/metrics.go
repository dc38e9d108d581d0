// Package metrics is the relay's Prometheus metrics: counters of what happens, and gauges that are
// read from a Snapshot. Of all packages it alone imports Prometheus.
package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Metrics counts what happens. The parts of the relay call its methods as hooks. They are safe for
// concurrent use, and those called for each event or call do not allocate, except Confirmed once a
// second for an exemplar.
type Metrics struct {
	registry *prometheus.Registry

	published     atomic.Uint64
	deferred      atomic.Uint64
	dead          atomic.Uint64
	failed        atomic.Uint64
	retried       atomic.Uint64
	rowsDeleted   atomic.Uint64
	brokerAgain   atomic.Uint64 // connections that replaced a lost one
	streamAgain   atomic.Uint64 // replication sessions after the first one
	lastConfirmed atomic.Int64  // Unix nanoseconds, 0 before the first
	rate          rate          // of published, for the status
	retryRate     rate
	deferRate     rate

	latency        latencyHistogram
	lastLatencies  latencies // the same latencies, for the status
	publishedBytes prometheus.Counter
	skipped        *prometheus.CounterVec
	rejections     *prometheus.CounterVec
	acks, nacks    prometheus.Counter
	returned       prometheus.Counter
	timeouts       prometheus.Counter
	headersDropped *prometheus.CounterVec
	channelOpens   prometheus.Counter
	exhausted      prometheus.Counter
	stray          prometheus.Counter
	mirrored       prometheus.Counter
	mirrorFailed   prometheus.Counter
	adminRefused   *prometheus.CounterVec
}

// latencyBuckets are the bounds of the classic histogram, in seconds. The native histogram is exact
// to 10 %.
var latencyBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// New registers the metrics of one relay in a registry of their own. version and commit are those
// of the binary.
func New(version, commit, goVersion string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cdc_relay_build_info", Help: "Always 1; the labels say what was built.",
			ConstLabels: prometheus.Labels{"version": version, "commit": commit, "goversion": goVersion},
		}, func() float64 { return 1 }),
		m.events("published", &m.published), m.events("retry", &m.deferred), m.events("dead_letter", &m.dead), m.events("failed", &m.failed),
		counterOf("cdc_relay_retry_attempts_total", "Attempts to publish an event of the retry table.", nil, &m.retried),
		counterOf("cdc_relay_retention_deleted_total", "Rows of the outbox tables that were deleted after they were delivered.", nil, &m.rowsDeleted),
		counterOf("cdc_relay_dead_letters_total", "Events whose row was committed in the dead letters.", nil, &m.dead),
		counterOf("cdc_relay_sink_reconnects_total", "Connections to the broker that replaced a lost one.", nil, &m.brokerAgain),
		counterOf("cdc_relay_stream_reconnects_total", "Replication sessions started after the first one.", nil, &m.streamAgain),
	)
	m.latency.Histogram = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "cdc_relay_publish_latency_seconds", Help: "From the commit of an event's transaction to the broker's confirm.",
		Buckets:                     latencyBuckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	})
	m.registry.MustRegister(m.latency.Histogram)
	m.publishedBytes = m.counter("cdc_relay_published_bytes_total", "Payload bytes of confirmed events.")
	m.channelOpens = m.counter("cdc_relay_sink_channel_opens_total", "Channels opened to the broker.")
	m.exhausted = m.counter("cdc_relay_retries_exhausted_total", "Events that became dead letters because their attempts were spent.")
	m.stray = m.counter("cdc_relay_rows_without_transaction_total", "Rows that were delivered without the transaction that wrote them (outbox.transaction): whether they were sent is not known later.")
	m.mirrored = m.counter("cdc_relay_dead_letters_mirrored_total", "Dead letters whose copy the broker confirmed.")
	m.mirrorFailed = m.counter("cdc_relay_dead_letter_mirror_failures_total", "Copies of dead letters that the broker refused; they are offered again.")
	m.skipped = m.counters("cdc_relay_messages_skipped_total", "Messages of the replication stream that are not events of this relay.", "reason")
	m.headersDropped = m.counters("cdc_relay_headers_dropped_total", "Keys of the headers column that have one of the relay's own names.", "header")
	m.rejections = m.counters("cdc_relay_rejections_total", "Attempts that ended in a rejection, by whose fault it is and why.", "class", "reason")
	confirms := m.counters("cdc_relay_confirms_total", "The broker's answers to published messages; one returned is not counted as ack.", "result")
	m.acks, m.nacks = confirms.WithLabelValues("ack"), confirms.WithLabelValues("nack")
	m.returned, m.timeouts = confirms.WithLabelValues("returned"), confirms.WithLabelValues("timeout")
	m.adminRefused = m.counters("cdc_relay_admin_refused_total", "Requests to the admin server that were refused: 401 without a good token, 403 without the right.", "code")
	for _, code := range adminRefusals {
		m.adminRefused.WithLabelValues(code)
	}
	for _, reason := range decode.SkipReasons { // from 0: else rate() misses the first
		m.skipped.WithLabelValues(reason)
	}
	for class, reasons := range sink.Rejections {
		for _, reason := range reasons {
			m.rejections.WithLabelValues(class.String(), string(reason))
		}
	}
	return m
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, label ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, label)
	m.registry.MustRegister(c)
	return c
}

// events makes the series of cdc_relay_events_total for one outcome.
func (m *Metrics) events(outcome string, n *atomic.Uint64) prometheus.Collector {
	return counterOf("cdc_relay_events_total",
		"Attempts to publish an event, by what became of them: published is confirmed by the broker; retry is deferred, with a row committed in the retry table, also without having been sent; dead_letter is one; failed left no row: it is offered again, or in doubt after the connection broke. An event ends as published or dead_letter.",
		prometheus.Labels{"outcome": outcome}, n)
}

// counterOf makes a counter that reads a number which the status shows, too.
func counterOf(name, help string, labels prometheus.Labels, n *atomic.Uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
		func() float64 { return float64(n.Load()) })
}

// Watch adds the gauges, which read a Snapshot. The relay calls it once, when it has one.
func (m *Metrics) Watch(snapshot func() ops.Snapshot) {
	m.registry.MustRegister(&gauges{metrics: m, snapshot: snapshot, now: time.Now})
}

// Confirmed counts events that the broker confirmed at this time, all of one call;
// relay.Hooks.Confirmed.
func (m *Metrics) Confirmed(_ int, events []*event.Event, at time.Time) {
	payload, published := 0, uint64(0)
	last, due := m.latency.due(at)
	for _, ev := range events {
		if ev.Copy {
			continue // Mirrored counts copies
		}
		published++
		// The commit's time is from the server's clock. Where our clock is behind it, the latency
		// counts as 0.
		latency := max(0, at.Sub(ev.CommitTime)).Seconds()
		if due && len(ev.Traceparent) > 0 {
			due = !m.latency.observe(latency, ev.Traceparent, last, at)
		} else {
			m.latency.Observe(latency)
		}
		payload += len(ev.Payload)
	}
	m.published.Add(published)
	m.publishedBytes.Add(float64(payload))
	m.lastConfirmed.Store(at.UnixNano())
	m.rate.add(at, published)
	m.lastLatencies.add(events, at)
}

// Rejected counts one attempt that was refused; relay.Hooks.Rejected. What becomes of it is counted
// by Deferred, Dead or Failed. Copies of dead letters are counted by Mirrored and MirrorFailed.
func (m *Metrics) Rejected(ev *event.Event, fault *sink.Fault, _ int) {
	if !ev.Copy {
		m.rejections.WithLabelValues(fault.Class.String(), string(fault.Reason)).Inc()
	}
}

// Unavailable counts the attempts of a failed call that are in doubt; relay.Hooks.Unavailable.
func (m *Metrics) Unavailable(_, unknown int, _ error) { m.Failed(unknown) }

// Failed counts attempts that leave no row behind: they are in doubt, or are repeated. It is
// relay.Hooks.Failed and retry.Hooks.Failed.
func (m *Metrics) Failed(attempts int) { m.failed.Add(uint64(attempts)) }

// Deferred counts rows that were committed in the retry table, new ones and those updated after a
// new refusal; retry.Hooks.Deferred.
func (m *Metrics) Deferred(rows int) {
	m.deferred.Add(uint64(rows))
	m.deferRate.add(time.Now(), uint64(rows))
}

// Retried counts attempts to publish rows of the retry table; retry.Hooks.Retried.
func (m *Metrics) Retried(attempts int) {
	m.retried.Add(uint64(attempts))
	m.retryRate.add(time.Now(), uint64(attempts))
}

// Dead counts rows that were committed in the dead letters; retry.Hooks.Dead.
func (m *Metrics) Dead(rows int) { m.dead.Add(uint64(rows)) }

// RowsDeleted counts delivered rows that were deleted from the outbox tables;
// retention.Config.Deleted.
func (m *Metrics) RowsDeleted(rows int) { m.rowsDeleted.Add(uint64(rows)) }

// Stray counts a row that does not have its transaction; source.Hooks.Stray.
func (m *Metrics) Stray() { m.stray.Inc() }

// Exhausted counts those rows of Dead whose attempts were spent; retry.Hooks.Exhausted.
func (m *Metrics) Exhausted(rows int) { m.exhausted.Add(float64(rows)) }

// Mirrored counts copies of dead letters that the broker confirmed; dlq.MirrorConfig.Mirrored.
func (m *Metrics) Mirrored(deadLetters int) { m.mirrored.Add(float64(deadLetters)) }

// MirrorFailed counts copies of dead letters that the broker refused; dlq.MirrorConfig.Failed.
func (m *Metrics) MirrorFailed(deadLetters int) { m.mirrorFailed.Add(float64(deadLetters)) }

// Skipped counts a message of the stream that is not ours; source.Hooks.Skipped. The reasons
// are a closed list.
func (m *Metrics) Skipped(reason string) { m.skipped.WithLabelValues(reason).Inc() }

// HeaderDropped counts a key of the headers column that may not be sent;
// sink.PlainConfig.HeaderDropped.
func (m *Metrics) HeaderDropped(name string) { m.headersDropped.WithLabelValues(name).Inc() }

// adminRefusals are the codes that AdminRefused counts, as values of the label.
var adminRefusals = []string{"401", "403"}

// AdminRefused counts a request to the admin server that was answered with 401 or 403.
func (m *Metrics) AdminRefused(code int) { m.adminRefused.WithLabelValues(strconv.Itoa(code)).Inc() }

// Confirms counts the answers of one call; sink.Opening.Confirms.
func (m *Metrics) Confirms(acks, nacks, returned, timeouts int) {
	m.acks.Add(float64(acks))
	m.nacks.Add(float64(nacks))
	m.returned.Add(float64(returned))
	m.timeouts.Add(float64(timeouts))
}

// ChannelOpened counts a channel to the broker; sink.Opening.ChannelOpen.
func (m *Metrics) ChannelOpened() { m.channelOpens.Inc() }

// SinkConnected is called at each new connection to the broker. It counts the connection if it
// replaces one that was lost.
func (m *Metrics) SinkConnected(again bool) {
	if again {
		m.brokerAgain.Add(1)
	}
}

// StreamReconnected counts a replication session after the first; source.Hooks.Reconnect.
func (m *Metrics) StreamReconnected() { m.streamAgain.Add(1) }

// Rates returns means over the last ten whole seconds. The latencies are of the last minute.
func (m *Metrics) Rates(now time.Time) ops.RatesStatus {
	p50, p99 := m.lastLatencies.percentiles(now)
	return ops.RatesStatus{
		PublishedPerSecond: m.rate.perSecond(now), DeferredPerSecond: m.deferRate.perSecond(now), RetriesPerSecond: m.retryRate.perSecond(now),
		LatencyP50Seconds: p50, LatencyP99Seconds: p99,
	}
}

// Totals returns the counts since the process started.
func (m *Metrics) Totals() ops.TotalsStatus {
	out := ops.TotalsStatus{
		Published: m.published.Load(), Deferred: m.deferred.Load(), Dead: m.dead.Load(), Failed: m.failed.Load(), Retries: m.retried.Load(),
		RowsDeleted: m.rowsDeleted.Load(), StreamReconnects: m.streamAgain.Load(), BrokerReconnects: m.brokerAgain.Load(),
	}
	if last := m.lastConfirmed.Load(); last != 0 {
		at := time.Unix(0, last).UTC()
		out.LastConfirm = &at
	}
	return out
}

// Handler serves the metrics, as OpenMetrics or protobuf where the scraper asks for it.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// latencyHistogram observes latencies, with an exemplar (the trace of an event) at most once a
// second: an exemplar costs a microsecond and nine allocations, and programs that read exemplars
// keep only a few a minute.
type latencyHistogram struct {
	prometheus.Histogram
	second atomic.Int64 // of the last exemplar, as Unix time
}

// due returns the second of the last exemplar, and whether another one is due.
func (s *latencyHistogram) due(at time.Time) (last int64, due bool) {
	last = s.second.Load()
	return last, last != at.Unix()
}

// observe is Observe, and adds an exemplar when the traceparent is of a sampled trace and nobody
// else has added one since last. It returns whether it did.
func (s *latencyHistogram) observe(seconds float64, traceparent []byte, last int64, at time.Time) (taken bool) {
	trace, ok := event.ParseTraceparent(traceparent)
	if !ok || !trace.Sampled() || !s.second.CompareAndSwap(last, at.Unix()) {
		s.Observe(seconds)
		return false
	}
	with := s.Histogram.(prometheus.ExemplarObserver) //nolint:forcetypeassert // as each one that NewHistogram makes
	with.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": trace.TraceID()})
	return true
}

// rateSeconds is how many whole seconds a rate is the mean of.
const rateSeconds = 10

// rate counts by second, so that it needs no goroutine that samples. The zero value is ready.
type rate struct {
	mu      sync.Mutex
	seconds [rateSeconds + 1]struct {
		unix int64
		n    uint64
	}
}

func (r *rate) add(at time.Time, n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	unix := at.Unix()
	slot := &r.seconds[unix%int64(len(r.seconds))]
	if slot.unix != unix {
		slot.unix, slot.n = unix, 0
	}
	slot.n += n
}

// perSecond returns the mean of the rateSeconds whole seconds before now.
func (r *rate) perSecond(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var sum uint64
	for _, slot := range r.seconds {
		if age := now.Unix() - slot.unix; age >= 1 && age <= rateSeconds {
			sum += slot.n
		}
	}
	return float64(sum) / rateSeconds
}
