package main

import (
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/retry"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/tracing"
)

// traceparents is what the sinks and the siding ask for an event's traceparent; nil: it is the row's.
type traceparents func(ev *outbox.Event, buf []byte) []byte

// newTracer is what the environment asks for; nil: no traces.
func newTracer(c *config.Config, version string, log *zap.Logger) *tracing.Tracer {
	cfg := tracing.Config{Version: version, Slot: c.Source.Slot, Log: log}
	switch {
	case c.Sink.RabbitMQ != nil:
		cfg.System, cfg.Operation = ops.SinkRabbitMQ, "publish"
	case c.Sink.Kafka != nil:
		cfg.System, cfg.Operation = ops.SinkKafka, "send"
	default:
		cfg.System, cfg.Operation = ops.SinkStdout, "write"
	}
	return tracing.New(cfg)
}

// traceparentsOf is what messages carry with this tracer.
func traceparentsOf(t *tracing.Tracer) traceparents {
	if t == nil {
		return nil
	}
	return t.Traceparent
}

// trace joins a tracer, which may be nil, to the sink, and its counts to the metrics.
func (v *view) trace(t *tracing.Tracer) {
	v.tracer = t
	if t != nil {
		t.SendsTo(destinationsOf(v.sink))
	}
	v.metrics.WatchSpans(func() (out metrics.Spans) {
		if t != nil {
			s := t.Stats()
			out = metrics.Spans{Exported: s.Exported, Failed: s.Failed, Dropped: s.Dropped}
		}
		return out
	})
}

// destinationsOf says where an event of a sink went.
func destinationsOf(s sink.Sink) func(*outbox.Event) tracing.Destination {
	return func(ev *outbox.Event) tracing.Destination {
		to := tracing.Destination{Partition: -1}
		switch s := s.(type) {
		case *rabbit.Sink:
			to.Name, to.RoutingKey = s.Shown(ev)
		case *kafka.Sink:
			to.Name, to.Partition = s.Shown(ev)
		default:
			to.Name = string(s.Route(ev).Name)
		}
		return to
	}
}

// traced adds the spans to the hooks of the line.
func (v *view) traced(h relay.Hooks) relay.Hooks {
	if t := v.tracer; t != nil {
		h.Published = func(_ int, ev *outbox.Event, refusals int, at time.Time) { t.Published(ev, refusals, at) }
	}
	return h
}

// tracedSiding adds the spans of dead letters to the hooks of the siding. The attempt that was the last is no retry.
func (v *view) tracedSiding(h retry.Hooks) retry.Hooks {
	if t := v.tracer; t != nil {
		h.Buried = func(ev *outbox.Event, reason sink.Reason, attempts int) {
			t.Dead(ev, max(attempts-1, 0), string(reason), time.Now())
		}
	}
	return h
}
