// The span of an event: its ids, made from the event's position, and what it says. Never the
// event's key, its payload or a header.

package tracing

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// operatorsReason stands for the broker's when an operator made an event a dead letter.
const operatorsReason = "operator"

// idPart is a part of an event's ids: an odd number without structure, or none, that is mixed into
// the event's position.
type idPart uint64

const (
	lowerHalf  idPart = 0 // of the trace's id: decides whether a new trace is recorded
	upperHalf  idPart = 0x9e3779b97f4a7c15
	spanID     idPart = 0xd1b54a32d192ed03
	replayPart idPart = 0x94d049bb133111eb // a replay is a second message with its own span
)

// newIDPart is an id that no other event has. It is never zero, which would be no id.
func (t *Tracer) newIDPart(ev *event.Event, of idPart) uint64 {
	if ev.Replay {
		of ^= replayPart
	}
	at := ev.Position
	at.Commit ^= pglogrepl.LSN(t.seed ^ uint64(of))
	return max(event.HashPosition(at), 1)
}

// ids gives the SDK the ids that are in the context.
type ids struct{}

type idsOf struct {
	tracer *Tracer
	event  *event.Event
}

func (ids) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	of := ctx.Value(ids{}).(idsOf) //nolint:forcetypeassert // start puts it there
	binary.BigEndian.PutUint64(id[:8], of.tracer.newIDPart(of.event, upperHalf))
	binary.BigEndian.PutUint64(id[8:], of.tracer.newIDPart(of.event, lowerHalf))
	return id, ids{}.NewSpanID(ctx, id)
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) (span trace.SpanID) {
	of := ctx.Value(ids{}).(idsOf) //nolint:forcetypeassert // start puts it there
	binary.BigEndian.PutUint64(span[:], of.tracer.newIDPart(of.event, spanID))
	return span
}

// startSpan begins an event's span; nil: it is not sampled. The same event has the same one as long
// as the process lives. One that is not ended is not exported, and costs nothing more.
func (t *Tracer) startSpan(ev *event.Event) trace.Span {
	tracer := t.tracer.Load()
	if tracer == nil || ev.Copy {
		return nil
	}
	ctx := context.WithValue(context.Background(), ids{}, idsOf{t, ev})
	if parent, ok := event.ParseTraceparent(ev.Traceparent); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: parent.Trace, SpanID: parent.Span, TraceFlags: trace.TraceFlags(parent.Flags), Remote: true,
		}))
	}
	_, span := (*tracer).Start(ctx, "outbox.publish", trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(ev.CommitTime))
	if !span.SpanContext().IsSampled() {
		return nil
	}
	return span
}

// Traceparent is what an event's message carries: the context of its span when it is sampled, in
// buf[:0], else that of the row, byte for byte; nil: nothing.
func (t *Tracer) Traceparent(ev *event.Event, buf []byte) []byte {
	span := t.startSpan(ev)
	if span == nil {
		return ev.Traceparent
	}
	own := span.SpanContext()
	context := event.TraceContext{Trace: own.TraceID(), Span: own.SpanID(), Flags: byte(own.TraceFlags())}
	return context.Append(buf[:0])
}

// Published makes the span of an event that was confirmed after a number of refusals.
func (t *Tracer) Published(ev *event.Event, retries int, at time.Time) {
	t.exportSpan(ev, retries, "", at)
}

// DeadLettered makes the span of an event that became a dead letter: its row is committed there.
// reason is of sink's closed list, "" when it was an operator's decision.
func (t *Tracer) DeadLettered(ev *event.Event, retries int, reason string, at time.Time) {
	if reason == "" {
		reason = operatorsReason
	}
	t.exportSpan(ev, retries, reason, at)
}

// exportSpan exports an event's span, if it is sampled, with the attributes of OpenTelemetry's
// conventions for messaging and the relay's own. reason says why it became a dead letter; "": it is
// published.
func (t *Tracer) exportSpan(ev *event.Event, retries int, reason string, at time.Time) {
	span := t.startSpan(ev)
	if span == nil {
		return
	}
	to := t.destination(ev)
	outcome := "published"
	if reason != "" {
		outcome = "dead_letter"
		span.SetStatus(codes.Error, reason)
		span.SetAttributes(attribute.String("error.type", reason))
	}
	span.SetAttributes(
		attribute.String("messaging.system", t.cfg.System), attribute.String("messaging.operation.name", t.cfg.Operation), attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", validText(to.Name)), attribute.Int("messaging.message.body.size", len(ev.Payload)),
		attribute.String("outbox.outcome", outcome), attribute.String("outbox.position", ev.Position.String()), attribute.Int("event.retry_count", retries),
	)
	if ev.ID != nil {
		span.SetAttributes(attribute.String("messaging.message.id", validText(string(ev.ID[:min(len(ev.ID), maxText)]))))
	}
	if to.RoutingKey != "" {
		span.SetAttributes(attribute.String("messaging.rabbitmq.destination.routing_key", validText(to.RoutingKey)))
	}
	if to.Partition >= 0 {
		span.SetAttributes(attribute.String("messaging.destination.partition.id", strconv.Itoa(to.Partition)))
	}
	if ev.Replay {
		span.SetAttributes(attribute.Bool("outbox.replay", true))
	}
	if at.Before(ev.CommitTime) { // that is by the database's clock
		at = ev.CommitTime
	}
	span.End(trace.WithTimestamp(at))
}

// maxText is the most bytes of a text that a span carries.
const maxText = 300

// validText is a text as OTLP can carry it. One that is not UTF-8 would cost the whole batch.
func validText(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxText)], "?") }
