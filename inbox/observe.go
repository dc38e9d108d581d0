// What a consumer shows of itself: metrics (docs/consuming.md lists them), a span for each message,
// and log lines.

package inbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// outcome is what became of one delivery, as in a label of cdc_relay_inbox_messages_total.
type outcome string

const (
	outcomeSuccess    outcome = "success"
	outcomeDuplicate  outcome = "duplicate" // the event was processed before
	outcomeRetry      outcome = "retry"
	outcomeDeadLetter outcome = "dead_letter"
	outcomeFailed     outcome = "failed" // the message will be delivered again
)

// metrics are the metrics of one service.
type metrics struct {
	messages, failures, retries, returned *prometheus.CounterVec
	deadLetters, deadLettersFailed        prometheus.Counter
	processing, endToEnd                  prometheus.Observer
	waiting                               *prometheus.GaugeVec
	databaseUp, brokerUp, inProgress      prometheus.Gauge
}

// newMetrics registers the metrics, or uses those that another inbox of the process has registered.
func newMetrics(registerer prometheus.Registerer, service string, levels []time.Duration) (*metrics, error) {
	r := registry{Registerer: registerer, service: prometheus.Labels{"service": service}}
	m := &metrics{
		messages:          r.counters("cdc_relay_inbox_messages_total", "Deliveries, by what became of them.", "outcome"),
		failures:          r.counters("cdc_relay_inbox_failures_total", "Attempts that failed, by why.", "class"),
		retries:           r.counters("cdc_relay_inbox_retries_total", "Messages that the broker keeps for a later attempt, by the pause before it.", "level"),
		returned:          r.counters("cdc_relay_inbox_retries_returned_total", "Messages that came back for another attempt, by the pause before it.", "level"),
		deadLetters:       r.counters("cdc_relay_inbox_dead_letters_total", "Messages that the broker keeps as dead letters.").WithLabelValues(),
		deadLettersFailed: r.counters("cdc_relay_inbox_dead_letter_failures_total", "Dead letters that the broker did not confirm. They are delivered again.").WithLabelValues(),
		processing:        r.seconds("cdc_relay_inbox_processing_seconds", "From the delivery of a message to its outcome."),
		endToEnd:          r.seconds("cdc_relay_inbox_commit_to_processed_seconds", "From the timestamp of a message to the commit of its effect."),
		waiting:           r.gauges("cdc_relay_inbox_waiting_messages", "Messages that wait in a queue or topic, of all processes of the service.", "queue"),
		databaseUp:        r.gauges("cdc_relay_inbox_database_up", "Whether the database records processed messages.").WithLabelValues(),
		brokerUp:          r.gauges("cdc_relay_inbox_broker_up", "Whether the broker delivers.").WithLabelValues(),
		inProgress:        r.gauges("cdc_relay_inbox_messages_in_progress", "Messages that are in the handler.").WithLabelValues(),
	}
	if r.err != nil {
		return nil, r.err
	}
	// rate() misses the first count of a series that begins with it. So all series exist from the
	// start.
	for _, o := range []outcome{outcomeSuccess, outcomeDuplicate, outcomeRetry, outcomeDeadLetter, outcomeFailed} {
		m.messages.WithLabelValues(string(o))
	}
	for _, c := range []Class{Transient, Permanent, Panic, Timeout} {
		m.failures.WithLabelValues(string(c))
	}
	for _, level := range levels {
		m.retries.WithLabelValues(LevelName(level))
		m.returned.WithLabelValues(LevelName(level))
	}
	return m, nil
}

// countDelivery counts the end of one delivery.
func (m *metrics) countDelivery(o outcome, took time.Duration, committed time.Time) {
	m.messages.WithLabelValues(string(o)).Inc()
	m.processing.Observe(took.Seconds())
	if o == outcomeSuccess && !committed.IsZero() {
		m.endToEnd.Observe(max(time.Since(committed).Seconds(), 0))
	}
}

// registry registers metrics with the label service, and collects errors.
type registry struct {
	prometheus.Registerer
	service prometheus.Labels
	err     error
}

func (r *registry) counters(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"service"}, labels...))
	return registerOrReuse(r, vec).MustCurryWith(r.service)
}

func (r *registry) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"service"}, labels...))
	return registerOrReuse(r, vec).MustCurryWith(r.service)
}

// seconds makes a histogram from half a millisecond to an hour. A message that waits for further
// attempts, or behind an outage, takes minutes.
func (r *registry) seconds(name, help string) prometheus.Observer {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, NativeHistogramBucketFactor: 1.1,
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600},
	}, []string{"service"})
	return registerOrReuse(r, vec).With(r.service)
}

// registerOrReuse registers c and returns it, or returns the same metrics if they are registered
// already.
func registerOrReuse[C prometheus.Collector](r *registry, c C) C {
	err := r.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if same, ok := before.ExistingCollector.(C); ok {
			return same
		}
	}
	r.err = errors.Join(r.err, err)
	return c
}

func newTracer(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer("github.com/cdc-relay/cdc-relay/inbox")
}

// startSpan starts the span of one delivery. Its parent is the span in the message's traceparent:
// that of the relay's publish, or that of the producer's transaction.
func (in *Inbox) startSpan(ctx context.Context, system string, m Message) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(m.Headers))
	return in.tracer.Start(ctx, "process "+m.Source, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.system", system),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", m.Source),
		attribute.String("messaging.consumer.group.name", in.cfg.Service),
		attribute.String("messaging.message.id", m.ID),
		attribute.Int(system+".retry_count", max(m.Attempt-1, 0)),
	))
}

// endSpan ends the span of a delivery. A duplicate counts as success, because its effect is there.
func endSpan(span trace.Span, o outcome, err error) {
	if o == outcomeDuplicate {
		o = outcomeSuccess
		span.SetAttributes(attribute.Bool("consumer.duplicate", true))
	}
	span.SetAttributes(attribute.String("consumer.outcome", string(o)))
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, reasonOf(err))
	}
	span.End()
}

// messageLog returns a logger whose lines name a message. They never have its payload.
func (in *Inbox) messageLog(ctx context.Context, m Message) *slog.Logger {
	log := in.cfg.Log.With("event_id", m.ID, "type", m.Type, "source", m.Source)
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		log = log.With("trace_id", span.TraceID(), "span_id", span.SpanID())
	}
	return log
}

// failureLog returns a logger whose lines name a message and its failure.
func (in *Inbox) failureLog(ctx context.Context, m Message, f Failure, err error) *slog.Logger {
	log := in.messageLog(ctx, m).With("error", err, "class", f.Class)
	var panicked *panicError
	if errors.As(err, &panicked) {
		log = log.With("stack", string(panicked.stack))
	}
	return log
}
