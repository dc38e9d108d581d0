// Package kafkalink is a way to the brokers of Kafka: what inbox/kafka needs of kafka-go, each call
// with a time limit, and what kafka-go does not have.
package kafkalink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/cdc-relay/cdc-relay/internal/kafkaguard"
)

const (
	dialTimeout = 10 * time.Second
	// RequestTimeout bounds each call. kafka-go waits for an answer for ever, also when the context
	// of the call has ended.
	RequestTimeout = 30 * time.Second
	// metadataTTL bounds how long a change of a leader goes unnoticed, and how long a request for
	// metadata may take: kafka-go uses it for both.
	metadataTTL = 4 * time.Second
)

// Config says where the brokers are.
type Config struct {
	Brokers         []string
	ClientID        string
	TLS             *tls.Config
	SASL            sasl.Mechanism
	Read            []string // the topics that are read
	Write           []string // those that are only written
	MaxMessageBytes int
	ReadBytes       int // of memory that the messages of one answer take; FetchLimit at least
}

// Link is an open way to the brokers.
type Link struct {
	Client *kafkago.Client
	Dialer *kafkago.Dialer
	Read   []string // as in Config

	brokers   []string
	transport *kafkago.Transport
	writer    *kafkago.Writer
	cut       context.CancelFunc
}

// Open makes a way to the brokers. Nothing is dialled before it is used.
func Open(cfg Config) *Link {
	open, cut := context.WithCancel(context.Background())
	address := kafkago.TCP(cfg.Brokers...)
	dialer := &kafkaguard.Dialer{
		TLS: cfg.TLS, Limit: max(cfg.ReadBytes, kafkaguard.FetchLimit), More: []protocol.Message{&deleteResponse{}},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, open, network, address)
		},
	}
	login := kafkaguard.Login(cfg.SASL)
	l := &Link{cut: cut, brokers: slices.Clone(cfg.Brokers), Read: slices.Clone(cfg.Read)}
	l.transport = &kafkago.Transport{
		Dial: dialer.DialContext, DialTimeout: dialTimeout, MetadataTTL: metadataTTL, ClientID: cfg.ClientID, SASL: login,
		MetadataTopics: slices.Concat(cfg.Read, cfg.Write),
	}
	l.Client = &kafkago.Client{Addr: address, Transport: l.transport, Timeout: RequestTimeout}
	l.writer = &kafkago.Writer{
		Addr: address, Transport: l.transport, RequiredAcks: kafkago.RequireAll,
		Balancer:  &kafkago.Murmur2Balancer{}, // as Java's producers choose the partition of a key
		BatchSize: 1, BatchBytes: int64(cfg.MaxMessageBytes), MaxAttempts: 3, WriteTimeout: RequestTimeout, ReadTimeout: RequestTimeout,
	}
	l.Dialer = &kafkago.Dialer{ClientID: cfg.ClientID, Timeout: dialTimeout, SASLMechanism: login, DialFunc: dialer.DialContext}
	return l
}

// dial connects, and closes the connection when open ends: a request of kafka-go that waits for its
// answer does not end with its context.
func dial(ctx, open context.Context, network, address string) (net.Conn, error) {
	if open.Err() != nil {
		return nil, open.Err()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &cuttable{Conn: conn, forget: context.AfterFunc(open, func() { conn.Close() })}, nil
}

// cuttable is a connection that is closed from outside.
type cuttable struct {
	net.Conn
	forget func() bool
}

func (c *cuttable) Close() error {
	c.forget()
	return c.Conn.Close()
}

// Reach connects to one of the brokers and logs in, and returns why it cannot: the client's calls
// only say that no broker is available.
func (l *Link) Reach(ctx context.Context) (err error) {
	for _, broker := range l.brokers {
		var conn *kafkago.Conn
		if conn, err = l.Dialer.DialContext(ctx, "tcp", broker); err == nil {
			return conn.Close()
		}
		err = fmt.Errorf("connect to broker %s: %w", broker, err)
	}
	return err
}

// AllTopics are those of the cluster that the login may see.
func (l *Link) AllTopics(ctx context.Context) (topics []string, err error) {
	for _, broker := range l.brokers {
		if topics, err = l.topicsOf(ctx, broker); err == nil {
			break
		}
	}
	return topics, err
}

func (l *Link) topicsOf(ctx context.Context, broker string) ([]string, error) {
	conn, err := l.Dialer.DialContext(ctx, "tcp", broker)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", broker, err)
	}
	defer conn.Close() //nolint:errcheck // what was read is there
	if err := conn.SetDeadline(time.Now().Add(RequestTimeout)); err != nil {
		return nil, err
	}
	all, err := conn.ReadPartitions()
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var topics []string
	for _, p := range all {
		if !slices.Contains(topics, p.Topic) {
			topics = append(topics, p.Topic)
		}
	}
	return topics, nil
}

// Cut closes all connections.
func (l *Link) Cut() { l.cut() }

// Close ends the way to the brokers. It does not wait for them: kafka-go goes on with a message
// that nobody waits for any more, and its writer would wait for the end of that.
func (l *Link) Close() {
	l.cut()
	_ = l.writer.Close() //nolint:errcheck // it reports nothing: each message had its own answer
	l.transport.CloseIdleConnections()
}

// Write returns nil once all in-sync replicas have the message. After an error it may be there or
// not.
func (l *Link) Write(ctx context.Context, m kafkago.Message) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	err := l.writer.WriteMessages(ctx, m)
	var each kafkago.WriteErrors
	if errors.As(err, &each) && len(each) == 1 {
		err = each[0]
	}
	return err
}
