// Package config is the relay's configuration: one struct, its defaults, and a strict reader that
// reports every fault of the file and of the environment at once. It opens no connection.
package config

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/config/document"
	"github.com/cdc-relay/cdc-relay/internal/sink"
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
	Admin       Admin
	Log         Log

	wrote map[string]*document.Node // by path: the values that the file or the environment gave
}

// Source is the PostgreSQL database, its slot and its publication.
type Source struct {
	URL              Secret // libpq URL or key=value; "": PG*, passfile and service file
	Password         Secret // "" leaves it to URL, PGPASSWORD or the passfile
	Slot             string
	Publication      string
	Tables           []Table // may be empty when there is a MessagePrefix
	MessagePrefix    string  // of logical messages that are events, mapped by Outbox; "": none
	Create           bool
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
	// unused if it is a default that the table lacks; so are the two below
	Traceparent   Column
	Headers       []NamedColumn
	HeadersColumn Column
}

// NamedColumn feeds one message header or property from a column, which every table must have.
type NamedColumn struct {
	Name   string
	Column Column // of exactly one name
}

// Sink holds exactly one broker; the others are nil.
type Sink struct {
	Compat   Compat
	RabbitMQ *RabbitMQ
	Kafka    *Kafka
	Stdout   *Stdout
}

// RabbitMQ is where and how to publish with AMQP 0-9-1.
type RabbitMQ struct {
	URLs               []Secret // the nodes of one cluster, at least one
	Username, Password Secret   // used when the addresses carry none: see Credentials
	Exchange           sink.Template
	RoutingKey         sink.Template
	Properties         []NamedColumn
	Declare            bool
	TLS                TLS

	userInURL bool // of every address, or of none
}

// Credentials reads the user and the password again at every call. It is nil when the addresses
// carry them.
func (r *RabbitMQ) Credentials() func() (user, password string, err error) {
	if r.userInURL {
		return nil
	}
	return credentials("sink.rabbitmq.", r.Username, r.Password)
}

func credentials(section string, username, password Secret) func() (user, pass string, err error) {
	return func() (user, pass string, err error) {
		if user, err = username.Read(); err != nil {
			return "", "", fmt.Errorf("read %susername: %w", section, err)
		}
		if pass, err = password.Read(); err != nil {
			return "", "", fmt.Errorf("read %spassword: %w", section, err)
		}
		return user, pass, nil
	}
}

// TLS names PEM files, which are read at every connect; "" is the system's authorities, or no
// client certificate.
type TLS struct {
	CA, Cert, Key string // an empty Key is in the file of Cert
	ServerName    string // "" is the host of the address
}

// Stdout writes JSON lines.
type Stdout struct{}

// The values of Delivery.Ordering.
const (
	OrderingKey       = "key"
	OrderingPipelined = "pipelined"
	OrderingCommit    = "commit"
	OrderingNone      = "none"
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

// Mirror is where a copy of each dead letter is published: an exchange and routing key, or a topic.
type Mirror struct {
	Exchange, RoutingKey string
	Topic                string
}

// IsSet is false when there is no mirror.
func (m Mirror) IsSet() bool { return m != Mirror{} }

// Admin is the HTTP listener for metrics, health and the API.
type Admin struct {
	Listen       string // host:port
	Token        Secret // "" is no token; either token is good for reading
	ReadToken    Secret
	ShowPayloads bool // by the commands and the API
}

// Log is the level and the form of the log on stderr.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // json, console
}

// Default is the configuration before the file and the environment are read. It has no sink: that
// is the one thing the user must choose.
func Default() *Config {
	return &Config{
		Source: Source{
			Slot:             "cdc_relay",
			Publication:      "cdc_relay",
			Create:           true,
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
			DestinationMaxAge: 72 * time.Hour,
		},
		DeadLetters: DeadLetters{OnDeadLetter: DeadLetterContinue, Keep: 720 * time.Hour},
		Admin:       Admin{Listen: "127.0.0.1:9464", ShowPayloads: true},
		Log:         Log{Level: "info", Format: "json"},
	}
}

func defaultRabbitMQ() *RabbitMQ {
	return &RabbitMQ{
		URLs:       []Secret{plain("amqp://localhost:5672/")},
		Username:   plain("guest"),
		Password:   plain("guest"),
		Exchange:   mustTemplate("outbox.events"),
		RoutingKey: mustTemplate("{aggregate}.{type}"),
	}
}

// mustTemplate is one of the defaults above.
func mustTemplate(s string) sink.Template {
	t, err := sink.ParseTemplate(s)
	if err != nil {
		panic(err)
	}
	return t
}

func columnNamed(name string) Column { return Column{Names: []string{name}} }
