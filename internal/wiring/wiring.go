// Package wiring makes the settings of each part (source, sinks, TLS, log) from the configuration.
// The relay and the commands share it, so that both read a key in the same way. It starts nothing.
package wiring

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
	"github.com/cdc-relay/cdc-relay/internal/printable"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// orderings are the orders of the delivery line by the values of delivery.ordering.
var orderings = map[string]relay.Ordering{
	config.OrderingKey:       relay.Key,
	config.OrderingPipelined: relay.Pipelined,
	config.OrderingCommit:    relay.Commit,
	config.OrderingNone:      relay.None,
}

// Ordering returns the order in which the delivery line sends. It is that of delivery.ordering,
// except for a sink that appends a call as a whole: there the events of a key may go together, and
// none has to wait for the earlier one.
func Ordering(c *config.Config) relay.Ordering {
	o := orderings[c.Delivery.Ordering]
	if c.Sink.Driver.AppendsCalls && o == relay.Key {
		return relay.Pipelined
	}
	return o
}

// Replication returns the settings of the source. The caller sets NewLine and Hooks.
func Replication(c *config.Config, columns []string, log *zap.Logger) (source.Config, error) {
	url, err := c.Source.URL.Read(context.Background())
	if err != nil {
		return source.Config{}, ConfigError("source.url", err)
	}
	tables := make([]decode.Table, len(c.Source.Tables))
	for i, t := range c.Source.Tables {
		tables[i] = decode.Table{Schema: t.Schema, Name: t.Name, Mapping: columnMapping(t.Outbox)}
		if records := c.Sink.Compat.Records(); records != nil {
			tables[i].Mapping.Compat, tables[i].May, tables[i].Fits = true, records.Columns().Optional, records.Misfits
			tables[i].Mapping.Untimed = records.Columns().Untimed
		}
	}
	return source.Config{
		URL: url, Password: c.Source.Password.Read,
		Slot: c.Source.Slot, Publication: c.Source.Publication,
		Tables: tables, Columns: columns, Shapes: c.Sink.Compat.Records() != nil, Types: new(source.Types),
		Messages:         decode.Messages{Prefix: c.Source.MessagePrefix, Mapping: columnMapping(c.Outbox)},
		Create:           c.Source.Create,
		MaxEventBytes:    c.Source.MaxEventBytes,
		Deletes:          c.Retention.IsSet(),
		FailoverSlot:     c.Source.FailoverSlot,
		Advertise:        c.Admin.Advertise,
		WALSenderTimeout: c.Source.WALSenderTimeout,
		Guard:            c.Guard.Limits(),
		Grace:            c.Delivery.ShutdownGrace, Log: log,
	}, nil
}

// columnMapping says which columns of a row, or fields of a logical message, have the parts of an
// event.
func columnMapping(o config.Outbox) decode.Mapping {
	must := func(c config.Column) decode.Names { return decode.Names{Any: c.Names} }
	may := func(c config.Column) decode.Names { return decode.Names{Any: c.Names, Optional: !c.Written} }
	return decode.Mapping{
		ID: must(o.ID), Aggregate: must(o.Aggregate), Key: must(o.Key), Type: must(o.Type), Payload: must(o.Payload),
		Timestamp: may(o.Timestamp), Traceparent: may(o.Traceparent), Headers: may(o.HeadersColumn), Transaction: may(o.Transaction),
	}
}

// Outboxes returns the outbox tables as the lists of events and dead letters need them: to find the
// row of an event.
func Outboxes(c *config.Config) []dlq.Outbox {
	list := make([]dlq.Outbox, len(c.Source.Tables))
	for i, t := range c.Source.Tables {
		o := &t.Outbox
		list[i] = dlq.Outbox{
			Schema: t.Schema, Table: t.Name, ID: o.ID.Names, Transaction: o.Transaction.Names,
			Key: o.Key.Names, Aggregate: o.Aggregate.Names, Type: o.Type.Names, Timestamp: o.Timestamp.Names,
			Deletes: c.Retention.IsSet(),
		}
	}
	return list
}

// Retained returns the tables with a column for the rows' transaction. Of these tables it is known
// which rows are delivered; retention deletes those rows if it is configured.
func Retained(c *config.Config) (list []sent.Table) {
	for _, t := range c.Source.Tables {
		if t.Outbox.Transaction.Mapped() {
			list = append(list, sent.Table{Schema: t.Schema, Name: t.Name, ID: t.Outbox.ID.Names, Transaction: t.Outbox.Transaction.Names})
		}
	}
	return list
}

// Relay returns a relay as the status shows it, from the text with which it names itself. nil means
// that it is not known. It leaves out an address that could be more than a link to a server,
// because others may have written the text.
func Relay(text string) *ops.Relay {
	if text == "" {
		return nil
	}
	name, address := slot.SplitRelay(text)
	if config.AdvertiseFault(address) != nil {
		address = ""
	}
	return &ops.Relay{Name: name, Address: address}
}

// Relays returns relays as the status shows them; nil means that they are not known.
func Relays(texts []string) []ops.Relay {
	if texts == nil {
		return nil
	}
	list := make([]ops.Relay, len(texts))
	for i, text := range texts {
		list[i] = *Relay(text)
	}
	return list
}

// SlotSnapshot converts what was read of a slot to the form of metrics and status.
func SlotSnapshot(name string, s slot.SlotSeen) ops.Slot {
	return ops.Slot{
		Name: name, Checked: s.Checked, ConfirmedFlush: s.ConfirmedFlush, Restart: s.Restart, Current: s.Current,
		Active: s.Active(), WALStatus: s.WALStatus, SafeWALBytes: s.SafeWALBytes, SpilledBytes: s.SpilledBytes,
		Database: s.Database, Plugin: s.Plugin, Invalidation: s.Invalidation, BehindSince: s.BehindSince, Failover: s.Failover,
	}
}

// OpenTransactions converts the transactions that make a slot keep WAL to those of a status.
func OpenTransactions(list []source.OpenTransaction) []ops.OpenTransaction {
	out := make([]ops.OpenTransaction, len(list))
	for i, t := range list {
		out[i] = ops.OpenTransaction(t)
	}
	return out
}

// UnheldSlots converts slots that nobody holds to the form of metrics and status. nil, which means
// that they are not known, stays nil.
func UnheldSlots(list []slot.Unheld) (out []ops.UnheldSlot) {
	if list != nil {
		out = make([]ops.UnheldSlot, len(list))
	}
	for i, u := range list {
		out[i] = ops.UnheldSlot(u)
	}
	return out
}

// ConfigError is the error for a wrong key of the configuration. The process exits with code 2 for
// it.
func ConfigError(key string, err error) error {
	return &event.Stop{Code: event.ExitUsage, Reason: "config", What: key, Err: err}
}

// Traceparents returns the traceparent for an event's message. A nil function means that the
// message has the traceparent of the row.
type Traceparents func(ev *event.Event, buf []byte) []byte

// OpenSink makes the configured sink for the relay, and returns it with the extra columns that it
// needs. connected is called at each new connection to the broker; it may be nil.
func OpenSink(c *config.Config, log *zap.Logger, m *metrics.Metrics, trace Traceparents, connected func()) (sink.Opened, []string, error) {
	o := sinkOpening(c, log)
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

// OfflineSink makes the configured sink for callers that only ask where it would send events. It is
// never run and reaches no broker.
func OfflineSink(c *config.Config, log *zap.Logger) (sink.Opened, error) {
	out, err := c.Sink.Settings.Open(sinkOpening(c, log))
	if err != nil {
		return nil, sinkError(c, err)
	}
	return out, nil
}

// sinkOpening collects the parts of the configuration that every sink gets.
func sinkOpening(c *config.Config, log *zap.Logger) *sink.Opening {
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
	if events, binding := &c.Sink.CloudEvents, c.Sink.Driver.CloudEvents; events.IsSet() {
		o.Taken = binding.Taken
		o.Encoder = func(columns []string, plain sink.Encoder) (sink.Encoder, error) {
			return events.Encoder(binding, columns, plain)
		}
	}
	return o
}

// sinkError names the section of the sink in an error that is not an event.Stop. A Stop already
// says where the fault is.
func sinkError(c *config.Config, err error) error {
	if stop := (*event.Stop)(nil); errors.As(err, &stop) {
		return err
	}
	return ConfigError("sink."+c.Sink.Driver.Name, err)
}

// SinkColumns returns the extra columns that the sink needs. With a profile they are the profile's;
// otherwise they are those of the sink's settings, the headers and the templates.
func SinkColumns(c *config.Config) []string {
	if records := c.Sink.Compat.Records(); records != nil {
		return records.Columns().Extra
	}
	named := append(c.Sink.Settings.Columns(), c.Sink.CloudEvents.Columns()...)
	for _, h := range c.Outbox.Headers {
		named = append(named, h.Column)
	}
	for _, t := range c.Sink.Settings.Templates() {
		named = append(named, t.Columns()...)
	}
	slices.Sort(named)
	return slices.Compact(named)
}

// SinkState returns the state of the sink's connections, and the paused destinations that events
// wait for.
func SinkState(d *sink.Driver, s sink.Opened) (out ops.Sink, paused []ops.Paused) {
	now := s.Status()
	return ops.Sink{
		Kind: d.Name, Up: now.Up, Why: now.Why,
		Connections: now.Connections, Channels: now.Channels, PendingConfirms: now.PendingConfirms, Ignored: now.Ignored, Found: now.Found,
	}, Paused(now.Waiting, nil)
}

// Paused converts paused destinations to the form of the status. waiting has the number of events
// that wait for each; a destination that is not in it was not counted.
func Paused(list []sink.Paused, waiting map[sink.Place]dlq.WaitingRows) (out []ops.Paused) {
	for _, p := range list {
		next := &p.NextProbe
		if next.IsZero() {
			next = nil
		}
		item := ops.Paused{Destination: p.Destination, Reason: string(p.Reason), Error: p.Text, Since: p.Since, NextProbe: next, Fix: p.Fix}
		if w, counted := waiting[p.Place]; counted {
			item.Events, item.OrMore = &w.Events, w.OrMore
			if !w.Oldest.IsZero() {
				item.Oldest = new(w.Oldest.UTC())
			}
		}
		out = append(out, item)
	}
	return out
}

// checkBroker checks whether the configured broker has what the relay needs.
func checkBroker(ctx context.Context, c *config.Config, log *zap.Logger) ([]sink.Finding, error) {
	o := sinkOpening(c, log)
	if c.DeadLetters.Mirror.IsSet() {
		mirror := c.MirrorRoute()
		o.Mirror = &mirror
	}
	found, err := c.Sink.Settings.Check(ctx, o)
	if err != nil {
		return nil, sinkError(c, err)
	}
	return found, nil
}

// brokerFindings converts a sink's findings to those of check. beside says that a relay runs
// meanwhile; then a finding may have another form for that case.
func brokerFindings(found []sink.Finding, beside bool) (lines []check.Finding) {
	for _, f := range found {
		if beside && f.Running != nil {
			f = *f.Running
		}
		level := check.LevelFail
		switch {
		case f.OK:
			level = check.LevelOK
		case f.Warn:
			level = check.LevelWarn
		}
		lines = append(lines, check.Finding{Name: f.Name, Level: level, Detail: f.Detail, Fix: f.Fix})
	}
	return lines
}

// The keys that log lines have.
const (
	logTime   = "time"
	logLevel  = "level"
	logName   = "logger"
	logMsg    = "msg"
	logCaller = zapcore.OmitKey
)

// Sampling of log lines: of the lines with one level and message linesPerSecond are written in a
// second, then every thenEvery-th. Without it a fault of a thousand destinations would be a
// thousand lines.
const (
	linesPerSecond = 10
	thenEvery      = 1000
)

// NewLogger makes the logger of the process. It writes to stderr, as JSON or in the form for
// people, and drops lines that come too often (see sampled). recent also gets the warnings and
// errors; nil means that they are not kept.
func NewLogger(c config.Log, recent *RecentLog) *zap.Logger {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		level = zapcore.InfoLevel // cannot happen: config accepts only names of levels
	}
	core := zapcore.NewCore(newEncoder(c.Format), logOutput(os.Stderr), level)
	if recent != nil {
		core = zapcore.NewTee(core, recent.core())
	}
	return zap.New(sampled(core), zap.ErrorOutput(logOutput(os.Stderr)))
}

// logOutput makes a file safe for the lines of a logger: they carry texts of brokers and of events,
// whose control characters are escaped.
func logOutput(w io.Writer) zapcore.WriteSyncer {
	return zapcore.Lock(zapcore.AddSync(printable.JSON(w)))
}

// sampled limits how many lines with one level and message are written in a second.
func sampled(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Second, linesPerSecond, thenEvery)
}

// newEncoder makes the encoder of log lines: JSON, or the form for people when format says so or
// stderr is a terminal.
func newEncoder(format string) zapcore.Encoder {
	keys := zapcore.EncoderConfig{
		TimeKey:        logTime,
		LevelKey:       logLevel,
		NameKey:        logName,
		MessageKey:     logMsg,
		CallerKey:      logCaller,
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeTime:     zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000000Z07:00"),
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: func(d time.Duration, out zapcore.PrimitiveArrayEncoder) { out.AppendString(d.String()) },
	}
	if format == "console" || format == config.LogFormatAuto && term.IsTerminal(int(os.Stderr.Fd())) {
		keys.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		keys.ConsoleSeparator = "  "
		return zapcore.NewConsoleEncoder(keys)
	}
	return zapcore.NewJSONEncoder(keys)
}
