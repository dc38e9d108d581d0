// Package config is the relay's configuration: one struct, its defaults, and a strict reader that
// reports every fault of the file and of the environment at once. It opens no connection.
package config

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/guard"
	"github.com/cdc-relay/cdc-relay/internal/sink"
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

	wrote map[string]*document.Node // by path: the values that the file or the environment gave
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
	Compat   Compat
	Driver   *sink.Driver  `json:"-"`
	Settings sink.Settings // the driver's own
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

// Log is the level and the form of the log on stderr.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // json, console
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
		Delivery: Delivery{
			Ordering:         OrderingKey,
			Lanes:            32,
			MaxInFlight:      10_000,
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
		Admin:       Admin{Listen: "127.0.0.1:9464", ShowPayloads: true},
		Log:         Log{Level: "info", Format: "json"},
	}
}

func columnNamed(name string) Column { return Column{Names: []string{name}} }
