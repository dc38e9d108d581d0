// The list of all configuration keys.

package config

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

const day = 24 * time.Hour

// fields is every key that exists, in the order of `config print`, with its type and its range.
// They are bound to the loader's configuration.
func (l *loader) fields() []setting.Key {
	c := l.cfg
	keys := []setting.Key{
		setting.Address("source.url", &c.Source.URL),
		setting.Password("source.password", &c.Source.Password),
		setting.Text("source.slot", &c.Source.Slot),
		setting.Text("source.publication", &c.Source.Publication),
		l.tablesKey("source.tables"),
		setting.Text("source.message_prefix", &c.Source.MessagePrefix),
		setting.Boolean("source.create", &c.Source.Create),
		setting.Limit("source.max_event_bytes", 64<<10, 1<<30, &c.Source.MaxEventBytes),
		setting.Choice("source.failover_slot", &c.Source.FailoverSlot, FailoverAuto, FailoverOn, FailoverOff),
		setting.Duration("source.wal_sender_timeout", time.Second, time.Hour, &c.Source.WALSenderTimeout),
	}
	keys = append(keys, l.outboxFields(&c.Outbox)...)
	keys = append(keys,
		setting.Choice("sink.compat.profile", &c.Sink.Compat.Profile, append([]string{""}, debezium.Profiles...)...),
		l.compatOptions("sink.compat.options"),
	)
	keys = append(keys, l.sinkFields()...)
	keys = append(keys,
		setting.Choice("delivery.ordering", &c.Delivery.Ordering, OrderingKey, OrderingPipelined, OrderingCommit, OrderingNone),
		setting.Integer("delivery.lanes", 1, 1024, &c.Delivery.Lanes),
		setting.Integer("delivery.max_in_flight", 1, 10_000_000, &c.Delivery.MaxInFlight),
		setting.Size("delivery.max_in_flight_bytes", 64<<10, 64<<30, &c.Delivery.MaxInFlightBytes),
		setting.Duration("delivery.confirm_timeout", 100*time.Millisecond, time.Hour, &c.Delivery.ConfirmTimeout),
		setting.Duration("delivery.shutdown_grace", 100*time.Millisecond, time.Hour, &c.Delivery.ShutdownGrace),

		setting.Integer("retry.max_attempts", 1, 1_000_000, &c.Retry.MaxAttempts),
		setting.Duration("retry.backoff", 10*time.Millisecond, day, &c.Retry.Backoff),
		setting.Duration("retry.max_backoff", 10*time.Millisecond, day, &c.Retry.MaxBackoff),
		setting.Duration("retry.destination_max_age", 0, 3650*day, &c.Retry.DestinationMaxAge),

		setting.Choice("dead_letters.on_dead_letter", &c.DeadLetters.OnDeadLetter, DeadLetterContinue, DeadLetterBlock),
	)
	for _, part := range drivers.PartKeys() {
		keys = append(keys, setting.Text("dead_letters.mirror."+part, c.DeadLetters.Mirror[part]))
	}
	return append(keys,
		setting.Duration("dead_letters.keep", time.Second, 3650*day, &c.DeadLetters.Keep),

		setting.SizeOrPercent("guard.defer_at", 1<<20, 1<<50, &c.Guard.DeferAt),
		setting.SizeOrNone("guard.max_bytes", 1<<20, 1<<50, &c.Guard.MaxBytes),
		setting.Choice("retention.mode", &c.Retention.Mode, RetentionNone, RetentionDelete),
		setting.Duration("retention.keep", 0, 3650*day, &c.Retention.Keep),

		setting.Text("admin.listen", &c.Admin.Listen),
		setting.Text("admin.metrics_listen", &c.Admin.MetricsListen),
		setting.Text("admin.socket", &c.Admin.Socket),
		setting.Text("admin.tls.cert", &c.Admin.TLS.Cert),
		setting.Text("admin.tls.key", &c.Admin.TLS.Key),
		setting.Text("admin.tls.ca", &c.Admin.TLS.CA),
		l.tokensKey("admin.tokens"),
		setting.Boolean("admin.show_payloads", &c.Admin.ShowPayloads),

		setting.Choice("log.level", &c.Log.Level, "debug", "info", "warn", "error"),
		setting.Choice("log.format", &c.Log.Format, "json", "console"),
	)
}

// sinkFields are the keys of the sinks that the loader has a section of.
func (l *loader) sinkFields() (keys []setting.Key) {
	for _, d := range drivers.All {
		section, ok := l.sections[d.Name]
		if !ok {
			continue
		}
		own := section.Keys()
		if len(own) == 0 {
			keys = append(keys, emptySection("sink."+d.Name))
		}
		for _, k := range own {
			k.Name = d.Section() + k.Name
			keys = append(keys, k)
		}
	}
	return keys
}

// emptySection is a sink without keys: naming it chooses it.
func emptySection(path string) setting.Key {
	return setting.Key{
		Name: path, Kind: document.Mapping, Form: setting.Form{"type": "object", "maxProperties": 0},
		Set: func(r *setting.Reader, path string, n *document.Node) {
			if n.Kind != document.Mapping || len(n.Entries) > 0 {
				r.Fault(n.Where, path, "has no keys; {} chooses it")
			}
		},
		Show: func() string { return "{}" },
	}
}
