// Reading the topics of one side from Kafka.

package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/kafkaguard"
	"github.com/cdc-relay/cdc-relay/internal/migrate/compare"
	kafka "github.com/cdc-relay/cdc-relay/internal/sink/kafka/driver"
)

// kafkaSide reads all partitions of some topics, without a group. It writes nothing.
type kafkaSide struct {
	client    *kafkago.Client
	transport *kafkago.Transport
	topics    []string
	parts     [][]kafkaPart // of each topic, by partition
}

// kafkaPart is a partition: where to begin, and what was its end when it was opened.
type kafkaPart struct{ next, end int64 }

const (
	kafkaTimeout  = 20 * time.Second // for one answer, connecting included
	kafkaRetryFor = time.Minute      // how long a partition may answer with errors
	// bytes of one partition in one answer; a larger record comes alone
	kafkaFetch = 1 << 20
)

func openKafkaSide(ctx context.Context, f *compareFlags, c *config.Config, topics []string) (side, error) {
	dialer := &kafkaguard.Dialer{Dial: (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext, Limit: kafkaguard.FetchLimit}
	transport := &kafkago.Transport{
		Dial: dialer.DialContext, DialTimeout: 10 * time.Second,
		ClientID: "cdc-relay/compare", MetadataTopics: topics, MetadataTTL: 2 * time.Second,
	}
	brokers := f.kafka
	if k := kafkaOf(c); k != nil {
		if len(brokers) == 0 {
			brokers = k.Brokers
		}
		if err := kafkaSecurity(dialer, transport, k); err != nil {
			return nil, err
		}
	}
	s := &kafkaSide{transport: transport, topics: topics, client: &kafkago.Client{Addr: kafkago.TCP(brokers...), Transport: transport}}
	from, err := f.start()
	if err == nil {
		err = s.locate(ctx, f.from, from)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// kafkaSecurity gives a client the TLS and the login of the sink.
func kafkaSecurity(d *kafkaguard.Dialer, t *kafkago.Transport, k *kafka.Settings) (err error) {
	if files := k.TLSFiles(); files != nil {
		if d.TLS, err = files(); err != nil {
			return err
		}
	}
	read := k.Login()
	if read == nil {
		return nil
	}
	login, err := read()
	if err != nil {
		return err
	}
	t.SASL, err = login.NewMechanism()
	return err
}

func (s *kafkaSide) close() { s.transport.CloseIdleConnections() }

func (s *kafkaSide) partitions() []int {
	var n []int
	for _, parts := range s.parts {
		n = append(n, len(parts))
	}
	return n
}

// locate finds the partitions and their offsets.
func (s *kafkaSide) locate(ctx context.Context, from string, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	meta, err := s.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: s.topics})
	if err != nil {
		return fmt.Errorf("ask for topics: %w", err)
	}
	found := map[string]kafkago.Topic{}
	for _, t := range meta.Topics {
		found[t.Name] = t
	}
	for _, name := range s.topics {
		t := found[name]
		if t.Error != nil {
			return fmt.Errorf("topic %s: %w", name, t.Error)
		}
		if len(t.Partitions) == 0 {
			return fmt.Errorf("topic %s: the brokers do not know it", name)
		}
		parts, err := s.offsets(ctx, name, len(t.Partitions), from, at)
		if err != nil {
			return fmt.Errorf("topic %s: ask for offsets: %w", name, err)
		}
		s.parts = append(s.parts, parts)
	}
	return nil
}

func (s *kafkaSide) offsets(ctx context.Context, topic string, n int, from string, at time.Time) ([]kafkaPart, error) {
	parts := make([]kafkaPart, n)
	ask := func(of func(p int) kafkago.OffsetRequest, take func(kafkago.PartitionOffsets)) error {
		var requests []kafkago.OffsetRequest
		for p := range n {
			requests = append(requests, of(p))
		}
		res, err := s.client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: requests}})
		if err != nil {
			return err
		}
		for _, p := range res.Topics[topic] {
			if p.Error != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, p.Error)
			}
			take(p)
		}
		return nil
	}
	err := ask(kafkago.LastOffsetOf, func(p kafkago.PartitionOffsets) {
		parts[p.Partition] = kafkaPart{next: p.LastOffset, end: p.LastOffset}
	})
	switch {
	case err != nil || from == "now":
		return parts, err
	case at.IsZero():
		return parts, ask(kafkago.FirstOffsetOf, func(p kafkago.PartitionOffsets) { parts[p.Partition].next = p.FirstOffset })
	}
	return parts, ask(func(p int) kafkago.OffsetRequest { return kafkago.TimeOffsetOf(p, at) }, func(p kafkago.PartitionOffsets) {
		for offset := range p.Offsets {
			if offset >= 0 { // else there is no record that new
				parts[p.Partition].next = offset
			}
		}
	})
}

// read has a goroutine for each partition.
func (s *kafkaSide) read(ctx context.Context, messages chan<- compare.Message, caughtUp chan<- struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	var behind atomic.Int32 // partitions not read to their end; one more until all are counted
	reached := func() {
		if behind.Add(-1) == 0 {
			close(caughtUp)
		}
	}
	behind.Store(1)
	for topic, parts := range s.parts {
		for p, part := range parts {
			behind.Add(1)
			group.Go(func() error { return s.follow(ctx, topic, p, part, messages, sync.OnceFunc(reached)) })
		}
	}
	reached()
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// follow reads one partition, and calls caughtUp at what was its end, which a failed one has not
// reached. An error is tried again for a while: leaders move.
func (s *kafkaSide) follow(ctx context.Context, topic, partition int, part kafkaPart, messages chan<- compare.Message, caughtUp func()) error {
	for well := time.Now(); ; {
		if part.next >= part.end {
			caughtUp()
		}
		err := s.fetch(ctx, topic, partition, &part, messages)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			well = time.Now()
		case errors.Is(err, kafkago.OffsetOutOfRange) || time.Since(well) > kafkaRetryFor:
			return fmt.Errorf("topic %s, partition %d, offset %d: %w", s.topics[topic], partition, part.next, err)
		default:
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// fetch asks once, and moves part past what came.
func (s *kafkaSide) fetch(ctx context.Context, topic, partition int, part *kafkaPart, messages chan<- compare.Message) error {
	asking, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	ask := func(bytes int64) (*kafkago.FetchResponse, error) {
		return s.client.Fetch(asking, &kafkago.FetchRequest{
			Topic: s.topics[topic], Partition: partition, Offset: part.next, MinBytes: 1, MaxBytes: bytes, MaxWait: 500 * time.Millisecond,
			IsolationLevel: kafkago.ReadCommitted,
		})
	}
	res, err := ask(kafkaFetch)
	var over *kafkaguard.TooLarge
	if errors.As(err, &over) {
		res, err = ask(1) // one batch alone
	}
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return err
	}
	for {
		r, err := res.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		m, err := kafkaMessage(r)
		if err != nil {
			return err
		}
		if r.Offset < part.next {
			continue // a batch is given as a whole
		}
		m.ExchangeOrTopic, m.Partition = topic, partition
		m.Where = fmt.Sprintf("%s, partition %d, offset %d", s.topics[topic], partition, r.Offset)
		select {
		case messages <- m:
			part.next = r.Offset + 1
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if stream, ok := res.Records.(*protocol.RecordStream); ok {
		for _, batch := range stream.Records {
			// of a transaction: it is an offset without a record
			if end, ok := batch.(*protocol.ControlBatch); ok {
				part.next = max(part.next, end.BaseOffset+1)
			}
		}
	}
	return nil
}
