// Package tracing makes a span of each sampled event and sends it by OTLP. It is the only importer
// of OpenTelemetry.
//
// An event has one span, outbox.publish: a child of what its row's traceparent names, from the
// commit to the confirm, or to the dead letter. The message carries the span's context long before
// the span is made, and perhaps several times. So nothing is kept between: trace and span id are a
// digest of the event's position, and whether it is sampled follows from them.
package tracing

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// Config is what the environment does not say.
type Config struct {
	Version   string
	Slot      string
	System    string // messaging.system: rabbitmq, kafka
	Operation string // what the broker's own tools call it: publish, send
	Log       *zap.Logger
}

// Destination is where an event went, as a span may say it: without what is made from keys.
type Destination struct {
	Name       string // exchange or topic
	RoutingKey string
	Partition  int // -1: there is none, or it is not known
}

// Stats are counts of spans since the start.
type Stats struct {
	Exported uint64 // the collector has them
	Failed   uint64 // it refused them, or was away for too long
	Dropped  uint64 // not made: too many others waited
}

// Tracer says what each message's traceparent is, and makes the spans. Its methods but Run may be
// called from any goroutine; they wait for nothing.
type Tracer struct {
	cfg         Config
	env         environment
	destination func(*event.Event) Destination
	seed        uint64             // of ids
	same        []*common.KeyValue // what all spans say
	queue       *queue             // open while Run runs
	shut        atomic.Bool        // there is no exporter and will be none: no event is sampled

	exported  atomic.Uint64
	failed    atomic.Uint64
	dropped   atomic.Uint64
	exportLog exportLog
}

// New reads the OTEL_* variables. It is nil when they ask for no traces. It starts nothing; what it
// does not understand of the variables is logged and left out, as OpenTelemetry's specification has
// it: no event waits for a span.
func New(cfg Config) *Tracer {
	env := readEnvironment()
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	for _, w := range env.warnings {
		cfg.Log.Warn("value of an OTEL_* variable is not supported", zap.String("why", w))
	}
	if !env.on {
		return nil
	}
	t := &Tracer{
		cfg: cfg, env: env, seed: rand.Uint64(), same: same(cfg), queue: newQueue(env.queue, env.batch), exportLog: exportLog{log: cfg.Log},
	}
	t.destination = func(*event.Event) Destination { return Destination{Partition: -1} }
	return t
}

// SendsTo sets how to find out where an event went. Call it before Run.
func (t *Tracer) SendsTo(destination func(*event.Event) Destination) { t.destination = destination }

// Stats are the counts; of no Tracer none.
func (t *Tracer) Stats() Stats {
	if t == nil {
		return Stats{}
	}
	return Stats{Exported: t.exported.Load(), Failed: t.failed.Load(), Dropped: t.dropped.Load()}
}

// Traceparent is what an event's message carries: the context of its span when it is sampled, in
// buf[:0], else that of the row, byte for byte; nil: nothing. The same event has the same one as
// long as the process lives.
func (t *Tracer) Traceparent(ev *event.Event, buf []byte) []byte {
	if t.isPlainlyNotSampled(ev) {
		return ev.Traceparent
	}
	own, _, sampled := t.spanContext(ev)
	if !sampled {
		return ev.Traceparent
	}
	return own.Append(buf[:0])
}

// Span is the context of an event's span; ok is false when it is not sampled.
func (t *Tracer) Span(ev *event.Event) (own event.TraceContext, ok bool) {
	own, _, ok = t.spanContext(ev)
	return own, ok
}

// Published makes the span of an event that was confirmed, after so many refusals.
func (t *Tracer) Published(ev *event.Event, retries int, at time.Time) {
	if !t.isPlainlyNotSampled(ev) {
		t.endSpan(ev, at, retries, published)
	}
}

// Dead makes the span of an event that became a dead letter: its row is committed there. reason is
// of sink's closed list, "" when it was an operator's decision.
func (t *Tracer) Dead(ev *event.Event, retries int, reason string, at time.Time) {
	if reason == "" {
		reason = operatorsReason
	}
	t.endSpan(ev, at, retries, reason)
}
