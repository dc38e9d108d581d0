package servers

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

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

// TestKafkaRecords: records come back as they were written, with null and empty apart, and a log
// longer than an answer is read to its end.
func TestKafkaRecords(t *testing.T) {
	ctx := await.Context(t)
	k := SharedKafka(t)
	topic := k.Topic(t, 2)
	at := time.UnixMilli(1_700_000_000_123)
	write(t, k, topic, 1, protocol.Record{Key: text("k"), Value: text("v"), Time: at, Headers: []protocol.Header{
		{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "", Value: []byte{}}, {Key: "null"},
	}}, protocol.Record{Time: at}, protocol.Record{Key: text(""), Value: text(""), Time: at})
	write(t, k, topic, 0, protocol.Record{Key: text("first"), Time: at})
	records, err := k.Records(ctx, topic)
	await.Must(t, err)
	if len(records) != 4 || records[0].Partition != 0 || string(records[0].Key) != "first" {
		t.Fatalf("records are %v", records)
	}
	for i, r := range records[1:] {
		if r.Partition != 1 || r.Offset != int64(i) || !r.Time.Equal(at) {
			t.Errorf("record %d is %d-%d at %v", i, r.Partition, r.Offset, r.Time)
		}
	}
	full, null, empty := records[1], records[2], records[3]
	want := []kafkaserver.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}, {Name: "", Value: []byte{}}, {Name: "null", Value: nil}}
	if string(full.Key) != "k" || string(full.Value) != "v" || !slices.EqualFunc(full.Headers, want, func(a, b kafkaserver.Header) bool {
		return a.Name == b.Name && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
	}) {
		t.Errorf("record is %#v", full)
	}
	if null.Key != nil || null.Value != nil || empty.Key == nil || empty.Value == nil || len(empty.Key)+len(empty.Value) > 0 {
		t.Errorf("null is %#v, empty %#v", null, empty)
	}
	ends, err := k.EndOffsets(ctx, topic)
	await.Must(t, err)
	if !maps.Equal(ends, map[int]int64{0: 1, 1: 3}) {
		t.Errorf("ends are %v", ends)
	}

	value := make([]byte, 900<<10)
	_, _ = rand.Read(value)
	for range 10 {
		write(t, k, topic, 0, protocol.Record{Value: protocol.NewBytes(value)})
	}
	records, err = k.Records(ctx, topic)
	await.Must(t, err)
	if len(records) != 14 || records[10].Offset != 10 || string(records[10].Value) != string(value) {
		t.Fatalf("%d records", len(records))
	}
}

// TestKafkaMarksSeeAnEarlyReport puts an event below and above the ends of a mark.
func TestKafkaMarksSeeAnEarlyReport(t *testing.T) {
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
