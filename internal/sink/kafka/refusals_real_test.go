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

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// tampered is a connection to a real broker on which produce requests are changed.
type tampered struct {
	*conn
	change func(c *conn, batch []byte)
}

func (t *tampered) roundTrip(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error) {
	if produce, ok := req.(*rawproduce.Request); ok {
		for i := range produce.Topics {
			for j := range produce.Topics[i].Partitions {
				part := &produce.Topics[i].Partitions[j]
				batch, err := io.ReadAll(part.RecordSet.Reader)
				if err != nil {
					return nil, err
				}
				t.change(t.conn, batch)
				part.RecordSet.Reader = bytes.NewReader(batch)
			}
		}
	}
	return t.conn.roundTrip(ctx, timeout, req)
}

// startTampered runs a sink whose produce requests are changed.
func startTampered(t *testing.T, cfg Config, change func(c *conn, batch []byte)) *running {
	t.Helper()
	cfg.Topic, cfg.Columns = template(t, "{column:topic}"), []string{"topic"}
	s, err := New(cfg)
	must(t, err)
	s.dial = func(ctx context.Context, addr string) (wire, error) {
		c, err := dial(ctx, &s.cfg, addr)
		if err != nil {
			return nil, err
		}
		return &tampered{c, change}, nil
	}
	return startSink(t, s)
}

// wantTransient publishes an event over which the broker refuses its batch for a reason that may pass, among others and alone,
// and then heals the way to the broker.
func wantTransient(t *testing.T, k *devenv.Kafka, words string, spoil func(batch []byte)) {
	topic := topicWith(t, k, 1, 1, nil)
	var healed atomic.Bool
	r := startTampered(t, Config{Brokers: k.Brokers()}, func(_ *conn, batch []byte) {
		if !healed.Load() && bytes.Contains(batch, []byte("poison")) {
			spoil(batch)
		}
	})
	poison := event(topic, "poisoned")
	poison.Payload = []byte(`"poison"`)
	good := events(100, topic)
	got := amongMany(t, r, good, poison)
	for range 2 {
		wantRejected(t, got, sink.Transient, sink.BrokerException)
		if f := got.Fault; !strings.Contains(f.Words, words) || f.Whole || f.Destination != topicName(topic) {
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
func testCorrupt(t *testing.T, k *devenv.Kafka) {
	wantTransient(t, k, "Invalid Message", func(batch []byte) { batch[crcAt] ^= 1 })
}

// What the broker fails over itself is a server error (-1): here a batch that says that it is compressed, and is not.
func testServerError(t *testing.T, k *devenv.Kafka) {
	wantTransient(t, k, "Unknown", func(batch []byte) {
		binary.BigEndian.PutUint16(batch[attributesAt:], 1) // gzip
		binary.BigEndian.PutUint32(batch[crcAt:], crc32.Checksum(batch[attributesAt:], castagnoli))
	})
}

// A broker that does not know the compression (76), as one before Kafka 2.1 does not know zstd: the topic is at fault, and no
// event, however many there are.
func testCompression(t *testing.T, k *devenv.Kafka) {
	topic := topicWith(t, k, 1, 1, nil)
	var version atomic.Int32
	version.Store(3) // of the request: such a broker has no newer one
	r := startTampered(t, Config{Brokers: k.Brokers(), Compression: "zstd"}, func(c *conn, _ []byte) {
		c.versions[protocol.Produce] = int16(version.Load())
	})
	all := events(50, topic)
	for _, o := range r.send(all...) {
		wantRejected(t, o, sink.Destination, sink.Invalid)
		if !o.Fault.Whole || o.Fault.Destination != topicName(topic) || !strings.Contains(o.Fault.Words, "Compression") {
			t.Fatalf("fault %+v", o.Fault)
		}
	}
	version.Store(7)
	wantConfirmed(t, r.send(all...))
	wantStored(t, k, topic, all...)
}

// Kafka's own topics take nothing from producers (17): the topic is at fault.
func testInternalTopic(t *testing.T, k *devenv.Kafka) {
	const internal = "__consumer_offsets"
	must(t, k.CreateTopic(limited(t), internal, 1, 1, nil))
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	good := events(100, topic)
	got := amongMany(t, r, good, event(internal, "k"))
	wantRejected(t, got, sink.Destination, sink.Invalid)
	if !got.Fault.Whole || got.Fault.Destination != topicName(internal) {
		t.Errorf("fault %+v", got.Fault)
	}
	wantStored(t, k, topic, good...)
}

// A replica that stands still is in sync until the cluster misses it: until then the broker answers that it has waited in
// vain (7), and from then on that there are too few (19), before it appends anything. While others confirm the partition is
// at fault after ConfirmTimeout; and what the leader has stored meanwhile is not stored a second time. (Kafka 4 does not say
// any more that there are too few after it has appended, 20: it waits for them in vain.)
func testReplicaFrozen(t *testing.T, k *devenv.Kafka) {
	topic, other := topicWith(t, k, 1, 2, map[string]string{"min.insync.replicas": "2"}), topicWith(t, k, 3, 1, nil)
	leader, err := k.Leader(limited(t), topic, 0)
	must(t, err)
	replicas, _, err := k.Replicas(limited(t), topic, 0)
	must(t, err)
	follower := replicas[0] + replicas[1] - leader
	r := start(t, Config{Brokers: k.Brokers(), ConfirmTimeout: 300 * time.Millisecond})
	first := event(topic, "k")
	wantConfirmed(t, r.send(first))
	healthy := event(other, "") // of a partition that another node leads
	for {
		node, err := k.Leader(limited(t), other, int(partitionOf(healthy, 3)))
		must(t, err)
		if node != follower {
			break
		}
		healthy.Hash++
	}
	wantConfirmed(t, r.send(healthy))
	must(t, k.FreezeNode(follower))
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			must(t, k.ThawNode(follower))
		}
	}
	defer thaw()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, 50*time.Millisecond) {
			if o := r.send(healthy)[0]; o.State != sink.Confirmed {
				t.Errorf("a healthy partition: %+v", o)
			}
		}
	}()
	defer func() { stop(); <-done }()
	ev := event(topic, "k")
	want := func(reason sink.Reason) {
		t.Helper()
		got := r.send(ev)[0]
		wantRejected(t, got, sink.Destination, reason)
		if got.Fault.Whole || got.Fault.Destination != partitionName(topic, 0) {
			t.Errorf("fault %+v", got.Fault)
		}
	}
	want(sink.Unconfirmed)
	until(t, "the cluster to miss the replica", func() bool {
		_, inSync, err := k.Replicas(limited(t), topic, 0)
		return err == nil && len(inSync) == 1
	})
	until(t, "the leader to say that too few replicas are in sync", func() bool { // one that just waited for them says first that it waited in vain
		o := r.send(ev)[0]
		return o.State == sink.Rejected && o.Fault.Reason == sink.TooFewReplicas
	})
	want(sink.TooFewReplicas)
	thaw()
	until(t, "the replica is back", func() bool { return r.send(ev)[0].State == sink.Confirmed })
	records, err := k.Records(limited(t), topic)
	must(t, err)
	count := 0
	for _, rec := range records {
		if rec.Header(headerID) == string(ev.ID) {
			count++
		}
	}
	if count != 1 {
		t.Errorf("the event is stored %d times", count)
	}
	must(t, k.WaitInSync(limited(t), topic))
}
