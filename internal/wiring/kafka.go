// The Kafka sink from its configuration.

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
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

var kafkaDriver = Driver{
	Kind: ops.SinkKafka, Operation: "send", Scope: "topic",
	Templates: func(c *config.Config) []Template { return []Template{{"sink.kafka.topic", c.Sink.Kafka.Topic}} },
	RouteText: func(r *event.Route) string { return fmt.Sprintf("topic %q", r.Name) },
	columns: func(c *config.Config, log *zap.Logger) ([]string, error) {
		_, columns, err := kafkaConfig(c, log)
		return columns, err
	},
	open: openKafka, check: checkKafka,
}

// kafkaConfig is the Kafka side, and the extra columns that its topic and headers need.
func kafkaConfig(c *config.Config, log *zap.Logger) (kafka.Config, []string, error) {
	k := c.Sink.Kafka
	out := kafka.Config{
		Brokers: k.Brokers, Compression: k.Compression,
		OneLane:        c.Delivery.Ordering == config.OrderingCommit,
		ConfirmTimeout: c.Delivery.ConfirmTimeout, Options: conn.Options{ClientID: "cdc-relay/" + c.Source.Slot},
		Log: log,
	}
	if k.TLS.Enabled {
		out.TLS = BrokerTLS("sink.kafka.tls", k.TLS.TLS)
	}
	if login := k.Credentials(); login != nil {
		out.SASL = func() (*conn.SASL, error) {
			user, password, err := login()
			return &conn.SASL{Mechanism: k.SASL.Mechanism, Username: user, Password: password}, err
		}
	}
	if records := c.Sink.Compat.Records(); records != nil {
		out.Columns, out.Topic = records.Columns().Extra, k.Topic
		return out, out.Columns, nil
	}
	for _, h := range c.Outbox.Headers {
		out.Headers = append(out.Headers, record.HeaderColumn{Name: h.Name, Column: h.Column.Names[0]})
	}
	out.Columns = columnsFor(c, nil, k.Topic)
	var err error
	out.Topic, err = k.Topic.Bind(out.Columns)
	return out, out.Columns, err
}

// openKafka makes the sink, with its metrics.
func openKafka(c *config.Config, log *zap.Logger, m *metrics.Metrics, trace Traceparents) (sink.Sink, []string, error) {
	cfg, columns, err := kafkaConfig(c, log)
	if err != nil {
		return nil, nil, err
	}
	cfg.Traceparent, cfg.HeaderDropped = trace, m.HeaderDropped
	cfg.Connected, cfg.Confirms = m.SinkConnected, m.Confirms
	if cfg.Encoder, err = kafkaEncoder(c, &cfg.Config); err != nil {
		return nil, nil, ConfigError("sink.kafka", err)
	}
	out, err := kafka.New(cfg)
	if err != nil {
		return nil, nil, ConfigError("sink.kafka", err)
	}
	return out, columns, nil
}

// kafkaEncoder is the encoder that is configured.
func kafkaEncoder(c *config.Config, cfg *record.Config) (sink.Encoder, error) {
	plain, err := record.NewPlain(cfg)
	if err != nil {
		return nil, err
	}
	return encoderOf(c, cfg.Columns, plain)
}

func checkKafka(ctx context.Context, c *config.Config, log *zap.Logger) ([]sink.Finding, error) {
	cfg, _, err := kafkaConfig(c, log)
	if err != nil {
		return nil, err
	}
	return kafka.Check(ctx, cfg), nil
}
