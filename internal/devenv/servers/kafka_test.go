package servers

import (
	"fmt"
	"slices"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/checker"
	"github.com/cdc-relay/cdc-relay/internal/devenv/consumers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// write writes records to a partition of the shared cluster's one broker, and waits for the answer.
func write(t *testing.T, k *kafkaserver.Kafka, topic string, partition int, records ...protocol.Record) {
	t.Helper()
	ctx := await.Context(t)
	conn, err := kafkaserver.DialKafka(ctx, k.Brokers()[0])
	await.Must(t, err)
	defer conn.Close()
	answer, err := kafkaserver.Ask[*produce.Response](ctx, conn, &produce.Request{
		Acks: -1, Timeout: 5000,
		Topics: []produce.RequestTopic{{Topic: topic, Partitions: []produce.RequestPartition{{
			Partition: int32(partition), RecordSet: protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(records...)},
		}}}},
	})
	await.Must(t, err)
	p := answer.Topics[0].Partitions[0]
	await.Must(t, kafkaserver.KafkaError(p.ErrorCode, p.ErrorMessage))
}

// writeRow writes a row as the relay would.
func writeRow(t *testing.T, k *kafkaserver.Kafka, topic string, partition int, r checker.Row) {
	t.Helper()
	write(t, k, topic, partition, protocol.Record{
		Key:   text(r.Key),
		Value: protocol.NewBytes(fmt.Appendf(nil, `{"key": "%s", "seq": %d, "fill": ""}`, r.Key, r.Seq)),
		Headers: []protocol.Header{
			{Key: "id", Value: []byte(r.ID)},
			{Key: "aggregateType", Value: []byte("order")},
			{Key: "cdc_position", Value: fmt.Appendf(nil, "%016X-%08d", uint64(inOrder(r)), 0)},
		},
	})
}

func text(s string) protocol.Bytes { return protocol.NewBytes([]byte(s)) }

// TestKafkaMarksSeeAnEarlyReport puts an event below and above the ends of a mark.
func TestKafkaMarksSeeAnEarlyReport(t *testing.T) {
	t.Parallel()
	ctx := await.Context(t)
	k := SharedKafka(t)
	topic := k.Topic(t, 2)
	c, err := consumers.StartKafkaConsumer(ctx, consumers.KafkaConsumerOptions{Brokers: k.Brokers(), Topics: []string{topic}})
	await.Must(t, err)
	defer c.Close()
	rows := []checker.Row{{ID: "one", Key: "k", Seq: 1}, {ID: "two", Key: "k", Seq: 2}}
	verdict := func() checker.Verdict {
		await.Must(t, c.Drain(ctx))
		return checker.Check(checker.History{Committed: rows[:len(c.Deliveries())], Deliveries: c.Deliveries(), Marks: c.Marks()})
	}
	writeRow(t, k, topic, 1, rows[0])
	await.Must(t, c.MarkFlush(ctx, checker.Mark{Flush: inOrder(rows[0]) + 1}))
	if v := verdict(); v.Err() != nil {
		t.Fatal(v)
	}
	await.Must(t, c.MarkFlush(ctx, checker.Mark{Flush: inOrder(rows[1]) + 1}))
	writeRow(t, k, topic, 1, rows[1])
	if v := verdict(); !slices.Equal(v.FlushAheadOfDelivery, []string{"two"}) || len(v.Lost)+len(v.OutOfOrder) > 0 {
		t.Fatal(v)
	}
}
