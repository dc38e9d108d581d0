// The RabbitMQ sink from its configuration.

package wiring

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

var rabbitDriver = Driver{
	Kind: ops.SinkRabbitMQ, Operation: "publish", Scope: "exchange",
	Templates: func(c *config.Config) []Template {
		return []Template{{"sink.rabbitmq.exchange", c.Sink.RabbitMQ.Exchange}, {"sink.rabbitmq.routing_key", c.Sink.RabbitMQ.RoutingKey}}
	},
	RouteText: func(r *event.Route) string { return fmt.Sprintf("exchange %q, routing key %q", r.Name, r.RoutingKey) },
	columns: func(c *config.Config, log *zap.Logger) ([]string, error) {
		_, columns, err := rabbitConfig(c, log)
		return columns, err
	},
	open: openRabbit, check: checkRabbit,
}

// rabbitConfig is the RabbitMQ side, and the extra columns that its templates, headers and
// properties need.
func rabbitConfig(c *config.Config, log *zap.Logger) (rabbit.Config, []string, error) {
	r := c.Sink.RabbitMQ
	out := rabbit.Config{
		Dialer: conn.Dialer{
			ConfirmTimeout: c.Delivery.ConfirmTimeout, ConnectionName: "cdc-relay/" + c.Source.Slot, TLS: BrokerTLS("sink.rabbitmq.tls", r.TLS),
		},
		Lanes: c.Delivery.Lanes, Declare: r.Declare, Log: log,
	}
	if c.Delivery.Ordering == config.OrderingCommit {
		out.Lanes = 1
	}
	for _, u := range r.URLs {
		url, err := u.Read()
		if err != nil {
			return out, nil, ConfigError("sink.rabbitmq.url", err)
		}
		out.URLs = append(out.URLs, url)
	}
	out.Credentials = r.Credentials() // nil: the addresses carry them
	out.Exchange, out.RoutingKey = r.Exchange, r.RoutingKey
	if records := c.Sink.Compat.Records(); records != nil {
		out.Columns = records.Columns().Extra
		return out, out.Columns, nil
	}
	for _, h := range c.Outbox.Headers {
		out.Headers = append(out.Headers, message.HeaderColumn{Name: h.Name, Column: h.Column.Names[0]})
	}
	for _, p := range r.Properties {
		column := p.Column.Names[0]
		switch p.Name {
		case "correlation_id":
			out.CorrelationID = column
		case "priority":
			out.Priority = column
		case "expiration":
			out.Expiration = column
		}
	}
	out.Columns = columnsFor(c, r.Properties, r.Exchange, r.RoutingKey)
	return out, out.Columns, nil
}

// openRabbit makes the sink, with its metrics.
func openRabbit(c *config.Config, log *zap.Logger, m *metrics.Metrics, trace Traceparents) (sink.Sink, []string, error) {
	cfg, columns, err := rabbitConfig(c, log)
	if err != nil {
		return nil, nil, err
	}
	cfg.Traceparent = trace
	cfg.Connected, cfg.ChannelOpen, cfg.Confirms, cfg.HeaderDropped = m.SinkConnected, m.ChannelOpened, m.Confirms, m.HeaderDropped
	if cfg.Encoder, err = rabbitEncoder(c, &cfg.Config); err != nil {
		return nil, nil, ConfigError("sink.rabbitmq", err)
	}
	out, err := rabbit.New(cfg)
	if err != nil {
		return nil, nil, ConfigError("sink.rabbitmq", err)
	}
	return out, columns, nil
}

// rabbitEncoder is the encoder that is configured.
func rabbitEncoder(c *config.Config, cfg *message.Config) (sink.Encoder, error) {
	plain, err := message.NewPlain(cfg)
	if err != nil {
		return nil, err
	}
	return encoderOf(c, cfg.Columns, plain)
}

func checkRabbit(ctx context.Context, c *config.Config, log *zap.Logger) ([]sink.Finding, error) {
	cfg, _, err := rabbitConfig(c, log)
	if err != nil {
		return nil, err
	}
	return rabbit.Check(ctx, cfg), nil
}
