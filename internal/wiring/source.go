// Package wiring turns the configuration into that of the parts: source, sinks, TLS, log. The relay
// and the commands use it. It starts nothing.
package wiring

import (
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/relay"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/survey"
	"github.com/cdc-relay/cdc-relay/internal/sent"
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
		tables[i] = decode.Table{Schema: t.Schema, Name: t.Name, Mapping: mapping(t.Outbox)}
		if records := c.Sink.Compat.Records(); records != nil {
			tables[i].Mapping.Compat, tables[i].May, tables[i].Fits = true, records.Columns().Optional, records.Misfits
			tables[i].Mapping.Untimed = records.Columns().Untimed
		}
	}
	return source.Config{
		URL: url, Password: c.Source.Password.Read,
		Slot: c.Source.Slot, Publication: c.Source.Publication,
		Tables: tables, Columns: columns, Shapes: c.Sink.Compat.Records() != nil, Types: new(source.Types),
		Messages:         decode.Messages{Prefix: c.Source.MessagePrefix, Mapping: mapping(c.Outbox)},
		Create:           c.Source.Create,
		MaxEventBytes:    c.Source.MaxEventBytes,
		Deletes:          c.Retention.IsSet(),
		FailoverSlot:     c.Source.FailoverSlot,
		WALSenderTimeout: c.Source.WALSenderTimeout,
		Guard:            c.Guard.Limits(),
		Grace:            c.Delivery.ShutdownGrace, Log: log,
	}, nil
}

func mapping(o config.Outbox) decode.Mapping {
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
		list[i] = dlq.Outbox{Schema: t.Schema, Table: t.Name, ID: t.Outbox.ID.Names, Transaction: t.Outbox.Transaction.Names}
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

// SlotSnapshot is a slot as metrics and status show it.
func SlotSnapshot(name string, s survey.Slot) ops.Slot {
	return ops.Slot{
		Name: name, Checked: s.Checked, ConfirmedFlush: s.ConfirmedFlush, Restart: s.Restart, Current: s.Current,
		Active: s.Active(), WALStatus: s.WALStatus, SafeWALBytes: s.SafeWALBytes, SpilledBytes: s.SpilledBytes,
		Database: s.Database, Plugin: s.Plugin, Invalidation: s.Invalidation, BehindSince: s.BehindSince, Failover: s.Failover,
	}
}

// OpenTransactions are what a slot keeps WAL for, as status shows them.
func OpenTransactions(list []source.OpenTransaction) []ops.OpenTransaction {
	out := make([]ops.OpenTransaction, len(list))
	for i, t := range list {
		out[i] = ops.OpenTransaction(t)
	}
	return out
}

// UnheldSlots are slots that nobody holds, as metrics and status show them; nil stays nil.
func UnheldSlots(list []survey.Unheld) (out []ops.UnheldSlot) {
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
