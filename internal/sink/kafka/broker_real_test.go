package kafka

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/kafkatest"
)

// dialReal connects to a broker, for the test.
func dialReal(t testing.TB, opts kafkaclient.DialOptions, addr string) *kafkaclient.Conn {
	t.Helper()
	c, err := kafkaclient.Dial(t.Context(), &opts, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// soon asks until the answer's code is not the one of a broker, or a topic, that has only just
// begun.
func soon(t testing.TB, passing kafkago.Error, ask func() kafkago.Error) {
	t.Helper()
	await.Until(t, "an answer other than "+passing.Error(), func() bool { return ask() != passing })
}

// producerID is a producer id of the broker's.
func producerID(t testing.TB, c *kafkaclient.Conn) (id int64, epoch int16) {
	t.Helper()
	soon(t, kafkago.GroupLoadInProgress, func() kafkago.Error {
		res, err := kafkaclient.RoundTripAs[*initproducerid.Response](t.Context(), c, within, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
		if err != nil {
			t.Fatal(err)
		}
		id, epoch = res.ProducerID, res.ProducerEpoch
		return kafkago.Error(res.ErrorCode)
	})
	return id, epoch
}

// request is for one batch.
func request(topic string, partition int32, sealed []byte) *rawproduce.Request {
	return &rawproduce.Request{Acks: -1, Timeout: 10_000, Topics: []rawproduce.RequestTopic{{
		Topic: topic, Partitions: []rawproduce.RequestPartition{{
			Partition: partition, RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(sealed)},
		}},
	}}}
}

// send produces a sealed batch and returns the broker's answer to it.
func send(t testing.TB, c *kafkaclient.Conn, topic string, partition int32, sealed []byte) (answer produce.ResponsePartition) {
	t.Helper()
	soon(t, kafkago.NotLeaderForPartition, func() kafkago.Error {
		res, err := kafkaclient.RoundTripAs[*produce.Response](t.Context(), c, within, request(topic, partition, sealed))
		if err != nil {
			t.Fatal(err)
		}
		answer = res.Topics[0].Partitions[0]
		return kafkago.Error(answer.ErrorCode)
	})
	return answer
}

// ordinary is an event with everything that an event may have.
func ordinary(i int) *event.Event {
	ev := plainEvent(i, fmt.Sprint("key-", i%10))
	ev.Payload = bytes.Repeat([]byte(`{"order": 12345, "lines": [1, 2]}`), i%50)
	ev.Headers = []byte(`{"source": "web", "none": null, "n": 1}`)
	switch i % 7 {
	case 0:
		ev.Key, ev.Ordered = nil, false
	case 1:
		ev.Key, ev.Ordered = []byte{}, false
	case 2:
		ev.Payload = nil
	case 3:
		ev.Time = ev.Time.Add(-time.Hour)
	}
	return ev
}

// TestRecordsOfEveryCompression has Kafka's own Java read every record of every compression: a
// topic of another compression has the broker unpack each batch, check its records and pack it
// again. What comes back is compared, byte by byte.
func TestRecordsOfEveryCompression(t *testing.T) {
	t.Parallel()
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	k := servers.SharedKafka(t)
	c := dialReal(t, kafkaclient.DialOptions{}, k.Brokers()[0])
	for _, codec := range []compress.Compression{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		stored := "uncompressed"
		if codec == compress.None {
			stored = "gzip"
		}
		t.Run(codec.String()+" to "+stored, func(t *testing.T) {
			topic := k.Topic(t, 1)
			for name, value := range map[string]string{"compression.type": stored, "max.message.bytes": "8388608"} {
				if err := k.SetTopicConfig(t.Context(), topic, name, value); err != nil {
					t.Fatal(err)
				}
			}
			id, epoch := producerID(t, c)
			layout, err := newLayout(&RecordConfig{Topic: parseTemplate(t, "events")})
			if err != nil {
				t.Fatal(err)
			}
			m, b := newBuilder(layout), kafkaclient.NewBatch(codec)
			const count = 6000 // 5 MB: more than one block of every codec
			for i := range count {
				if fault := m.Build(ordinary(i)); fault != nil {
					t.Fatal(fault)
				}
				b.Add(&m.Record)
			}
			sealed, answer := b.Seal(id, epoch, 0), produce.ResponsePartition{}
			want := kafkatest.Decode(t, sealed).Records
			// a broker obeys a new limit a moment after it knows it
			soon(t, kafkago.MessageSizeTooLarge, func() kafkago.Error {
				answer = send(t, c, topic, 0, sealed)
				return kafkago.Error(answer.ErrorCode)
			})
			if answer.ErrorCode != 0 || answer.BaseOffset != 0 {
				t.Fatalf("answer %+v", answer)
			}
			got, err := k.Records(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != count {
				t.Fatalf("%d records, want %d", len(got), count)
			}
			for i, r := range got {
				w := want[i]
				if r.Time.UnixMilli() != w.Time || !same(r.Key, w.Key) || !same(r.Value, w.Value) {
					t.Fatalf("record %d: %+v, want %+v", i, r, w)
				}
				var headers []protocol.Header
				for _, h := range r.Headers {
					headers = append(headers, protocol.Header{Key: h.Name, Value: h.Value})
				}
				kafkatest.WantHeaders(t, headers, w.Headers...)
			}
		})
	}
}

// TestSequences has what a broker does with the producer id, epoch and sequence of a batch.
func TestSequences(t *testing.T) {
	k := servers.SharedKafka(t)
	c, topic := dialReal(t, kafkaclient.DialOptions{}, k.Brokers()[0]), k.Topic(t, 1)
	id, epoch := producerID(t, c)
	batchOf := func(text string, count int) *kafkaclient.Batch {
		b := kafkaclient.NewBatch(compress.None)
		for range count {
			b.Add(&kafkaclient.Record{Value: []byte(text), Time: 1_700_000_000_000})
		}
		return b
	}
	first := batchOf("first", 10)
	for i, step := range []struct {
		sealed []byte
		code   kafkago.Error
		end    int64 // records stored then
	}{
		{first.Seal(id, epoch, 0), 0, 10},
		{first.Seal(id, epoch, 0), 0, 10}, // the same again: stored once
		// other records under used numbers: acked, and not stored
		{batchOf("other", 10).Seal(id, epoch, 0), 0, 10},
		{batchOf("second", 5).Seal(id, epoch, 10), 0, 15}, // the next
		{batchOf("gap", 5).Seal(id, epoch, 16), kafkago.OutOfOrderSequenceNumber, 15},
		{batchOf("third", 1).Seal(id, epoch, 15), 0, 16},
	} {
		answer := send(t, c, topic, 0, step.sealed)
		ends, err := k.EndOffsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		if kafkago.Error(answer.ErrorCode) != step.code || ends[0] != step.end {
			t.Errorf("step %d: code %d, %d records, want %d, %d", i, answer.ErrorCode, ends[0], step.code, step.end)
		}
	}
}
