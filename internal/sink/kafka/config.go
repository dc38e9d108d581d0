// The configuration of the sink.

package kafka

import (
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

// Config says where to publish and how an event becomes a record. The functions in it are optional,
// must not block and may be called concurrently.
type Config struct {
	conn.Options
	record.Config

	// Brokers are host:port of brokers of one cluster, the first to ask. The others are learnt from
	// their answers.
	Brokers []string
	// Compression is none, gzip, snappy, lz4 or zstd; "" is none.
	Compression string
	// OneLane has one lane for all events: commit order over all keys, one call at a time in all.
	OneLane bool
	// ConfirmTimeout is how long a broker may take to answer, and how long a partition may be
	// without a leader or without enough replicas while others confirm; 30 s unless set.
	ConfirmTimeout time.Duration
	Log            *zap.Logger

	// Connected is called when a connection to a node is open; again says that there was one
	// before.
	Connected func(again bool)
	// Confirms counts the brokers' answers by event. Returned is 0 on Kafka; a timeout is an answer
	// that did not come.
	Confirms func(acks, nacks, returned, timeouts int)
}

// defaults fills in what may be left out.
func (c *Config) defaults() {
	if c.ConfirmTimeout <= 0 {
		c.ConfirmTimeout = 30 * time.Second
	}
	if c.ClientID == "" {
		c.ClientID = "cdc-relay"
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
}

// client are the options of the client.
func (c *Config) client() client.Options {
	return client.Options{
		Options: c.Options, Brokers: c.Brokers, ConfirmTimeout: c.ConfirmTimeout, Log: c.Log, OnConnected: c.Connected,
	}
}
