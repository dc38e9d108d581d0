// Ways to the brokers: kafka-go's clients with one configuration.

package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const (
	dialTimeout    = 10 * time.Second
	requestTimeout = 30 * time.Second
	// metadataTTL bounds how long a change of a leader goes unnoticed, and how long a request for
	// metadata may take: kafka-go uses it for both.
	metadataTTL = 2 * time.Second
)

// cluster is an open way to the brokers. Each caller of connect has its own.
type cluster struct {
	transport *kafkago.Transport
	client    *kafkago.Client
	writer    *kafkago.Writer
	dialer    *kafkago.Dialer // for the group
	topics    []string        // that are read
	cut       context.CancelFunc
}

// connect makes a way to the brokers, for the topics of the configuration and more. Nothing is dialled
// before it is used.
func (c *Consumer) connect(more []string) *cluster {
	open, cut := context.WithCancel(context.Background())
	address := kafkago.TCP(c.cfg.Brokers...)
	k := &cluster{cut: cut, topics: slices.Concat(c.cfg.Topics, c.ownTopics(), more)}
	k.transport = &kafkago.Transport{
		DialTimeout: dialTimeout, MetadataTTL: metadataTTL, ClientID: c.in.Service(), TLS: c.cfg.TLS, SASL: c.cfg.SASL,
		MetadataTopics: append(slices.Clone(k.topics), c.cfg.DeadLetterTopic),
	}
	k.client = &kafkago.Client{Addr: address, Transport: k.transport, Timeout: requestTimeout}
	k.writer = &kafkago.Writer{
		Addr: address, Transport: k.transport, RequiredAcks: kafkago.RequireAll,
		Balancer:  &kafkago.Murmur2Balancer{}, // as Java's producers choose the partition of a key
		BatchSize: 1, BatchBytes: int64(c.cfg.MaxMessageBytes), MaxAttempts: 3, WriteTimeout: requestTimeout, ReadTimeout: requestTimeout,
	}
	k.dialer = &kafkago.Dialer{
		ClientID: c.in.Service(), Timeout: dialTimeout, TLS: c.cfg.TLS, SASLMechanism: c.cfg.SASL,
		DialFunc: func(ctx context.Context, network, address string) (net.Conn, error) { return dial(ctx, open, network, address) },
	}
	return k
}

// dial connects, and closes the connection when open ends: the group's calls have no context.
func dial(ctx, open context.Context, network, address string) (net.Conn, error) {
	if open.Err() != nil {
		return nil, open.Err()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &groupConn{Conn: conn, forget: context.AfterFunc(open, func() { conn.Close() })}, nil
}

// groupConn is a connection of the group.
type groupConn struct {
	net.Conn
	forget func() bool
}

func (c *groupConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

func (k *cluster) close() {
	k.cut()
	_ = k.writer.Close() //nolint:errcheck // it reports nothing: each message had its own answer
	k.transport.CloseIdleConnections()
}

// ends returns the first offset of each partition of a topic, and the one after the last.
func (k *cluster) ends(ctx context.Context, topic string, partitions []int) (map[int]ends, error) {
	ask := make([]kafkago.OffsetRequest, 0, 2*len(partitions))
	for _, p := range partitions {
		ask = append(ask, kafkago.FirstOffsetOf(p), kafkago.LastOffsetOf(p))
	}
	answer, err := k.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: ask}})
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	found := map[int]ends{}
	for _, p := range answer.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("list offsets of %s-%d: %w", topic, p.Partition, p.Error)
		}
		found[p.Partition] = ends{p.FirstOffset, p.LastOffset}
	}
	for _, p := range partitions {
		if _, ok := found[p]; !ok {
			return nil, fmt.Errorf("list offsets of %s-%d: the broker did not answer", topic, p)
		}
	}
	return found, nil
}

// ends are the offsets from the first message of a partition to the one after the last.
type ends struct{ first, after int64 }

// partitions are those of a topic. There are none when the topic does not exist.
func (k *cluster) partitions(ctx context.Context, topics ...string) (map[string][]int, error) {
	answer, err := k.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	found := map[string][]int{}
	for _, t := range answer.Topics {
		if t.Error != nil {
			continue // it does not exist, or has no leader yet
		}
		for _, p := range t.Partitions {
			found[t.Name] = append(found[t.Name], p.ID)
		}
	}
	return found, nil
}

// backoff makes pauses that grow from 100 ms to 10 s.
type backoff struct{ next time.Duration }

func (b *backoff) pause(ctx context.Context) {
	b.next = min(max(2*b.next, 100*time.Millisecond), 10*time.Second)
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
