// The list of all configuration keys, with their descriptions.

package config

import (
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

const day = 24 * time.Hour

// fields is every key that exists, in the order of `config print`, with its type, its range and its
// description. They are bound to the loader's configuration.
//
// A new key is a field of Config with its default, an entry below and a run of
// `go test ./internal/config -run TestPage -rewrite`, which writes docs/configuration.md.
func (l *loader) fields() []setting.Key {
	c := l.cfg
	return slices.Concat(
		l.sourceFields(&c.Source),
		l.outboxFields(&c.Outbox),
		l.compatFields(&c.Sink.Compat),
		l.sinkFields(),
		c.Delivery.fields(),
		c.Retry.fields(),
		c.DeadLetters.fields(),
		c.Guard.fields(),
		c.Retention.fields(),
		l.adminFields(&c.Admin),
		c.Log.fields(),
	)
}

func (l *loader) sourceFields(s *Source) []setting.Key {
	return []setting.Key{
		setting.Address("source.url", &s.URL).
			Doc("Where PostgreSQL is: a libpq URL or a `key=value` string.",
				"`PG*` variables, the password file and the service file work as in psql, and can take its place. Of several hosts (`postgres://a:5432,b:5432/shop`) the relay uses the one that accepts writes."),
		setting.Password("source.password", &s.Password).
			Doc("The password. It replaces one in the address.",
				"Usually `${file:/run/secrets/...}`. Without either: `PGPASSWORD` or the password file."),
		setting.Text("source.slot", &s.Slot).
			Doc("The replication slot: 1 to 63 of `a-z`, `0-9` and `_`."),
		setting.Text("source.publication", &s.Publication).
			Doc("The publication. You cannot change it for a slot that is in use."),
		l.tablesKey("source.tables").
			Doc("The outbox tables: `name`, `schema.name` or `{name: ..., KEY: ...}`.",
				"`KEY` is a key of the section `outbox`, except `headers`, for this table alone. Name a partitioned table by its parent. `[]` together with `source.message_prefix` relays messages only."),
		setting.Text("source.message_prefix", &s.MessagePrefix).
			Doc("Also relay the logical messages that have this prefix.",
				"The section `outbox` names the members of a message: [without a table](outbox.md#without-a-table)."),
		setting.Boolean("source.create", &s.Create).
			Doc("Create a missing schema, publication and slot at the first start.",
				"A slot that existed before is never created again. `false`: the relay creates nothing, and `cdc-relay init` only the schema."),
		setting.Limit("source.max_event_bytes", 64<<10, 1<<30, &s.MaxEventBytes).
			Doc("The largest row that is held in memory.",
				"A larger row or message becomes a dead letter without its values over 4 KiB. A replay reads the row from its table: [large rows](dead-letters.md#rows-over-sourcemax_event_bytes). What counts is the number of bytes that PostgreSQL sends: two for each byte of a `bytea`. Without a limit, [memory](running.md#sizing) grows with the largest row."),
		setting.Choice("source.failover_slot", &s.FailoverSlot, FailoverAuto, FailoverOn, FailoverOff).
			Doc("Whether standby servers keep a copy of the slot.",
				"`auto`: a slot that the relay creates on PostgreSQL 17 or newer is a [failover slot](postgresql.md#failover-slots-and-promotion). `on`: an existing slot becomes one too, and an older server is an error. `off`: a new slot is not one, and an existing slot stays as it is."),
		setting.Duration("source.wal_sender_timeout", time.Second, time.Hour, &s.WALSenderTimeout).
			Doc("After this much silence either side ends the connection.",
				"So a cut connection, and the leader change after it, take longer with a higher value. The relay waits longer for a server that is busy and sends nothing."),
	}
}

func (l *loader) compatFields(c *Compat) []setting.Key {
	return []setting.Key{
		setting.Choice("sink.compat.profile", &c.Profile, append([]string{""}, debezium.Profiles...)...).
			Doc("Send [Debezium's records](#sinkcompat)."),
		l.compatOptions("sink.compat.options").
			Doc("Debezium's own options, by their own names. Only with a profile."),
	}
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
			keys = append(keys, emptySection("sink."+d.Name).Doc(d.Does))
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

func (d *Delivery) fields() []setting.Key {
	return []setting.Key{
		setting.Choice("delivery.ordering", &d.Ordering, OrderingKey, OrderingPipelined, OrderingCommit, OrderingNone).
			Doc("Which [order](guarantees.md#order) is kept."),
		setting.Integer("delivery.lanes", 1, 1024, &d.Lanes).
			Doc("How many ordered lanes there are.",
				"On RabbitMQ each publishes on [a channel](rabbitmq.md#channels-and-connections). `ordering: commit` uses one. On Kafka each partition is a lane, and it is an error to write this key."),
		setting.Integer("delivery.max_in_flight", 1, 10_000_000, &d.MaxInFlight).
			Doc("The [in-flight budget](glossary.md), in events."),
		setting.Size("delivery.max_in_flight_bytes", 64<<10, 64<<30, &d.MaxInFlightBytes).
			Doc("The in-flight budget, in bytes.", "One larger event at a time is admitted in addition."),
		setting.Duration("delivery.confirm_timeout", 100*time.Millisecond, time.Hour, &d.ConfirmTimeout).
			Doc("Time for the broker's confirm, while the broker is not blocked."),
		setting.Duration("delivery.shutdown_grace", 100*time.Millisecond, time.Hour, &d.ShutdownGrace).
			Doc("How long a stop may take."),
	}
}

func (r *Retry) fields() []setting.Key {
	return []setting.Key{
		setting.Integer("retry.max_attempts", 1, 1_000_000, &r.MaxAttempts).
			Doc("Attempts of an event that is itself at fault.",
				"After the last one it becomes a dead letter if its exchange (Kafka: its partition) has confirmed another event since the first attempt. If not, it becomes one after `retry.destination_max_age`. An outage or a paused destination uses up no attempt."),
		setting.Duration("retry.backoff", 10*time.Millisecond, day, &r.Backoff).
			Doc("The pause before the second attempt, at most.",
				"Each next pause may be twice as long. The relay waits a random part of it."),
		setting.Duration("retry.max_backoff", 10*time.Millisecond, day, &r.MaxBackoff).
			Doc("The longest pause between two attempts."),
		setting.Duration("retry.destination_max_age", 0, 3650*day, &r.DestinationMaxAge).
			Doc("How long a destination may refuse its events.",
				"Then they become dead letters. The time starts again at each confirm of the destination, at a restart and at a leader change. Time without an answer does not count, as in an outage of the broker, except for what `allow` excludes (`not_allowed`). While 10,000 destinations are paused (5,000 for `not_allowed`), others have no limit. `0`: no limit."),
	}
}

func (d *DeadLetters) fields() []setting.Key {
	keys := []setting.Key{
		setting.Choice("dead_letters.on_dead_letter", &d.OnDeadLetter, DeadLetterContinue, DeadLetterBlock).
			Doc("What later events of its ordering key do.",
				"`continue`: they are sent. `block`: they wait until it is replayed or discarded."),
	}
	for _, part := range drivers.PartKeys() {
		keys = append(keys, setting.Text("dead_letters.mirror."+part, d.Mirror[part]).
			Doc(drivers.WithPart(part).Broker+": "+strings.ReplaceAll(part, "_", " ")+" for a copy of each dead letter."))
	}
	return append(keys, setting.Duration("dead_letters.keep", time.Second, 3650*day, &d.Keep).
		Doc("After this time, replayed and discarded dead letters are purged."))
}

func (g *Guard) fields() []setting.Key {
	return []setting.Key{
		setting.SizeOrPercent("guard.defer_at", 1<<20, 1<<50, &g.DeferAt).
			Doc("Defer events when the slot keeps this much WAL and the broker is away.",
				"A size such as `2GiB`, at least 1 MiB, or a percentage of `max_slot_wal_keep_size` such as `25%`. A percentage needs that setting to be limited. Empty: no guard."),
		setting.SizeOrNone("guard.max_bytes", 1<<20, 1<<50, &g.MaxBytes).
			Doc("Defer nothing more when the relay's own tables have this size.",
				"A size such as `10GiB`, for `cdc_relay.retry` and `cdc_relay.dead_letter` of all slots in the database, with their indexes. What is in flight counts too. So the least is `delivery.max_in_flight_bytes` and 1 KiB for each of `delivery.max_in_flight`, and a quarter more: 33 MiB by default."),
	}
}

func (r *Retention) fields() []setting.Key {
	return []setting.Key{
		setting.Choice("retention.mode", &r.Mode, RetentionNone, RetentionDelete).
			Doc("`delete`: the leader deletes delivered rows of the outbox tables.",
				"Each table needs the column `outbox.transaction` with its index. Without it `check` fails, and the relay exits with 2; `init --add-transaction-column --print` shows the SQL."),
		setting.Duration("retention.keep", 0, 3650*day, &r.Keep).
			Doc("How long a row stays after its delivery.", "`0`: it is deleted soon after that."),
	}
}

func (l *loader) adminFields(a *Admin) []setting.Key {
	return []setting.Key{
		setting.Text("admin.listen", &a.Listen).
			Doc("`host:port` of the [HTTP server](reference.md#http).",
				"Port 0 takes a free port, which the log names."),
		setting.Text("admin.metrics_listen", &a.MetricsListen).
			Doc("`host:port` for `/metrics`, which is then only there, and for probes. Without TLS."),
		setting.Text("admin.socket", &a.Socket).
			Doc("Path of a Unix socket for the commands on the same host. Linux only.",
				"Root and the relay's own user may do everything there, without a token."),
		setting.Text("admin.tls.cert", &a.TLS.Cert).
			Doc("PEM file with the certificate of `admin.listen`.",
				"The port then speaks only TLS. The relay reads these files again when they change."),
		setting.Text("admin.tls.key", &a.TLS.Key).
			Doc("PEM file with its key. Empty: in the file of `cert`."),
		setting.Text("admin.tls.ca", &a.TLS.CA).
			Doc("PEM file of a CA. Clients need a certificate signed by it, and a token."),
		l.tokensKey("admin.tokens").
			Doc("Who may use the API: a list of `{name, role, value}`.",
				"Role `read` may read, `operate` may also change. Every change is recorded with the name. Write the value as `${file:/path}`: `cdc-relay init` creates that file. In a variable: `NAME:ROLE:VALUE,...`. Without tokens and `admin.socket` the API answers nobody."),
		setting.Boolean("admin.show_payloads", &a.ShowPayloads).
			Doc("`false`: the commands and the API show no payload."),
	}
}

func (g *Log) fields() []setting.Key {
	return []setting.Key{
		setting.Choice("log.level", &g.Level, "debug", "info", "warn", "error").
			Doc("The lowest level in [the log](metrics.md#the-log)."),
		setting.Choice("log.format", &g.Format, "json", "console").
			Doc("The form of its lines. They go to stderr."),
	}
}
