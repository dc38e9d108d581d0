// Package rabbit publishes events to RabbitMQ: N connections of amqp091-go that this package keeps
// itself, one channel in confirm mode per lane, every message persistent and mandatory. The
// broker's answer to each event (confirm, nack, return, channel or connection exception) becomes a
// sink.Outcome.
package rabbit

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// Config says where to publish and how an event becomes a message. New copies it.
type Config struct {
	// URLs are amqp:// or amqps:// addresses of one cluster, tried in turn from a random one: the
	// first connection determines which, and one to another cluster is refused. User and password
	// in them are used when Credentials is nil.
	URLs []string
	// Credentials is asked at every connect, so that a changed secret is picked up.
	Credentials func() (user, password string, err error)
	// TLS is asked at every connect to an amqps address; nil means the system's roots. An empty
	// ServerName becomes the address's host.
	TLS func() (*tls.Config, error)

	Exchange, RoutingKey sink.Template
	// Columns are the extra columns in the order of Event.Columns; templates, headers and
	// properties name them.
	Columns []string
	// Headers are written when their column is not NULL.
	Headers []message.HeaderColumn
	// Profile makes the messages as Debezium Server does, instead of Exchange, RoutingKey, Headers
	// and properties; nil: no profile. The two templates are then its Templates, which are shown
	// instead of names that are made from keys.
	Profile *debezium.Options
	// CorrelationID, Priority and Expiration name the columns of these properties, "" for none.
	CorrelationID, Priority, Expiration string

	// Lanes is the number of lanes; lane i publishes on connection i % Connections.
	Lanes int
	// Connections is the number of connections; 0 means two, and there are never more than lanes.
	Connections int
	// Pipelined says that a call may carry several events of one ordering key.
	Pipelined bool
	// Declare declares a constant exchange (topic, durable) at every connect.
	Declare bool
	// ConfirmTimeout is how long the broker may take for a confirm while the connection is up and
	// not blocked.
	ConfirmTimeout time.Duration
	// LoginTimeout ends Run when the broker has refused the login for so long and no connection was
	// ever made.
	LoginTimeout time.Duration
	// Traceparent is what a message carries as its traceparent, of its own in buf[:0]; nil:
	// nothing. Without this function it is the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// ConnectionName is shown by the broker's management.
	ConnectionName string
	Log            *zap.Logger
	Hooks          Hooks
}

// Hooks are called on events that metrics count. All are optional, must not block and may be called
// concurrently.
type Hooks struct {
	// Connected is called before lanes publish on a connection; again says that it was up before.
	Connected   func(connection int, again bool)
	ChannelOpen func()
	// Confirms counts the broker's answers of one call. Returned ones are acked too, but are
	// counted as returned only.
	Confirms func(acks, nacks, returned, timeouts int)
	// HeaderDropped is called for a key of the headers column that has one of the relay's own
	// names. name is a constant.
	HeaderDropped func(name string)
}

// defaultConnections is enough for all lanes: a lane has a channel of its own, so connections add
// no order and hardly any speed. The second has its own socket, TLS records and reader on both
// sides, and keeps publishing when the first is lost.
const defaultConnections = 2

// defaults fills in what may be left out.
func (c *Config) defaults() {
	if c.Connections == 0 {
		c.Connections = defaultConnections
	}
	if c.ConfirmTimeout <= 0 {
		c.ConfirmTimeout = 30 * time.Second
	}
	if c.LoginTimeout <= 0 {
		c.LoginTimeout = time.Minute
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.ConnectionName == "" {
		c.ConnectionName = "cdc-relay"
	}
}

// validate reports every fault of the configuration at once.
func (c *Config) validate() error {
	var faults []error
	if len(c.URLs) == 0 {
		faults = append(faults, errors.New("no broker URL"))
	}
	for i, u := range c.URLs {
		if _, err := amqp.ParseURI(u); err != nil {
			// The URL may hold a password and some of the parser's errors quote it: name its place
			// instead.
			faults = append(faults, fmt.Errorf("broker URL %d of %d is not an amqp:// or amqps:// URL", i+1, len(c.URLs)))
		}
	}
	if c.Connections < 1 || c.Lanes < 1 {
		faults = append(faults, fmt.Errorf("%d connections and %d lanes: at least one of each is needed", c.Connections, c.Lanes))
	}
	for _, h := range c.Headers {
		if message.Reserved(h.Name) {
			faults = append(faults, fmt.Errorf("header %q is the relay's own", h.Name))
		}
		if h.Name == "" || len(h.Name) > message.MaxShortString {
			faults = append(faults, fmt.Errorf("header name %q has %d bytes, allowed are 1 to %d", h.Name, len(h.Name), message.MaxShortString))
		}
	}
	return errors.Join(faults...)
}

// messages are the options of the messages.
func (c *Config) messages() *message.Config {
	return &message.Config{
		Exchange: c.Exchange, RoutingKey: c.RoutingKey, Columns: c.Columns, Headers: c.Headers, Profile: c.Profile,
		CorrelationID: c.CorrelationID, Priority: c.Priority, Expiration: c.Expiration, Traceparent: c.Traceparent,
		HeaderDropped: c.Hooks.HeaderDropped,
	}
}
