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
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// Config is the configuration of a Consumer. Brokers and Topics must be given.
type Config struct {
	Brokers []string // "host:port" of some brokers: the others are found by them
	// Topics are those that the relay publishes to. One that does not exist is waited for.
	Topics []string
	// Group is the consumer group, by default the name of the service. A group that has no offset
	// for a partition starts with its first message.
	Group string
	// DeadLetterTopic is by default the name of the service and ".dlq".
	DeadLetterTopic string

	TLS  *tls.Config    // nil: no TLS
	SASL sasl.Mechanism // nil: no login

	// Partitions, ReplicationFactor and MaxMessageBytes are those of the topics that Declare makes. By
	// default the first two are the broker's own, and MaxMessageBytes is 8 MiB. It must be larger than
	// that of Topics, because a message grows by some headers.
	Partitions        int
	ReplicationFactor int
	MaxMessageBytes   int

	// SessionTimeout is how long the partitions of a process wait for it after it has died, by default
	// 30 seconds. Brokers refuse less than 6 seconds by default.
	SessionTimeout time.Duration
	// MaxInFlight and MaxInFlightBytes bound the messages of all partitions that a process has in its
	// handler or waiting for it, by default 1000 messages and 64 MiB. As much again is read ahead. A
	// message that takes long holds up only its key until this many later ones wait.
	MaxInFlight      int
	MaxInFlightBytes int
}

// Consumer receives the messages of a service. Its methods may be called concurrently.
type Consumer struct {
	in  *inbox.Transport
	cfg Config
	log *slog.Logger

	joined atomic.Bool // the group was joined once
}

// New makes a Consumer. It does not connect, and starts nothing. An error names the field of the
// configuration that is wrong.
func New(in *inbox.Inbox, cfg Config) (*Consumer, error) {
	if in == nil {
		return nil, errors.New("inbox/kafka: the inbox is nil")
	}
	c := &Consumer{in: in.Transport("kafka"), cfg: cfg}
	c.log = c.in.Log()
	c.cfg.complete(c.in.Service())
	if err := c.cfg.check(); err != nil {
		return nil, fmt.Errorf("inbox/kafka: %w", err)
	}
	for _, topic := range c.cfg.Topics {
		if c.isOwn(topic) || topic == c.cfg.DeadLetterTopic {
			return nil, fmt.Errorf("inbox/kafka: Topics has %s, which is a topic of the service itself", topic)
		}
	}
	return c, nil
}

func (cfg *Config) complete(service string) {
	cfg.Brokers, cfg.Topics = slices.Clone(cfg.Brokers), slices.Clone(cfg.Topics)
	if cfg.Group == "" {
		cfg.Group = service
	}
	if cfg.DeadLetterTopic == "" {
		cfg.DeadLetterTopic = service + ".dlq"
	}
	for value, preset := range map[*int]int{
		&cfg.Partitions: -1, &cfg.ReplicationFactor: -1, &cfg.MaxMessageBytes: 8 << 20,
		&cfg.MaxInFlight: 1000, &cfg.MaxInFlightBytes: 64 << 20,
	} {
		if *value == 0 {
			*value = preset
		}
	}
	if cfg.SessionTimeout == 0 {
		cfg.SessionTimeout = 30 * time.Second
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
	for i, topic := range append(slices.Clone(cfg.Topics), cfg.DeadLetterTopic) {
		if !topicName.MatchString(topic) || topic == "." || topic == ".." {
			return fmt.Errorf("%q is not the name of a topic", topic)
		}
		if slices.Contains(cfg.Topics[:min(i, len(cfg.Topics))], topic) {
			return fmt.Errorf("the topic %s is named twice", topic)
		}
	}
	return nil
}
