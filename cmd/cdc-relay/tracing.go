// Tracing, connected to the sink and to the hooks of line and retry table.

package main

import (
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/tracing"
	"github.com/cdc-relay/cdc-relay/internal/wiring"
)

// newTracer creates the tracer that the environment asks for; nil: no traces.
func newTracer(c *config.Config, version string, log *zap.Logger) *tracing.Tracer {
	driver := c.Sink.Driver
	return tracing.New(tracing.Config{Version: version, Slot: c.Source.Slot, System: driver.Name, Operation: driver.Operation, Log: log})
}

// traceparentsOf returns the traceparents that messages carry with this tracer.
func traceparentsOf(t *tracing.Tracer) wiring.Traceparents {
	if t == nil {
		return nil
	}
	return t.Traceparent
}

// trace connects a tracer, which may be nil, to the sink.
func (v *process) trace(t *tracing.Tracer) {
	v.tracer = t
	if t != nil {
		t.SendsTo(func(ev *event.Event) tracing.Destination { return tracing.Destination(v.sink.SentTo(ev)) })
	}
}

// traced adds the spans to the hooks of the line.
func (v *process) traced(h relay.Hooks) relay.Hooks {
	if t := v.tracer; t != nil {
		h.Published = func(_ int, ev *event.Event, refusals int, at time.Time) { t.Published(ev, refusals, at) }
	}
	return h
}

// tracedRetryTable adds the spans of dead letters to the hooks of the retry table. The first
// attempt does not count as a retry.
func (v *process) tracedRetryTable(h retry.Hooks) retry.Hooks {
	if t := v.tracer; t != nil {
		h.DeadLettered = func(ev *event.Event, reason sink.Reason, attempts int) {
			t.Dead(ev, max(attempts-1, 0), string(reason), time.Now())
		}
	}
	return h
}
