// Package wiring turns the configuration into that of the parts: source, sinks, TLS, log. The relay
// and the commands use it. It starts nothing.
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
	"github.com/cdc-relay/cdc-relay/internal/replication"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

var orderings = map[string]relay.Ordering{
	config.OrderingKey:       relay.Key,
	config.OrderingPipelined: relay.Pipelined,
	config.OrderingCommit:    relay.Commit,
	config.OrderingNone:      relay.None,
}

// Ordering is what the line does for the order that is configured. To a sink that appends a call as
// a whole the events of a key go together: none waits for the earlier one.
func Ordering(c *config.Config) relay.Ordering {
	o := orderings[c.Delivery.Ordering]
	if c.Sink.Driver.AppendsCalls && o == relay.Key {
		return relay.Pipelined
	}
	return o
}

// Replication is the source side; NewLine and Hooks are left to run.
func Replication(c *config.Config, columns []string, log *zap.Logger) (source.Config, error) {
	url, err := c.Source.URL.Read()
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

func columnMapping(o config.Outbox) decode.Mapping {
	must := func(c config.Column) decode.Names { return decode.Names{Any: c.Names} }
	may := func(c config.Column) decode.Names { return decode.Names{Any: c.Names, Optional: !c.Written} }
	return decode.Mapping{
		ID: must(o.ID), Aggregate: must(o.Aggregate), Key: must(o.Key), Type: must(o.Type), Payload: must(o.Payload),
		Timestamp: may(o.Timestamp), Traceparent: may(o.Traceparent), Headers: may(o.HeadersColumn), Transaction: may(o.Transaction),
	}
}

// Outboxes are the tables in which an event's row can be.
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

// Retained are the tables whose delivered rows are known, and deleted if retention is configured.
func Retained(c *config.Config) (list []sent.Table) {
	for _, t := range c.Source.Tables {
		if t.Outbox.Transaction.Mapped() {
			list = append(list, sent.Table{Schema: t.Schema, Name: t.Name, ID: t.Outbox.ID.Names, Transaction: t.Outbox.Transaction.Names})
		}
	}
	return list
}

// Leader is who leads, as status shows it; nil: not known. An address that could be more than a
// link to a server is left out: whoever may write to cdc_relay.slots may have written it.
func Leader(text string) *ops.Leader {
	if text == "" {
		return nil
	}
	name, address := replication.SplitLeader(text)
	if config.AdvertiseFault(address) != nil {
		address = ""
	}
	return &ops.Leader{Name: name, Address: address}
}

// SlotSnapshot is a slot as metrics and status show it.
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

// UnheldSlots are slots that nobody holds, as metrics and status show them; nil stays nil.
func UnheldSlots(list []slot.Unheld) (out []ops.UnheldSlot) {
	if list != nil {
		out = make([]ops.UnheldSlot, len(list))
	}
	for i, u := range list {
		out[i] = ops.UnheldSlot(u)
	}
	return out
}

// ConfigError is an error of exit 2: a key of the configuration is wrong.
func ConfigError(key string, err error) error {
	return &event.Stop{Code: event.ExitUsage, Reason: "config", What: key, Err: err}
}

// Traceparents gives the traceparent of an event's message; nil: it is the row's.
type Traceparents func(ev *event.Event, buf []byte) []byte

// OpenSink makes the sink that is configured, and names the extra columns it needs. connected is
// called at each new connection; it may be nil.
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

// OfflineSink makes the sink that is configured, for what it knows without its broker: where events
// go. It is never run.
func OfflineSink(c *config.Config, log *zap.Logger) (sink.Opened, error) {
	out, err := c.Sink.Settings.Open(sinkOpening(c, log))
	if err != nil {
		return nil, sinkError(c, err)
	}
	return out, nil
}

// sinkOpening collects the parts of the configuration that the sink gets.
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
	}, Paused(now.Waiting, nil)
}

// Paused is what is shown of paused destinations; waiting are the events that were counted.
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

// checkBroker checks what the relay needs of the broker that is configured.
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

// brokerFindings are a sink's as lines of check. beside says that a relay runs.
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

// The keys that every log line has.
const (
	logTime   = "time"
	logLevel  = "level"
	logName   = "logger"
	logMsg    = "msg"
	logCaller = zapcore.OmitKey
)

// Of the lines of one level and message so many are written in a second, then every thousandth: a
// fault of a thousand destinations is not a thousand lines.
const (
	linesPerSecond = 10
	thenEvery      = 1000
)

// NewLogger writes to stderr, as JSON or for people. No line is logged per event that passes, and a
// repeated fault is logged when it changes. recent keeps its last lines; nil: nothing does.
// SetLevel changes the level it returns.
func NewLogger(c config.Log, recent *RecentLog) (*zap.Logger, zap.AtomicLevel) {
	level := zap.NewAtomicLevel()
	SetLevel(level, c)
	core := zapcore.NewCore(newEncoder(c.Format), logOutput(os.Stderr), level)
	if recent != nil {
		core = zapcore.NewTee(core, recent.core())
	}
	return zap.New(sampled(core), zap.ErrorOutput(logOutput(os.Stderr))), level
}

// SetLevel sets a logger's level.
func SetLevel(of zap.AtomicLevel, c config.Log) {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		level = zapcore.InfoLevel // never: config accepts only names of levels
	}
	of.SetLevel(level)
}

// logOutput is a file for the lines of a logger, which carry texts of brokers and of events.
func logOutput(w io.Writer) zapcore.WriteSyncer {
	return zapcore.Lock(zapcore.AddSync(printable.JSON(w)))
}

func sampled(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Second, linesPerSecond, thenEvery)
}

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
