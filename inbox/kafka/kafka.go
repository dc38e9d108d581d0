// Package kafka receives messages from Kafka for an inbox.
//
// A consumer is a member of the service's consumer group. The offset of a message is committed only
// after its effect is. The service has topics of its own, which Declare makes: for messages that
// wait for another attempt, for those that a replay returns, and for dead letters. They are queues:
// what was handled is deleted from them.
//
// It does not skip what it cannot read. Run ends with a LostError when the broker no longer has the
// messages after the group's offset.
package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/wait"
)

// Config is the configuration of a Consumer. Brokers and Topics must be given.
type Config struct {
	// Brokers are some of the cluster's, each one "host:port": the others are found by them.
	Brokers []string
	// Topics are those that the relay publishes to. One that does not exist is waited for. The
	// consumer group is the name of the service: it begins with the first message of a partition.
	Topics []string

	// TLS is for brokers that want it; nil: no TLS. It is not changed.
	TLS *tls.Config
	// SASL logs in, such as plain.Mechanism or that of scram.Mechanism; nil: no login.
	SASL sasl.Mechanism

	// Partitions is how many each topic gets that Declare makes, by default as many as the broker
	// gives (num.partitions).
	Partitions int
	// ReplicationFactor is that of the topics that Declare makes, by default the largest of Topics.
	// With 1, retries and dead letters are lost with a broker's disk. Where none of Topics exists
	// yet it is the broker's (default.replication.factor).
	ReplicationFactor int
	// MaxMessageBytes is that of the topics that Declare makes, by default 8 MiB. It must be larger
	// than that of Topics, because a message that has failed gets some headers, up to 2 KiB.
	MaxMessageBytes int

	// SessionTimeout is how long the partitions of a process wait for it after it has died, by
	// default 10 seconds. Brokers refuse less than 6 seconds by default.
	SessionTimeout time.Duration
	// MaxInFlight is how many messages of all partitions a process may have in its handlers and
	// waiting for them, by default 1000. A message that takes long holds up only those of its
	// worker, until so many wait, or 100 times as many later ones of its partition are handled.
	MaxInFlight int
	// MaxInFlightBytes bounds their size, by default 64 MiB. About as much again is read ahead. A
	// batch of messages that takes more memory than this, and than 64 MiB, is not read: its
	// partition waits.
	MaxInFlightBytes int
}

// Consumer receives the messages of one service. Its methods may be called concurrently, but Run
// only once at a time.
type Consumer struct {
	in    *inbox.Transport
	cfg   Config
	group string // the consumer group: the name of the service
	log   *slog.Logger

	running    atomic.Int64  // handlers
	joined     atomic.Bool   // a partition was read once
	receiving  *wait.Journal // of sessions with the brokers
	processing *wait.Journal // of messages
}

// New makes a Consumer. It does not connect, and starts nothing. An error names the field of the
// configuration that is wrong.
func New(in *inbox.Inbox, cfg Config) (*Consumer, error) {
	if in == nil {
		return nil, errors.New("kafka: the inbox is nil")
	}
	c := &Consumer{in: in.Transport("kafka"), cfg: cfg}
	c.group, c.log = c.in.Service(), c.in.Log()
	c.receiving = wait.NewJournal(c.log, "messages are not received", "messages are received again")
	c.processing = wait.NewJournal(c.log, "processing stopped, it begins again with the first message that was not processed", "messages are processed again")
	c.cfg.complete()
	if err := c.cfg.check(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	for _, topic := range c.cfg.Topics {
		if c.isOwn(topic) || topic == c.deadLetterTopic() {
			return nil, fmt.Errorf("kafka: %s is a topic of the service itself", topic)
		}
	}
	return c, nil
}

func (cfg *Config) complete() {
	cfg.Brokers, cfg.Topics = slices.Clone(cfg.Brokers), slices.Clone(cfg.Topics)
	for value, preset := range map[*int]int{
		&cfg.Partitions: -1, &cfg.ReplicationFactor: -1, &cfg.MaxMessageBytes: 8 << 20,
		&cfg.MaxInFlight: 1000, &cfg.MaxInFlightBytes: 64 << 20,
	} {
		if *value == 0 {
			*value = preset
		}
	}
	if cfg.SessionTimeout == 0 {
		cfg.SessionTimeout = 10 * time.Second
	}
}

// topicName is what Kafka allows.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (cfg *Config) check() error {
	switch {
	case len(cfg.Brokers) == 0:
		return errors.New("Brokers is empty")
	case len(cfg.Topics) == 0:
		return errors.New("Topics is empty")
	case cfg.Partitions < -1, cfg.ReplicationFactor < -1, cfg.MaxMessageBytes < 0, cfg.MaxInFlight < 0, cfg.MaxInFlightBytes < 0:
		return errors.New("Partitions, ReplicationFactor, MaxMessageBytes, MaxInFlight or MaxInFlightBytes is negative")
	case cfg.SessionTimeout < time.Second:
		return fmt.Errorf("SessionTimeout is %s: want one second at least", cfg.SessionTimeout)
	}
	for _, broker := range cfg.Brokers {
		host, port, err := net.SplitHostPort(broker)
		if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || host == "" || strings.ContainsAny(host, "/, ") {
			return fmt.Errorf("the broker %q is not one host:port", broker)
		}
	}
	for i, topic := range cfg.Topics {
		if !topicName.MatchString(topic) || topic == "." || topic == ".." {
			return fmt.Errorf("%q is not the name of a topic", topic)
		}
		if slices.Contains(cfg.Topics[:i], topic) {
			return fmt.Errorf("the topic %s is named twice", topic)
		}
	}
	return nil
}
