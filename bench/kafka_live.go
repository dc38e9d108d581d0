// Latency on Kafka: the relay and the bare loop.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
)

// live is the relay against the bare loop, on twelve partitions.
func (s *kafkaStand) live(ctx context.Context, rate, pairs int, ask bounds) (_ []result, err error) {
	t, err := s.newTopic(ctx, 12)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	c, err := consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: s.cluster.Brokers(), Topics: []string{t.name}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r, err := s.besideLoop(ctx, &listener{Witness: c}, rate, pairs, s.config(t.name), t.dialLoop)
	r.must, r.aim = ask.must, ask.aim
	return []result{r}, err
}

// dialLoop connects a bare loop, which produces one record with all acknowledgements and awaits the
// answer. kafka-go's Client does that with less than its Writer: no goroutine stands between.
func (t *topic) dialLoop() (publish, error) {
	transport := &kafka.Transport{MetadataTopics: []string{t.name}}
	client := &kafka.Client{Addr: kafka.TCP(t.cluster.Brokers()...), Transport: transport}
	partitions := make([]int, t.partitions)
	for p := range partitions {
		partitions[p] = p
	}
	balancer := kafka.Murmur2Balancer{Consistent: true}
	send := func(ctx context.Context, r *loopRow) error {
		key := []byte(r.columns["aggregateid"])
		record := kafka.Record{
			Time: r.commitTime, Key: kafka.NewBytes(key), Value: kafka.NewBytes([]byte(r.columns["payload"])),
			Headers: []kafka.Header{
				{Key: "id", Value: []byte(r.columns["id"])},
				{Key: "eventType", Value: []byte(r.columns["type"])},
				{Key: "aggregateType", Value: []byte(r.columns["aggregatetype"])},
				{Key: "cdc_position", Value: []byte(r.position)},
			},
		}
		answer, err := client.Produce(ctx, &kafka.ProduceRequest{
			Topic: t.name, Partition: balancer.Balance(kafka.Message{Key: key}, partitions...),
			RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(record),
		})
		if err == nil {
			err = answer.Error
		}
		if err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		return nil
	}
	return publish{send: send, close: transport.CloseIdleConnections}, nil
}

// leaderChange measures the loss of a leader that has a standby.
func (s *kafkaStand) leaderChange(ctx context.Context) (_ []result, err error) {
	t, err := s.newTopic(ctx, 12)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	c, err := consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: s.cluster.Brokers(), Topics: []string{t.name}})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return s.leaderChanges(ctx, s.config(t.name), c)
}
