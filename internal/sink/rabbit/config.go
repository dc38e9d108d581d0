// Package rabbit publishes events to RabbitMQ: N connections of amqp091-go that this package keeps
// itself, one channel in confirm mode per lane, every message persistent and mandatory. The
// broker's answer to each event (confirm, nack, return, channel or connection exception) becomes a
// sink.Outcome.
package rabbit

import (
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/message"
)

// Config says where to publish and how an event becomes a message.
type Config struct {
	conn.Dialer // the first connection determines the cluster; one to another is refused
	message.Config

	// Lanes is the number of lanes; lane i publishes on connection i % Connections.
	Lanes int
	// Connections is the number of connections; 0 means two, and there are never more than lanes.
	Connections int
	// Declare declares a constant exchange, durable, at the first connection.
	Declare      bool
	ExchangeType string // "": topic
	// Bindings are declared for a constant exchange: see topology.
	Bindings   []Binding
	Unroutable Unroutable
	// LoginTimeout ends Run when the broker has refused the login for so long and no connection was
	// ever made; 0 means a minute.
	LoginTimeout time.Duration
	Log          *zap.Logger

	// The rest is called for metrics. Each is optional, must not block, and may be called
	// concurrently.

	// Connected is called before lanes publish on a connection; again says that it was up before.
	Connected   func(again bool)
	ChannelOpen func()
	// Confirms counts the broker's answers of one call. Returned ones are acked too, but are
	// counted as returned only.
	Confirms func(acks, nacks, returned, timeouts int)
}

// defaultConnections is enough for all lanes: a lane has a channel of its own, so connections add
// no order and hardly any speed. The second has its own socket, TLS records and reader on both
// sides, and keeps publishing when the first is lost.
const defaultConnections = 2
