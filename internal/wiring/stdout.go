// The stdout sink from its configuration.

package wiring

import (
	"context"
	"os"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/stdout"
)

var stdoutDriver = Driver{
	Kind: ops.SinkStdout, Operation: "write",
	Templates: func(*config.Config) []Template { return nil },
	RouteText: func(r *event.Route) string { return string(r.Name) },
	columns: func(c *config.Config, _ *zap.Logger) ([]string, error) {
		if records := c.Sink.Compat.Records(); records != nil {
			return records.Columns().Extra, nil
		}
		return nil, nil
	},
	open:  openStdout,
	check: func(context.Context, *config.Config, *zap.Logger) ([]sink.Finding, error) { return nil, nil },
}

// openStdout makes the sink, which prints lines of our own or, with a profile, records.
func openStdout(c *config.Config, _ *zap.Logger, _ *metrics.Metrics, trace Traceparents) (sink.Sink, []string, error) {
	lines := stdout.NewLines(trace)
	records := c.Sink.Compat.Records()
	if records == nil {
		return stdout.New(os.Stdout, lines), nil, nil
	}
	columns := records.Columns().Extra
	encoder, err := encoderOf(c, columns, lines)
	if err != nil {
		return nil, nil, ConfigError("sink.compat", err)
	}
	return stdout.New(os.Stdout, stdout.NewRecords(encoder, lines)), columns, nil
}
