// The configuration of the sink, and its hooks.

package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/batch"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/client"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/conn"
	"github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

// Config says where to publish and how an event becomes a record. New copies it.
type Config struct {
	// Brokers are host:port of brokers of one cluster, the first to ask. The others are learnt from
	// their answers.
	Brokers []string
	// SASL is asked at every connect, so that a changed secret is picked up; nil means no login.
	SASL func() (*conn.SASL, error)
	// TLS is asked at every connect; nil means plaintext. An empty ServerName becomes the broker's
	// host.
	TLS func() (*tls.Config, error)

	Topic sink.Template
	// Columns are the extra columns in the order of Event.Columns; the topic and the headers name
	// them.
	Columns []string
	// Headers are written when their column is not NULL.
	Headers []record.HeaderColumn
	// Profile makes the records as Debezium does, instead of Topic, Headers and the relay's own
	// headers; nil: no profile. Topic is then one of its Templates, and shown instead of names that
	// are made from keys.
	Profile *debezium.Options
	// Compression is none, gzip, snappy, lz4 or zstd; "" is none.
	Compression string

	// OneLane has one lane for all events: commit order over all keys, one call at a time in all.
	OneLane bool
	// ConfirmTimeout is how long a broker may take to answer, and how long a partition may be
	// without a leader while others confirm.
	ConfirmTimeout time.Duration
	// LoginTimeout ends Run when the brokers have refused the login for so long and no connection
	// was ever made.
	LoginTimeout time.Duration
	// Traceparent is what a message carries as its traceparent, of its own in buf[:0]; nil:
	// nothing. Without this function it is the row's.
	Traceparent func(ev *event.Event, buf []byte) []byte
	// ClientID is the client.id that brokers log and set quotas for.
	ClientID string
	Log      *zap.Logger
	Hooks    Hooks
}

// Hooks are called on events that metrics count. All are optional, must not block and may be called
// concurrently.
type Hooks struct {
	// Connected is called when a connection to a node is open; again says that there was one
	// before.
	Connected func(node string, again bool)
	// Confirms counts the brokers' answers by event. Returned is 0 on Kafka; a timeout is an answer
	// that did not come.
	Confirms func(acks, nacks, returned, timeouts int)
	// HeaderDropped is called for a key of the headers column that has one of the relay's own
	// names.
	HeaderDropped func(name string)
}

// defaults fills in what may be left out.
func (c *Config) defaults() {
	if c.ConfirmTimeout <= 0 {
		c.ConfirmTimeout = 30 * time.Second
	}
	if c.LoginTimeout <= 0 {
		c.LoginTimeout = time.Minute
	}
	if c.ClientID == "" {
		c.ClientID = "cdc-relay"
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
}

// validate reports every fault of the configuration at once.
func (c *Config) validate() error {
	var faults []error
	if len(c.Brokers) == 0 {
		faults = append(faults, errors.New("no broker"))
	}
	for i, addr := range c.Brokers {
		host, port, err := net.SplitHostPort(addr)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
			// Somebody may have put a user and a password in front: name the address's place
			// instead of quoting it.
			faults = append(faults, fmt.Errorf("broker %d of %d is not host:port", i+1, len(c.Brokers)))
		}
	}
	if name, constant := c.Topic.Constant(); constant && c.Profile == nil {
		if fault := record.CheckTopic([]byte(name)); fault != nil {
			faults = append(faults, fmt.Errorf("topic %q: %s", name, fault.Text))
		}
	}
	for _, h := range c.Headers {
		if h.Name == "" {
			faults = append(faults, errors.New("a header without a name"))
		}
		if record.Reserved(h.Name) {
			faults = append(faults, fmt.Errorf("header %q is the relay's own", h.Name))
		}
	}
	if _, err := batch.ParseCompression(c.Compression); err != nil {
		faults = append(faults, err)
	}
	if c.ConfirmTimeout.Milliseconds() > math.MaxInt32 {
		faults = append(faults, fmt.Errorf("a confirm timeout of %v, the protocol carries 2147483647 ms", c.ConfirmTimeout))
	}
	return errors.Join(faults...)
}

// client are the options of the client, with what may be left out.
func (c Config) client() client.Options {
	c.defaults()
	return client.Options{
		Options: conn.Options{SASL: c.SASL, TLS: c.TLS, ClientID: c.ClientID},
		Brokers: c.Brokers, ConfirmTimeout: c.ConfirmTimeout, LoginTimeout: c.LoginTimeout,
		Log: c.Log, OnConnected: c.Hooks.Connected,
	}
}

// records are the options of the records.
func (c *Config) records() *record.Config {
	return &record.Config{
		Topic: c.Topic, Columns: c.Columns, Headers: c.Headers, Profile: c.Profile, Traceparent: c.Traceparent,
		HeaderDropped: c.Hooks.HeaderDropped,
	}
}
