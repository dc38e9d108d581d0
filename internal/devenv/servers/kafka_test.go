package servers

import (
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

func wantKafkaError(t *testing.T, err error, want kafkago.Error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func text(s string) protocol.Bytes { return protocol.NewBytes([]byte(s)) }

func TestKafkaTopics(t *testing.T) {
	ctx := await.Context(t)
	k := SharedKafka(t)
	to := client{brokers: k.Brokers()}

	t.Run("records come back as they were written", func(t *testing.T) {
		topic := k.Topic(t, 2)
		at := time.UnixMilli(1_700_000_000_123)
		await.Must(t, to.produce(ctx, topic, 1, protocol.Record{Key: text("k"), Value: text("v"), Time: at, Headers: []protocol.Header{
			{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "", Value: []byte{}}, {Key: "null"},
		}}, protocol.Record{Time: at}, protocol.Record{Key: text(""), Value: text(""), Time: at}))
		await.Must(t, to.produce(ctx, topic, 0, protocol.Record{Key: text("first"), Time: at}))
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
		if string(full.Key) != "k" || string(full.Value) != "v" || full.Header("a") != "1" || full.Header("none") != "" {
			t.Errorf("record is %v", full)
		}
		want := []kafkaserver.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}, {Name: "", Value: []byte{}}, {Name: "null", Value: nil}}
		if !slices.EqualFunc(full.Headers, want, func(a, b kafkaserver.Header) bool {
			return a.Name == b.Name && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
		}) {
			t.Errorf("headers are %#v", full.Headers)
		}
		if null.Key != nil || null.Value != nil || empty.Key == nil || empty.Value == nil || len(empty.Key)+len(empty.Value) > 0 {
			t.Errorf("null is %#v, empty %#v", null, empty)
		}
		ends, err := k.EndOffsets(ctx, topic)
		await.Must(t, err)
		if !maps.Equal(ends, map[int]int64{0: 1, 1: 3}) {
			t.Errorf("ends are %v", ends)
		}
	})

	t.Run("a log longer than an answer is read to its end", func(t *testing.T) {
		topic := k.Topic(t, 1)
		value := make([]byte, 900<<10)
		_, err := rand.Read(value)
		await.Must(t, err)
		for range 20 {
			await.Must(t, to.produce(ctx, topic, 0, protocol.Record{Value: protocol.NewBytes(value)}))
		}
		records, err := k.Records(ctx, topic)
		await.Must(t, err)
		if len(records) != 20 || records[19].Offset != 19 || string(records[19].Value) != string(value) {
			t.Fatalf("%d records", len(records))
		}
	})

	t.Run("topics change", func(t *testing.T) {
		name := k.Topic(t, 1)
		wantKafkaError(t, k.CreateTopic(ctx, name, 1, 1, nil), kafkago.TopicAlreadyExists)
		wantKafkaError(t, to.produce(ctx, name, 2, protocol.Record{Key: text("k")}), kafkago.UnknownTopicOrPartition)
		await.Must(t, k.AddPartitions(ctx, name, 3))
		await.Must(t, to.produce(ctx, name, 2, protocol.Record{Key: text("k")}))
		wantKafkaError(t, k.AddPartitions(ctx, name, 2), kafkago.InvalidPartitionNumber)

		await.Must(t, k.SetTopicConfig(ctx, name, "max.message.bytes", "1000"))
		await.Must(t, processes.Poll(ctx, time.Millisecond, func() (bool, error) {
			err := to.produce(ctx, name, 2, protocol.Record{Value: protocol.NewBytes(make([]byte, 1000))})
			if err != nil && !errors.Is(err, kafkago.MessageSizeTooLarge) {
				return false, err
			}
			return err != nil, nil
		}))
		wantKafkaError(t, k.SetTopicConfig(ctx, name, "max.message.bytes", "many"), kafkago.InvalidConfiguration)
		wantKafkaError(t, k.SetTopicConfig(ctx, "absent", "max.message.bytes", "1"), kafkago.UnknownTopicOrPartition)

		again := "again-" + name
		await.Must(t, k.CreateTopic(ctx, again, 2, 1, map[string]string{"max.message.bytes": "100"}))
		wantKafkaError(t, to.produce(ctx, again, 0, protocol.Record{Value: protocol.NewBytes(make([]byte, 200))}), kafkago.MessageSizeTooLarge)
		await.Must(t, k.DeleteTopic(ctx, again))
		wantKafkaError(t, k.DeleteTopic(ctx, again), kafkago.UnknownTopicOrPartition)
		wantKafkaError(t, to.produce(ctx, again, 0, protocol.Record{Key: text("k")}), kafkago.UnknownTopicOrPartition)
		if _, err := k.Records(ctx, again); !errors.Is(err, kafkago.UnknownTopicOrPartition) {
			t.Fatalf("error is %v", err)
		}
	})

	t.Run("a cluster that is not ours", func(t *testing.T) {
		given := &kafkaserver.Kafka{Bootstrap: k.Brokers()}
		topic := given.Topic(t, 1)
		if leader, err := given.Leader(ctx, topic, 0); leader < 1 || err != nil {
			t.Fatalf("leader is %d, %v", leader, err)
		}
		for _, err := range []error{given.KillNode(1), given.StopNode(ctx, 1), given.StartNode(ctx, 1), given.FreezeNode(1)} {
			if !errors.Is(err, processes.ErrNotOurs) {
				t.Errorf("error is %v", err)
			}
		}
	})
}
