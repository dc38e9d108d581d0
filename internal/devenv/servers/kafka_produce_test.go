package servers

import (
	"context"
	"fmt"
	"slices"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// client is a test's producer.
type client struct{ brokers []string }

// produce writes to the leader that the metadata of the first broker names, with acks=all, and
// waits for the answer.
func (c client) produce(ctx context.Context, topic string, partition int, records ...protocol.Record) error {
	conn, err := kafkaserver.DialKafka(ctx, c.brokers[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	res, err := kafkaserver.Ask[*metadata.Response](ctx, conn, &metadata.Request{TopicNames: []string{topic}})
	if err != nil {
		return err
	}
	if err := kafkaserver.KafkaError(res.Topics[0].ErrorCode, ""); err != nil {
		return err
	}
	at := slices.IndexFunc(res.Topics[0].Partitions, func(p metadata.ResponsePartition) bool { return int(p.PartitionIndex) == partition })
	if at < 0 {
		return kafkago.UnknownTopicOrPartition
	}
	leader, err := kafkaserver.DialKafka(ctx, kafkaserver.BrokerAddr(res, res.Topics[0].Partitions[at].LeaderID))
	if err != nil {
		return err
	}
	defer leader.Close()
	return produceTo(ctx, leader, topic, partition, records...)
}

func produceTo(ctx context.Context, c *kafkaserver.KafkaConn, topic string, partition int, records ...protocol.Record) error {
	answer, err := kafkaserver.Ask[*produce.Response](ctx, c, &produce.Request{
		Acks: -1, Timeout: 5000,
		Topics: []produce.RequestTopic{{Topic: topic, Partitions: []produce.RequestPartition{{
			Partition: int32(partition), RecordSet: protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(records...)},
		}}}},
	})
	if err != nil {
		return err
	}
	p := answer.Topics[0].Partitions[0]
	return kafkaserver.KafkaError(p.ErrorCode, p.ErrorMessage)
}

// produceRows writes rows to a partition as the relay would, in one batch.
func produceRows(t *testing.T, brokers []string, topic string, partition int, rows ...checker.Row) {
	t.Helper()
	await.Must(t, produceRowsErr(await.Context(t), brokers, topic, partition, rows...))
}

func produceRowsErr(ctx context.Context, brokers []string, topic string, partition int, rows ...checker.Row) error {
	records := make([]protocol.Record, len(rows))
	for i, r := range rows {
		records[i] = protocol.Record{
			Key:   protocol.NewBytes([]byte(r.Key)),
			Value: protocol.NewBytes(fmt.Appendf(nil, `{"key": "%s", "seq": %d, "fill": ""}`, r.Key, r.Seq)),
			Headers: []protocol.Header{
				{Key: "id", Value: []byte(r.ID)},
				{Key: "aggregateType", Value: []byte("order")},
				{Key: "cdc_position", Value: fmt.Appendf(nil, "%016X-%08d", uint64(inOrder(r)), 0)},
			},
		}
	}
	return client{brokers: brokers}.produce(ctx, topic, partition, records...)
}
