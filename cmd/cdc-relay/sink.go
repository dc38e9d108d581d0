package main

import (
	"context"
	"os"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
)

// This file is the choice among the sinks: whoever asks something of the one that is configured asks here.

// openSink makes the one sink that is configured, and names the extra columns it needs.
func openSink(c *config.Config, log *zap.Logger, m *metrics.Metrics, trace traceparents) (sink.Sink, []string, error) {
	switch {
	case c.Sink.RabbitMQ != nil:
		return openRabbit(c, log, m, trace)
	case c.Sink.Kafka != nil:
		return openKafka(c, log, m, trace)
	}
	if records := c.Sink.Compat.Records(); records != nil {
		columns := records.Columns().Extra
		router, err := records.Bind(columns)
		if err != nil {
			return nil, nil, usage("sink.compat", err)
		}
		return stdout.NewRecords(os.Stdout, router), columns, nil
	}
	return stdout.New(os.Stdout, trace), nil, nil
}

// sinkColumns are the extra columns of the sink that is configured.
func sinkColumns(c *config.Config, log *zap.Logger) (columns []string, err error) {
	switch {
	case c.Sink.RabbitMQ != nil:
		_, columns, err = rabbitConfig(c, log)
	case c.Sink.Kafka != nil:
		_, columns, err = kafkaConfig(c, log)
	case c.Sink.Compat.Records() != nil:
		columns = c.Sink.Compat.Records().Columns().Extra
	}
	return columns, err
}

// checkBroker asks the broker that is configured for what the relay needs of it.
func checkBroker(ctx context.Context, c *config.Config, log *zap.Logger) (lines []replication.Finding, err error) {
	var found []sink.Finding
	switch {
	case c.Sink.RabbitMQ != nil:
		found, err = checkRabbit(ctx, c, log)
	case c.Sink.Kafka != nil:
		found, err = checkKafka(ctx, c, log)
	}
	for _, f := range found {
		level := replication.LevelFail
		switch {
		case f.OK:
			level = replication.LevelOK
		case f.Warn:
			level = replication.LevelWarn
		}
		lines = append(lines, replication.Finding{Name: f.Name, Level: level, Detail: f.Detail, Mend: f.Mend})
	}
	return lines, err
}

// sinkState is how the sink stands, and what it sends nothing to.
func sinkState(s sink.Sink) (ops.Sink, []ops.Paused) {
	switch s := s.(type) {
	case *rabbit.Sink:
		return rabbitState(s)
	case *kafka.Sink:
		return kafkaState(s)
	case *stdout.Sink:
		out := ops.Sink{Kind: ops.SinkStdout}
		out.Up, out.Why = s.Up()
		return out, nil
	}
	return ops.Sink{}, nil
}
