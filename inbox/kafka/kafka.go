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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/inbox/internal/work"
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
	// ReplicationFactor is the replication factor of the topics that Declare makes, by default the
	// largest one of Topics. With 1, retries and dead letters are lost with a broker's disk. Where
	// none of Topics exists yet it is the broker's (default.replication.factor).
	ReplicationFactor int
	// MaxMessageBytes is the setting max.message.bytes of the topics that Declare makes, by default
	// 8 MiB. It must be larger than that of Topics, because a message that has failed gets some
	// headers, up to 2 KiB.
	MaxMessageBytes int

	// SessionTimeout is how long the partitions of a process wait for it after it has died, by
	// default 10 seconds. Brokers refuse less than 6 seconds by default.
	SessionTimeout time.Duration
	// MaxInFlight is how many messages of all partitions a process may have in its handlers and
	// waiting for them, by default 1000. A message that takes long holds up only those of its
	// worker, until as many wait, or 100 times as many later ones of its partition are handled.
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
	group string // the consumer group, which is the name of the service
	log   *slog.Logger

	running    atomic.Int64  // handlers that run
	joined     atomic.Bool   // a partition was read at least once
	receiving  *work.Journal // about sessions with the brokers
	processing *work.Journal // about the processing of messages
}

// New makes a Consumer. It does not connect, and starts nothing. An error names the field of the
// configuration that is wrong.
func New(in *inbox.Inbox, cfg Config) (*Consumer, error) {
	if in == nil {
		return nil, errors.New("kafka: the inbox is nil")
	}
	c := &Consumer{in: in.Transport("kafka"), cfg: cfg}
	c.group, c.log = c.in.Service(), c.in.Log()
	c.receiving = work.NewJournal(c.log, "messages are not received", "messages are received again")
	c.processing = work.NewJournal(c.log, "processing stopped, it begins again with the first message that was not processed", "messages are processed again")
	c.cfg.setDefaults()
	if err := c.cfg.validate(); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	for _, topic := range c.cfg.Topics {
		if c.isOwn(topic) || topic == c.deadLetterTopic() {
			return nil, fmt.Errorf("kafka: %s is a topic of the service itself", topic)
		}
	}
	return c, nil
}

func (cfg *Config) setDefaults() {
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

// topicName matches the names that Kafka allows.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (cfg *Config) validate() error {
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

// finalError is an error that waiting does not cure, so Run returns it.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// Run receives messages until ctx ends, and then returns nil: no more are begun, handlers that run
// may go on for inbox.Config.Grace, and what they have done is committed.
//
// It waits for brokers and for the database. It returns an error for what waiting does not cure: a
// LostError, topics of the service that differ from what Declare makes, a missing table, and a
// login or right that is refused before the first message was asked for.
//
// It also returns an error when handlers still run, because they do not obey the end of their
// context: do not close the pool before they have ended. Their messages come again.
func (c *Consumer) Run(ctx context.Context) error {
	err := c.runSessions(ctx)
	if n := c.running.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("stop: %d handlers still run after Grace and the end of their context: their messages come again", n))
	}
	return err
}

func (c *Consumer) runSessions(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.in.BrokerUp(false)
	if err := c.in.Ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	beside.Go(func() { c.in.Prune(ctx) })
	beside.Go(func() { c.reportWaiting(ctx) })
	for pause := (work.Backoff{}); ; {
		began := time.Now()
		err := c.runSession(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errTopics), errors.Is(err, errOvertaken):
			c.log.Info("the group is joined again", "reason", err)
			pause.Reset()
			continue
		case c.isFinal(err):
			return err
		}
		c.in.BrokerUp(false)
		c.receiving.Failed(err)
		if time.Since(began) > time.Minute {
			pause.Reset()
		}
		if pause.Pause(ctx) != nil {
			return nil
		}
	}
}

// runSession connects to the brokers, and is a member of the group until an error.
func (c *Consumer) runSession(ctx context.Context) error {
	if err := c.in.Ready(ctx); err != nil {
		return &finalError{err}
	}
	first := c.connect(nil)
	defer first.Close()
	if err := c.declareTopics(ctx, first); err != nil {
		return err
	}
	former, err := c.formerTopics(ctx, first)
	if err != nil {
		return err
	}
	k := c.connect(former)
	defer k.Close()
	// The topics for messages that fail are known before the first message is handled.
	if _, err := k.writers.Topics(ctx, append(c.ownTopics(), c.deadLetterTopic())); err != nil {
		return err
	}
	return c.runMembership(ctx, k)
}

// isFinal reports whether Run returns the error instead of trying again.
func (c *Consumer) isFinal(err error) bool {
	var final *finalError
	var lost *LostError
	return errors.As(err, &final) || errors.As(err, &lost) || isRefused(err) && !c.joined.Load()
}

// Declare makes the service's own topics where they do not exist: one for each level of retries,
// one for returned dead letters, and the dead-letter topic. One that exists is left as it is, and
// an error says what of it would lose messages.
func (c *Consumer) Declare(ctx context.Context) error {
	k := c.connect(nil)
	defer k.Close()
	if err := c.declareTopics(ctx, k); err != nil {
		return fmt.Errorf("declare the topics of %s: %w", c.in.Service(), err)
	}
	return nil
}
