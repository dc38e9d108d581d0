// The span of a message, and log lines that name it.

package inbox

import (
	"context"
	"errors"
	"log/slog"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

func newTracer(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer("github.com/cdc-relay/cdc-relay/inbox")
}

// begin starts the span of one delivery, as a child of the span in the message's traceparent: that
// of the relay's publish, or else of the producer's transaction.
func (in *Inbox) begin(ctx context.Context, system string, m Message) (context.Context, trace.Span) {
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

// end ends it. A duplicate's outcome is success: its effect is there.
func end(span trace.Span, o outcome, err error) {
	if o == duplicate {
		o = success
		span.SetAttributes(attribute.Bool("consumer.duplicate", true))
	}
	span.SetAttributes(attribute.String("consumer.outcome", string(o)))
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, reasonOf(err))
	}
	span.End()
}

// log is the logger with what names a message: never its payload.
func (in *Inbox) log(ctx context.Context, m Message) *slog.Logger {
	log := in.cfg.Log.With("event_id", m.ID, "type", m.Type, "source", m.Source)
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		log = log.With("trace_id", span.TraceID(), "span_id", span.SpanID())
	}
	return log
}

// failureLog is log with what is known of a failure.
func (in *Inbox) failureLog(ctx context.Context, m Message, f Failure, err error) *slog.Logger {
	log := in.log(ctx, m).With("error", err, "class", f.Class)
	var panicked *panicError
	if errors.As(err, &panicked) {
		log = log.With("stack", string(panicked.stack))
	}
	return log
}
