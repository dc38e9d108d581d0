// Latency on Kafka: the relay and the bare loop.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
)

// listen starts the consumer of the live rows, on twelve partitions.
func (s *kafkaStand) listen(ctx context.Context) (*listener, error) {
	t, err := s.newTopic(ctx, 12)
	if err != nil {
		return nil, err
	}
	c, err := consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: s.cluster.Brokers(), Topics: []string{t.name}})
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return &listener{Witness: c, config: s.config(t.name), dial: t.dialLoop, remove: t.close}, nil
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
