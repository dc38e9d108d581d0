package retry

import (
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// traced are the fields of a log line by which an event's trace is found: of the span that its message names.
func (c *Config) traced(ev *outbox.Event) []zap.Field {
	text := ev.Traceparent
	if c.Traceparent != nil {
		text = c.Traceparent(ev, nil)
	}
	at, ok := outbox.ParseTraceparent(text)
	if !ok {
		return nil
	}
	return []zap.Field{zap.String("trace_id", at.TraceID()), zap.String("span_id", at.SpanID())}
}

// about are the fields of a log line about an event.
func (c *Config) about(ev *outbox.Event, more ...zap.Field) []zap.Field {
	fields := []zap.Field{zap.Stringer("position", ev.Position)}
	if ev.ID != nil {
		fields = append(fields, zap.String("event_id", name(ev)))
	}
	return append(append(fields, c.traced(ev)...), more...)
}
