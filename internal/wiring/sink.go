// The sink that is configured, from its driver.

package wiring

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Traceparents gives the traceparent of an event's message; nil: it is the row's.
type Traceparents func(ev *event.Event, buf []byte) []byte

// OpenSink makes the sink that is configured, and names the extra columns it needs. connected is
// called at each new connection; it may be nil.
func OpenSink(c *config.Config, log *zap.Logger, m *metrics.Metrics, trace Traceparents, connected func()) (sink.Opened, []string, error) {
	o := opening(c, log)
	o.Traceparent, o.HeaderDropped = trace, m.HeaderDropped
	o.ChannelOpen, o.Confirms = m.ChannelOpened, m.Confirms
	o.Connected = func(again bool) {
		m.SinkConnected(again)
		if connected != nil {
			connected()
		}
	}
	out, err := c.Sink.Settings.Open(o)
	if err != nil {
		return nil, nil, sinkError(c, err)
	}
	return out, o.Columns, nil
}

// OfflineSink makes the sink that is configured, for what it knows without its broker: where events
// go. It is never run.
func OfflineSink(c *config.Config, log *zap.Logger) (sink.Opened, error) {
	out, err := c.Sink.Settings.Open(opening(c, log))
	if err != nil {
		return nil, sinkError(c, err)
	}
	return out, nil
}

// opening is what the sink gets of the configuration.
func opening(c *config.Config, log *zap.Logger) *sink.Opening {
	o := &sink.Opening{
		Slot: c.Source.Slot, Lanes: c.Delivery.Lanes, OneLane: c.Delivery.Ordering == config.OrderingCommit,
		ConfirmTimeout: c.Delivery.ConfirmTimeout, Log: log,
		PlainConfig: sink.PlainConfig{Headers: c.Outbox.Headers, Columns: SinkColumns(c)},
	}
	if records := c.Sink.Compat.Records(); records != nil {
		o.Encoder = func(columns []string, plain sink.Encoder) (sink.Encoder, error) {
			return records.Encoder(columns, plain)
		}
	}
	return o
}

// sinkError is an error of the section sink, unless it is one already.
func sinkError(c *config.Config, err error) error {
	if stop := (*event.Stop)(nil); errors.As(err, &stop) {
		return err
	}
	return ConfigError("sink."+c.Sink.Driver.Name, err)
}

// SinkColumns are the extra columns that the sink needs: those of its headers and properties and of
// its templates, or the profile's.
func SinkColumns(c *config.Config) []string {
	if records := c.Sink.Compat.Records(); records != nil {
		return records.Columns().Extra
	}
	named := c.Sink.Settings.Columns()
	for _, h := range c.Outbox.Headers {
		named = append(named, h.Column)
	}
	for _, t := range c.Sink.Settings.Templates() {
		named = append(named, t.Columns()...)
	}
	slices.Sort(named)
	return slices.Compact(named)
}

// SinkState is the state of a sink's connections, and the destinations that events wait for in it.
func SinkState(d *sink.Driver, s sink.Opened) (out ops.Sink, paused []ops.Paused) {
	now := s.Status()
	return ops.Sink{
		Kind: d.Name, Up: now.Up, Why: now.Why,
		Connections: now.Connections, Channels: now.Channels, PendingConfirms: now.PendingConfirms, Ignored: now.Ignored,
	}, Paused(now.Waiting)
}

// Paused is what is shown of paused destinations.
func Paused(list []sink.Paused) (out []ops.Paused) {
	for _, p := range list {
		out = append(out, ops.Paused{Destination: p.Destination, Reason: string(p.Reason), Error: p.Text, Since: p.Since, Fix: p.Fix})
	}
	return out
}

// checkBroker checks what the relay needs of the broker that is configured.
func checkBroker(ctx context.Context, c *config.Config, log *zap.Logger) (lines []check.Finding, err error) {
	o := opening(c, log)
	if c.DeadLetters.Mirror.IsSet() {
		mirror := c.MirrorRoute()
		o.Mirror = &mirror
	}
	found, err := c.Sink.Settings.Check(ctx, o)
	if err != nil {
		return nil, sinkError(c, err)
	}
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
	return lines, nil
}
