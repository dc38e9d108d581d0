// The kinds of sinks, and what the relay and the commands need of each.

package wiring

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/replication/check"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
	"github.com/cdc-relay/cdc-relay/internal/tracing"
)

// Driver is a kind of sink, as the relay and the commands use it.
type Driver struct {
	Kind      string // in metrics, status and traces
	Operation string // publishing, as traces name it
	Scope     string // what order is kept within, exchange or topic; "": there is no broker

	// Templates say where a message goes. The first is that of the scope.
	Templates func(*config.Config) []Template
	// RouteText names a route for people.
	RouteText func(*event.Route) string

	columns func(*config.Config, *zap.Logger) ([]string, error)
	open    func(*config.Config, *zap.Logger, *metrics.Metrics, Traceparents) (sink.Sink, []string, error)
	check   func(context.Context, *config.Config, *zap.Logger) ([]sink.Finding, error)
}

// Template is a template with its key in the configuration.
type Template struct {
	Key string
	sink.Template
}

// Traceparents gives the traceparent of an event's message; nil: it is the row's.
type Traceparents func(ev *event.Event, buf []byte) []byte

// DriverOf is the driver of the sink that is configured.
func DriverOf(c *config.Config) *Driver {
	switch {
	case c.Sink.RabbitMQ != nil:
		return &rabbitDriver
	case c.Sink.Kafka != nil:
		return &kafkaDriver
	}
	return &stdoutDriver
}

// OpenSink makes the sink that is configured, and names the extra columns it needs.
func OpenSink(c *config.Config, log *zap.Logger, m *metrics.Metrics, trace Traceparents) (sink.Sink, []string, error) {
	return DriverOf(c).open(c, log, m, trace)
}

// SinkColumns are the extra columns of the sink that is configured.
func SinkColumns(c *config.Config, log *zap.Logger) ([]string, error) {
	return DriverOf(c).columns(c, log)
}

// SinkState is the state of a sink's connections, and the destinations it sends nothing to.
func SinkState(s sink.Sink) (out ops.Sink, paused []ops.Paused) {
	switch s := s.(type) {
	case *rabbit.Sink:
		stats := s.Stats()
		out = ops.Sink{Kind: ops.SinkRabbitMQ, Connections: stats.Connections, Channels: stats.Channels, PendingConfirms: stats.PendingConfirms}
		out.Up, out.Why = s.Up()
	case *kafka.Sink:
		stats := s.Stats()
		out = ops.Sink{Kind: ops.SinkKafka, Connections: stats.Connections, PendingConfirms: stats.PendingConfirms}
		out.Up, out.Why = s.Up()
		for _, p := range stats.Waiting {
			paused = append(paused, ops.Paused{Destination: p.Destination, Reason: string(p.Reason), Error: p.Text, Since: p.Since})
		}
	case *stdout.Sink:
		out.Kind = ops.SinkStdout
		out.Up, out.Why = s.Up()
	}
	return out, paused
}

// Destination is where a sink has sent an event.
func Destination(s sink.Sink, ev *event.Event) tracing.Destination {
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

// checkBroker checks what the relay needs of the broker that is configured.
func checkBroker(ctx context.Context, c *config.Config, log *zap.Logger) (lines []check.Finding, err error) {
	found, err := DriverOf(c).check(ctx, c, log)
	for _, f := range found {
		level := check.LevelFail
		switch {
		case f.OK:
			level = check.LevelOK
		case f.Warn:
			level = check.LevelWarn
		}
		lines = append(lines, check.Finding{Name: f.Name, Level: level, Detail: f.Detail, Fix: f.Fix})
	}
	return lines, err
}
