// Package config is the relay's configuration: one struct, its defaults, and a strict reader that
// reports every fault of the file and of the environment at once. It opens no connection.
package config

import (
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/cloudevents"
	"github.com/cdc-relay/cdc-relay/internal/sink/drivers"
)

// Config is the effective configuration: the defaults, overridden by the file, overridden by the
// environment.
type Config struct {
	Source   Source
	Outbox   Outbox
	Sink     Sink
	Delivery Delivery
	Retry    Retry

	DeadLetters DeadLetters
	Guard       Guard
	Retention   Retention
	Admin       Admin
	Log         Log

	NotRead []string // sentences about variables that look like keys, but are not; written by Load

	wrote map[string]*setting.Node // by path: the values that the file or the environment gave
}

// Source is the PostgreSQL database, its slot and its publication.
type Source struct {
	URL              setting.Secret // libpq URL or key=value; "": PG*, passfile and service file
	Password         setting.Secret // "" leaves it to URL, PGPASSWORD or the passfile
	Slot             string
	Publication      string
	Tables           []Table // may be empty when there is a MessagePrefix
	MessagePrefix    string  // of logical messages that are events, mapped by Outbox; "": none
	MaxEventBytes    int64   // a larger row becomes a dead letter; 0: no limit
	Create           bool
	FailoverSlot     string // FailoverAuto, FailoverOn or FailoverOff
	WALSenderTimeout time.Duration
}

// Table is one outbox table and the mapping of its columns.
type Table struct {
	Schema, Name string
	Outbox       Outbox // complete: the outbox section with this table's own keys over it
}

// String is the table as schema.name.
func (t Table) String() string { return t.Schema + "." + t.Name }

// Column names the column a part of the message is read from.
type Column struct {
	Names   []string // the first that exists and is not NULL is used; empty: not mapped
	Written bool     // by the user: the table must have one of Names, even if optional
}

// Mapped is false for a part that no column feeds.
func (c Column) Mapped() bool { return len(c.Names) > 0 }

// Outbox maps the columns of an outbox table to the parts of a message.
type Outbox struct {
	ID, Payload          Column // always mapped
	Aggregate, Key, Type Column
	Timestamp            Column // not mapped: the commit time
	// unused if it is a default that the table lacks; so are HeadersColumn and Transaction
	Traceparent   Column
	Headers       []setting.NamedColumn
	HeadersColumn Column
	Transaction   Column
}

// Sink is the one sink that is configured.
type Sink struct {
	Compat Compat
	// CloudEvents says whether messages are CloudEvents, and what their attributes are made of.
	CloudEvents cloudevents.Settings
	Driver      *sink.Driver  `json:"-"`
	Settings    sink.Settings // the driver's own
}

// The values of Delivery.Ordering.
const (
	OrderingKey       = "key"
	OrderingPipelined = "pipelined"
	OrderingCommit    = "commit"
	OrderingNone      = "none"
)

// The values of Source.FailoverSlot.
const (
	FailoverAuto = "auto"
	FailoverOn   = "on"
	FailoverOff  = "off"
)

// Delivery bounds what is in flight and says what order is kept.
type Delivery struct {
	Ordering         string
	Lanes            int
	MaxInFlight      int // events
	MaxInFlightBytes int64
	ConfirmTimeout   time.Duration
	ShutdownGrace    time.Duration
}

// Retry says what becomes of events that the broker refuses.
type Retry struct {
	MaxAttempts       int // of an event that is itself at fault, transiently
	Backoff           time.Duration
	MaxBackoff        time.Duration
	DestinationMaxAge time.Duration // 0: events of a refusing destination wait without a limit
}

// The values of DeadLetters.OnDeadLetter.
const (
	DeadLetterContinue = "continue"
	DeadLetterBlock    = "block"
)

// DeadLetters says what happens around events that were given up.
type DeadLetters struct {
	OnDeadLetter string // what later events of a dead one's key do
	Mirror       Mirror
	Keep         time.Duration // age at which replayed and discarded ones are purged
}

// Mirror is where a copy of each dead letter is published: the parts of a route, by their keys.
type Mirror map[string]*string

// The values of Retention.Mode.
const (
	RetentionNone   = "none"
	RetentionDelete = "delete"
)

// Retention says what becomes of rows of the outbox tables that are delivered.
type Retention struct {
	Mode string
	Keep time.Duration // least age of a row that is deleted; 0: as soon as it is delivered
}

// IsSet is false when the outbox tables are left alone.
func (r Retention) IsSet() bool { return r.Mode != RetentionNone }

// IsSet is false when there is no mirror.
func (m Mirror) IsSet() bool {
	for _, value := range m {
		if *value != "" {
			return true
		}
	}
	return false
}

// MirrorRoute is the route of the copies. A part that is not given has an empty name.
func (c *Config) MirrorRoute() event.Route {
	parts := map[string]string{}
	for key, value := range c.DeadLetters.Mirror {
		parts[key] = *value
	}
	return c.Sink.Driver.RouteOf(parts)
}

// Guard is the disk guard: while the broker is away and the slot keeps DeferAt of WAL, events are
// deferred into the retry table, until the relay's own tables have MaxBytes. Both are 0 without a
// guard.
type Guard struct {
	DeferAt  setting.Share
	MaxBytes int64
}

// IsSet reports whether there is a guard.
func (g Guard) IsSet() bool { return g.DeferAt.IsSet() }

// Limits are both as the guard wants them.
func (g Guard) Limits() guard.Limits {
	return guard.Limits{DeferAt: g.DeferAt.Bytes, Percent: g.DeferAt.Percent, MaxBytes: g.MaxBytes}
}

// LogFormatAuto is the value of Log.Format for console on a terminal, and json elsewhere.
const LogFormatAuto = "auto"

// Log is the level and the form of the log on stderr.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // LogFormatAuto, json, console
}

// Default is the configuration before the file and the environment are read. It has no sink: that
// is the one thing the user must choose.
func Default() *Config {
	mirror := Mirror{}
	for _, key := range drivers.PartKeys() {
		mirror[key] = new(string)
	}
	return &Config{
		Source: Source{
			Slot:             "cdc_relay",
			Publication:      "cdc_relay",
			Create:           true,
			FailoverSlot:     FailoverAuto,
			WALSenderTimeout: 20 * time.Second,
		},
		Outbox: Outbox{
			ID:            columnNamed("id"),
			Aggregate:     columnNamed("aggregatetype"),
			Key:           columnNamed("aggregateid"),
			Type:          columnNamed("type"),
			Payload:       columnNamed("payload"),
			Traceparent:   columnNamed("traceparent"),
			HeadersColumn: columnNamed("headers"),
			Transaction:   columnNamed("tx"),
		},
		Sink: Sink{CloudEvents: cloudevents.Default()},
		Delivery: Delivery{
			Ordering:         OrderingKey,
			Lanes:            32,
			MaxInFlight:      2000, // more made no broker of bench/ faster, only the relay larger
			MaxInFlightBytes: 16 << 20,
			ConfirmTimeout:   30 * time.Second,
			ShutdownGrace:    20 * time.Second,
		},
		Retry: Retry{
			MaxAttempts:       20,
			Backoff:           time.Second,
			MaxBackoff:        10 * time.Minute,
			DestinationMaxAge: 7 * 24 * time.Hour,
		},
		DeadLetters: DeadLetters{OnDeadLetter: DeadLetterContinue, Mirror: mirror, Keep: 720 * time.Hour},
		Retention:   Retention{Mode: RetentionNone, Keep: 72 * time.Hour},
		Admin:       Admin{Listen: "127.0.0.1:8464", ShowPayloads: true},
		Log:         Log{Level: "info", Format: LogFormatAuto},
	}
}

func columnNamed(name string) Column { return Column{Names: []string{name}} }

// The list of all configuration keys, with their descriptions.

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
		c.Sink.CloudEvents.Keys(),
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
		Name: path, Kind: setting.Mapping, Form: setting.Form{"type": "object", "maxProperties": 0},
		Set: func(r *setting.Reader, path string, n *setting.Node) {
			if n.Kind != setting.Mapping || len(n.Entries) > 0 {
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
				"An outage or a paused destination uses up no attempt. After the last attempt the relay looks whether the same exchange (Kafka: the same partition) has confirmed any other event since the first one. If it has, the fault is the event's, which becomes a dead letter. If it has not, the fault may be the exchange's, and the event waits for `retry.destination_max_age`."),
		setting.Duration("retry.backoff", 10*time.Millisecond, day, &r.Backoff).
			Doc("The pause before the second attempt, at most.",
				"Each next pause may be twice as long. The relay waits a random part of it."),
		setting.Duration("retry.max_backoff", 10*time.Millisecond, day, &r.MaxBackoff).
			Doc("The longest pause between two attempts."),
		setting.Duration("retry.destination_max_age", 0, 3650*day, &r.DestinationMaxAge).
			Doc("How long a destination may refuse its events.",
				"Then they become dead letters. The time starts again when the destination confirms an event, at a restart and at a leader change. The clock stands still while the broker does not answer at all. For events that `allow` excludes (`not_allowed`) it always runs, since the broker is not asked. While 10,000 destinations are paused (5,000 for `not_allowed`), others have no limit. `0`: no limit."),
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
			Doc(drivers.ByRoutePart(part).Broker+": "+strings.ReplaceAll(part, "_", " ")+" for a copy of each dead letter."))
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
				"A size such as `10GiB`, for `cdc_relay.retry` and `cdc_relay.dead_letter` of all slots in the database, with their indexes. What is in flight counts too. So the least is `delivery.max_in_flight_bytes` and 1 KiB for each of `delivery.max_in_flight`, and a quarter more: 23 MiB by default."),
	}
}

func (r *Retention) fields() []setting.Key {
	return []setting.Key{
		setting.Choice("retention.mode", &r.Mode, RetentionNone, RetentionDelete).
			Doc("`delete`: the leader deletes delivered rows of the outbox tables.",
				"Each table needs the column `outbox.transaction` with its index. Without it `check` fails, and the relay exits with 2; `init --add-transaction-column` prints the SQL."),
		setting.Duration("retention.keep", 0, 3650*day, &r.Keep).
			Doc("How long a row stays after its delivery.", "`0`: it is deleted soon after that."),
	}
}

func (l *loader) adminFields(a *Admin) []setting.Key {
	return []setting.Key{
		setting.Text("admin.listen", &a.Listen).
			Doc("`host:port` of the [HTTP server](reference.md#http).",
				"Port 0 takes a free port, which the log names. Empty: there is none."),
		setting.Text("admin.metrics_listen", &a.MetricsListen).
			Doc("`host:port` for `/metrics`, which is then only there, and for probes. Without TLS."),
		setting.Text("admin.socket", &a.Socket).
			Doc("Path of a Unix socket for the commands on the same host. Linux only.",
				"Root and the relay's own user may do everything there, without a token."),
		setting.Text("admin.advertise", &a.Advertise).
			Doc("The address by which others reach this relay, as `https://HOST:PORT`.",
				"A relay writes it into `cdc_relay.slots` when it becomes the leader, and gives it to the leader while it stands by. The status of each names the others with it, and the console links them. Empty: only their hosts are named."),
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
		setting.Choice("log.format", &g.Format, LogFormatAuto, "json", "console").
			Doc("The form of its lines. They go to stderr.", "`auto`: `console` on a terminal, else `json`."),
	}
}

// outboxFields are the keys of the outbox section, which a table's own entry may have too, read
// into o.
func (l *loader) outboxFields(o *Outbox) []setting.Key {
	return []setting.Key{
		l.columnKey("outbox.id", &o.ID).
			Doc("The event's id. Its text becomes `message_id` (Kafka: the header `id`)."),
		l.columnKey("outbox.aggregate", &o.Aggregate).
			Doc("What kind of thing the event is about. Part of the ordering key."),
		l.columnKey("outbox.key", &o.Key).
			Doc("Which thing of that kind it is about. Part of the ordering key.",
				"An event whose key is NULL, empty or not mapped has no order."),
		l.columnKey("outbox.type", &o.Type).
			Doc("What happened. Its text becomes the message's type."),
		l.columnKey("outbox.payload", &o.Payload).
			Doc("The body, byte for byte: `json`, `jsonb`, `text`, `varchar`, `char` or `bytea`."),
		l.columnKey("outbox.timestamp", &o.Timestamp).
			Doc("The message's time: `timestamptz` or `timestamp`. Empty: the time of the commit."),
		l.columnKey("outbox.transaction", &o.Transaction).
			Doc("The transaction that wrote the row: `xid8` or `bigint`.",
				"With its default, trigger and index (`cdc-relay init --add-transaction-column`). By it the relay knows [which rows were delivered](outbox.md#which-rows-were-delivered): `retention` and `events show` need it. Used where the table has it. Empty: nothing is recorded."),
		l.columnKey("outbox.traceparent", &o.Traceparent).
			Doc("[W3C trace context](metrics.md#tracing), sent as the header `traceparent`."),
		setting.Columns("outbox.headers", &o.Headers, setting.Form{"minLength": 1, "maxLength": maxHeaderName, "not": setting.Form{"enum": sink.ReservedHeaders}}, l.checkHeader).
			Doc("Headers by name, each from a column, as text. NULL leaves the header out."),
		l.columnKey("outbox.headers_column", &o.HeadersColumn).
			Doc("A `jsonb` or `json` object of headers."),
	}
}

func (l *loader) columnKey(path string, at *Column) setting.Key {
	return setting.Key{
		Name: path, Kind: setting.List, Form: columnNames(),
		Set:  func(_ *setting.Reader, path string, n *setting.Node) { *at = l.column(path, n) },
		Show: func() string { return showColumn(*at) },
	}
}

// columnNames is a name, "" for none, or a list of names.
func columnNames() setting.Form {
	return setting.AnyOf(setting.AnyText(), setting.Form{"type": "array", "items": setting.Form{"type": setting.PlainTypes, "minLength": 1}, "uniqueItems": true})
}

func showColumn(c Column) string {
	switch len(c.Names) {
	case 0:
		return `""`
	case 1:
		return setting.Quote(c.Names[0])
	}
	return setting.InlineList(c.Names, setting.Quote)
}
