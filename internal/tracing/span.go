// What a span says: where an event went and what became of it. Never its key, its payload or a header.

package tracing

import (
	"context"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

const spanName = "outbox.publish"

// published is the reason of what did not fail.
const published = ""

// operatorsReason stands for the broker's when an operator made an event a dead letter.
const operatorsReason = "operator"

// end makes an event's span and hands it to the queue of the export, if it is sampled and there is room. reason says why it
// became a dead letter.
func (t *Tracer) end(ev *outbox.Event, at time.Time, retries int, reason string) {
	own, parent, sampled := t.span(ev)
	if !sampled {
		return
	}
	tracer := t.tracer.Load()
	if tracer == nil || t.pending.Add(1) > t.env.queue {
		if tracer != nil {
			t.pending.Add(-1)
		}
		t.dropped.Add(1)
		return
	}
	ctx := withIDs(context.Background(), own)
	if parent.Trace != [16]byte{} {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: parent.Trace, SpanID: parent.Span, TraceFlags: trace.TraceFlags(parent.Flags), Remote: true,
		}))
	}
	_, span := (*tracer).Start(ctx, spanName, trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(ev.CommitTime),
		trace.WithAttributes(t.attributes(ev, retries, reason)...))
	if reason != published {
		span.SetStatus(codes.Error, reason)
	}
	if at.Before(ev.CommitTime) { // that is by the database's clock
		at = ev.CommitTime
	}
	span.End(trace.WithTimestamp(at))
}

// attributes are the relay's own, and those of OpenTelemetry's conventions for messaging.
func (t *Tracer) attributes(ev *outbox.Event, retries int, reason string) []attribute.KeyValue {
	to, outcome := t.destination(ev), "published"
	if reason != published {
		outcome = "dlq"
	}
	out := append(make([]attribute.KeyValue, 0, 16),
		attribute.String("outbox.outcome", outcome),
		attribute.Int("event.retry_count", retries),
		attribute.String("outbox.position", ev.Position.String()),
		attribute.String("messaging.system", t.cfg.System),
		attribute.String("messaging.operation.name", t.cfg.Operation),
		attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", clean(to.Name)),
		attribute.Int("messaging.message.body.size", len(ev.Payload)),
	)
	if ev.ID != nil {
		out = append(out, attribute.String("messaging.message.id", clean(string(ev.ID[:min(len(ev.ID), maxText)]))))
	}
	if to.RoutingKey != "" {
		out = append(out, attribute.String("messaging.rabbitmq.destination.routing_key", clean(to.RoutingKey)))
	}
	if to.Partition >= 0 {
		out = append(out, attribute.String("messaging.destination.partition.id", strconv.Itoa(to.Partition)))
	}
	if reason != published {
		out = append(out, attribute.String("error.type", reason))
	}
	if ev.Replay {
		out = append(out, attribute.Bool("outbox.replay", true))
	}
	return out
}

// maxText is the most bytes of a text that a span carries.
const maxText = 300

// clean is a text as OTLP can carry it. One that is not UTF-8 would cost the whole batch.
func clean(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "?") }
