// The inbox on Kafka.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/inbox"
	inboxkafka "github.com/cdc-relay/cdc-relay/inbox/kafka"
)

// receive makes a topic of twelve partitions, and names a service that has not read it.
func (s *kafkaStand) receive(ctx context.Context) (*reception, error) {
	t, err := s.newTopic(ctx, 12)
	if err != nil {
		return nil, err
	}
	r := &reception{config: s.config(t.name), service: t.name + "-inbox", remove: t.close}
	r.declare = func(ctx context.Context, in *inbox.Inbox) (func(context.Context) error, error) {
		c, err := inboxkafka.New(in, inboxkafka.Config{Brokers: s.cluster.Brokers(), Topics: []string{t.name}, Partitions: 1})
		if err != nil {
			return nil, err
		}
		return c.Run, c.Declare(ctx)
	}
	r.fill = func(ctx context.Context, first int64, keys []string) error {
		var records []kafka.Message
		for i, key := range keys {
			records = append(records, kafka.Message{Key: []byte(key), Value: appendPayload(nil, i, payloadSize), Headers: []kafka.Header{
				{Key: "id", Value: []byte(uuid(first + int64(i)))}, {Key: "eventType", Value: []byte("created")}, {Key: "aggregateType", Value: []byte("order")},
			}})
		}
		transport := &kafka.Transport{MetadataTopics: []string{t.name}}
		defer transport.CloseIdleConnections()
		w := &kafka.Writer{
			Addr: kafka.TCP(s.cluster.Brokers()...), Topic: t.name, Balancer: kafka.Murmur2Balancer{}, RequiredAcks: kafka.RequireAll,
			BatchSize: 1000, BatchTimeout: 5 * time.Millisecond, Transport: transport,
		}
		return errors.Join(w.WriteMessages(ctx, records...), w.Close())
	}
	r.bare = func(ctx context.Context, n int, got func()) (err error) {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: s.cluster.Brokers(), GroupID: t.name + "-bare", Topic: t.name, StartOffset: kafka.FirstOffset, CommitInterval: 200 * time.Millisecond,
			MaxWait: time.Second, QueueCapacity: 1000,
		})
		defer func() { err = errors.Join(err, reader.Close()) }()
		for range n {
			m, err := reader.FetchMessage(ctx)
			if err != nil {
				return err
			}
			got()
			if err := reader.CommitMessages(ctx, m); err != nil {
				return err
			}
		}
		return nil
	}
	return r, nil
}
