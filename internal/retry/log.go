// Log lines about events.

package retry

import (
	"cmp"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/retry/store"
)

// logDeadLetter logs a dead letter and calls the hook. (The log samples a flood of them.)
func (c *Config) logDeadLetter(row *store.Row, r store.Result) {
	if hook := c.Hooks.DeadLettered; hook != nil {
		hook(&row.Event, cmp.Or(r.Reason, row.Reason), r.Attempts)
	}
	c.Log.Warn("event became a dead letter: `cdc-relay dead-letters` lists, replays and discards it", c.about(&row.Event,
		zap.Int64("n", row.N), zap.String("class", r.Class.String()), zap.String("reason", string(r.Reason)),
		zap.String("destination", r.Destination), zap.String("fault", r.Text))...)
}

// writtenResult is the result with which a row was first written.
func writtenResult(row *store.Row) store.Result {
	return store.Result{Row: row, Class: row.Class, Reason: row.Reason, Text: row.Text, Destination: row.Destination, Attempts: row.Attempts}
}

// traced returns the log fields by which an event's trace is found: those of the span that its
// message names.
func (c *Config) traced(ev *event.Event) []zap.Field {
	text := ev.Traceparent
	if c.Traceparent != nil {
		text = c.Traceparent(ev, nil)
	}
	at, ok := event.ParseTraceparent(text)
	if !ok {
		return nil
	}
	return []zap.Field{zap.String("trace_id", at.TraceID()), zap.String("span_id", at.SpanID())}
}

// about returns the log fields of an event.
func (c *Config) about(ev *event.Event, more ...zap.Field) []zap.Field {
	fields := []zap.Field{zap.Stringer("position", ev.Position)}
	if ev.ID != nil {
		fields = append(fields, zap.String("event_id", shownID(ev)))
	}
	return append(append(fields, c.traced(ev)...), more...)
}

// shownID is the part of an event's id that logs show.
func shownID(ev *event.Event) string { return string(ev.ID[:min(len(ev.ID), 200)]) }
