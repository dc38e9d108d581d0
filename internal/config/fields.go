// The list of all configuration keys.

package config

import (
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

const day = 24 * time.Hour

// fields is every key that exists, in the order of `config print`, with its type and its range.
var fields = slices.Concat([]field{
	secret("source.url", showAddress, func(c *Config) *Secret { return &c.Source.URL }),
	secret("source.password", showPassword, func(c *Config) *Secret { return &c.Source.Password }),
	text("source.slot", func(c *Config) *string { return &c.Source.Slot }),
	text("source.publication", func(c *Config) *string { return &c.Source.Publication }),
	tables("source.tables"),
	text("source.message_prefix", func(c *Config) *string { return &c.Source.MessagePrefix }),
	boolean("source.create", func(c *Config) *bool { return &c.Source.Create }),
	duration("source.wal_sender_timeout", time.Second, time.Hour, func(c *Config) *time.Duration { return &c.Source.WALSenderTimeout }),
}, outboxFields, []field{
	choice("sink.compat.profile", func(c *Config) *string { return &c.Sink.Compat.Profile }, append([]string{""}, debezium.Profiles...)...),
	compatOptions("sink.compat.options"),
	secrets("sink.rabbitmq.url", showAddress, func(c *Config) *[]Secret { return &c.Sink.RabbitMQ.URLs }),
	secret("sink.rabbitmq.username", showPassword, func(c *Config) *Secret { return &c.Sink.RabbitMQ.Username }),
	secret("sink.rabbitmq.password", showPassword, func(c *Config) *Secret { return &c.Sink.RabbitMQ.Password }),
	templated("sink.rabbitmq.exchange", func(c *Config) *sink.Template { return &c.Sink.RabbitMQ.Exchange }),
	templated("sink.rabbitmq.routing_key", func(c *Config) *sink.Template { return &c.Sink.RabbitMQ.RoutingKey }),
	properties("sink.rabbitmq.properties"),
	boolean("sink.rabbitmq.declare", func(c *Config) *bool { return &c.Sink.RabbitMQ.Declare }),
	text("sink.rabbitmq.tls.ca", func(c *Config) *string { return &c.Sink.RabbitMQ.TLS.CA }),
	text("sink.rabbitmq.tls.cert", func(c *Config) *string { return &c.Sink.RabbitMQ.TLS.Cert }),
	text("sink.rabbitmq.tls.key", func(c *Config) *string { return &c.Sink.RabbitMQ.TLS.Key }),
	text("sink.rabbitmq.tls.server_name", func(c *Config) *string { return &c.Sink.RabbitMQ.TLS.ServerName }),
	brokers("sink.kafka.brokers"),
	templated("sink.kafka.topic", func(c *Config) *sink.Template { return &c.Sink.Kafka.Topic }),
	choice("sink.kafka.compression", func(c *Config) *string { return &c.Sink.Kafka.Compression }, "none", "gzip", "snappy", "lz4", "zstd"),
	boolean("sink.kafka.tls.enabled", func(c *Config) *bool { return &c.Sink.Kafka.TLS.Enabled }),
	text("sink.kafka.tls.ca", func(c *Config) *string { return &c.Sink.Kafka.TLS.CA }),
	text("sink.kafka.tls.cert", func(c *Config) *string { return &c.Sink.Kafka.TLS.Cert }),
	text("sink.kafka.tls.key", func(c *Config) *string { return &c.Sink.Kafka.TLS.Key }),
	text("sink.kafka.tls.server_name", func(c *Config) *string { return &c.Sink.Kafka.TLS.ServerName }),
	choice("sink.kafka.sasl.mechanism", func(c *Config) *string { return &c.Sink.Kafka.SASL.Mechanism }, "", "plain", "scram-sha-256", "scram-sha-512"),
	secret("sink.kafka.sasl.username", showPassword, func(c *Config) *Secret { return &c.Sink.Kafka.SASL.Username }),
	secret("sink.kafka.sasl.password", showPassword, func(c *Config) *Secret { return &c.Sink.Kafka.SASL.Password }),
	emptySection("sink.stdout"),

	choice("delivery.ordering", func(c *Config) *string { return &c.Delivery.Ordering },
		OrderingKey, OrderingPipelined, OrderingCommit, OrderingNone),
	integer("delivery.lanes", 1, 1024, func(c *Config) *int { return &c.Delivery.Lanes }),
	integer("delivery.max_in_flight", 1, 10_000_000, func(c *Config) *int { return &c.Delivery.MaxInFlight }),
	size("delivery.max_in_flight_bytes", 64<<10, 64<<30, func(c *Config) *int64 { return &c.Delivery.MaxInFlightBytes }),
	duration("delivery.confirm_timeout", 100*time.Millisecond, time.Hour, func(c *Config) *time.Duration { return &c.Delivery.ConfirmTimeout }),
	duration("delivery.shutdown_grace", 100*time.Millisecond, time.Hour, func(c *Config) *time.Duration { return &c.Delivery.ShutdownGrace }),

	integer("retry.max_attempts", 1, 1_000_000, func(c *Config) *int { return &c.Retry.MaxAttempts }),
	duration("retry.backoff", 10*time.Millisecond, day, func(c *Config) *time.Duration { return &c.Retry.Backoff }),
	duration("retry.max_backoff", 10*time.Millisecond, day, func(c *Config) *time.Duration { return &c.Retry.MaxBackoff }),
	duration("retry.destination_max_age", 0, 3650*day, func(c *Config) *time.Duration { return &c.Retry.DestinationMaxAge }),

	choice("dead_letters.on_dead_letter", func(c *Config) *string { return &c.DeadLetters.OnDeadLetter }, DeadLetterContinue, DeadLetterBlock),
	text("dead_letters.mirror.exchange", func(c *Config) *string { return &c.DeadLetters.Mirror.Exchange }),
	text("dead_letters.mirror.routing_key", func(c *Config) *string { return &c.DeadLetters.Mirror.RoutingKey }),
	text("dead_letters.mirror.topic", func(c *Config) *string { return &c.DeadLetters.Mirror.Topic }),
	duration("dead_letters.keep", time.Second, 3650*day, func(c *Config) *time.Duration { return &c.DeadLetters.Keep }),

	text("admin.listen", func(c *Config) *string { return &c.Admin.Listen }),
	secret("admin.token", showPassword, func(c *Config) *Secret { return &c.Admin.Token }),
	secret("admin.read_token", showPassword, func(c *Config) *Secret { return &c.Admin.ReadToken }),
	boolean("admin.show_payloads", func(c *Config) *bool { return &c.Admin.ShowPayloads }),

	choice("log.level", func(c *Config) *string { return &c.Log.Level }, "debug", "info", "warn", "error"),
	choice("log.format", func(c *Config) *string { return &c.Log.Format }, "json", "console"),
})

// outboxFields are the keys of the outbox section, which a table's own entry may have too.
var outboxFields = []field{
	column("outbox.id", func(o *Outbox) *Column { return &o.ID }),
	column("outbox.aggregate", func(o *Outbox) *Column { return &o.Aggregate }),
	column("outbox.key", func(o *Outbox) *Column { return &o.Key }),
	column("outbox.type", func(o *Outbox) *Column { return &o.Type }),
	column("outbox.payload", func(o *Outbox) *Column { return &o.Payload }),
	column("outbox.timestamp", func(o *Outbox) *Column { return &o.Timestamp }),
	column("outbox.traceparent", func(o *Outbox) *Column { return &o.Traceparent }),
	outboxHeaders("outbox.headers"),
	column("outbox.headers_column", func(o *Outbox) *Column { return &o.HeadersColumn }),
}
