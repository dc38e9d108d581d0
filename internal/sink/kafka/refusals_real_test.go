package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// tampered is a connection to a real broker on which produce requests are changed.
type tampered struct {
	*kafkaclient.Conn
	change func(c *kafkaclient.Conn, batch []byte)
}

func (t *tampered) RoundTrip(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error) {
	if produce, ok := req.(*rawproduce.Request); ok {
		for i := range produce.Topics {
			for j := range produce.Topics[i].Partitions {
				part := &produce.Topics[i].Partitions[j]
				batch, err := io.ReadAll(part.RecordSet.Reader)
				if err != nil {
					return nil, err
				}
				t.change(t.Conn, batch)
				part.RecordSet.Reader = bytes.NewReader(batch)
			}
		}
	}
	return t.Conn.RoundTrip(ctx, timeout, req)
}

// startTampered runs a sink whose produce requests are changed.
func startTampered(t *testing.T, cfg Config, change func(c *kafkaclient.Conn, batch []byte)) *running {
	t.Helper()
	cfg.RecordConfig = toTopic(t, "{column:topic}")
	s, err := New(cfg)
	must(t, err)
	s.client.Dial = func(ctx context.Context, addr string) (kafkaclient.Connection, error) {
		c, err := kafkaclient.Dial(ctx, &s.client.Options.DialOptions, addr)
		if err != nil {
			return nil, err
		}
		return &tampered{c, change}, nil
	}
	return startSink(t, s)
}

// wantTransient publishes an event over which the broker refuses its batch for a reason that may
// pass, among others and alone, and then heals the way to the broker.
func wantTransient(t *testing.T, k *kafkaserver.Kafka, detail string, spoil func(batch []byte)) {
	topic := topicWith(t, k, 1, 1, nil)
	var healed atomic.Bool
	r := startTampered(t, Config{Brokers: k.Brokers()}, func(_ *kafkaclient.Conn, batch []byte) {
		if !healed.Load() && bytes.Contains(batch, []byte("poison")) {
			spoil(batch)
		}
	})
	poison := newEvent(topic, "poisoned")
	poison.Payload = []byte(`"poison"`)
	good := events(100, topic)
	got := amongMany(t, r, good, poison)
	for range 2 {
		wantRejected(t, got, sink.Transient, sink.BrokerException)
		if f := got.Fault; !strings.Contains(f.Text, detail) || f.Whole || f.Destination != topicTitle(topic) {
			t.Errorf("fault %+v", f)
		}
		got = r.send(poison)[0]
	}
	wantStored(t, k, topic, good...)
	healed.Store(true)
	wantConfirmed(t, r.send(poison))
	wantStored(t, k, topic, append(good, poison)...)
}

// What came broken is refused (2), and named by nobody.
func testCorrupt(t *testing.T, k *kafkaserver.Kafka) {
	wantTransient(t, k, "Invalid Message", func(batch []byte) { batch[kafkaclient.CrcAt] ^= 1 })
}

// What the broker fails over itself is a server error (-1): here a batch that says that it is
// compressed, and is not.
func testServerError(t *testing.T, k *kafkaserver.Kafka) {
	wantTransient(t, k, "Unknown", func(batch []byte) {
		binary.BigEndian.PutUint16(batch[kafkaclient.AttributesAt:], 1) // gzip
		binary.BigEndian.PutUint32(batch[kafkaclient.CrcAt:], crc32.Checksum(batch[kafkaclient.AttributesAt:], kafkaclient.CRCTable))
	})
}

// A broker that does not know the compression (76), as one before Kafka 2.1 does not know zstd: the
// topic is at fault, and no event, however many there are.
func testCompression(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 1, 1, nil)
	var version atomic.Int32
	version.Store(3) // of the request: such a broker has no newer one
	r := startTampered(t, Config{Brokers: k.Brokers(), Compression: "zstd"}, func(c *kafkaclient.Conn, _ []byte) {
		c.Versions[protocol.Produce] = int16(version.Load())
	})
	all := events(50, topic)
	for _, o := range r.send(all...) {
		wantRejected(t, o, sink.Destination, sink.Invalid)
		if !o.Fault.Whole || o.Fault.Destination != topicTitle(topic) || !strings.Contains(o.Fault.Text, "Compression") {
			t.Fatalf("fault %+v", o.Fault)
		}
	}
	version.Store(7)
	wantConfirmed(t, r.send(all...))
	wantStored(t, k, topic, all...)
}
