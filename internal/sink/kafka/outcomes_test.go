package kafka

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// What a real broker says of topics and events, and what becomes of that.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	k := servers.SharedKafka(t)
	for name, test := range map[string]func(*testing.T, *kafkaserver.Kafka){
		"missing topic":           testMissingTopic,
		"too large for the topic": testTooLarge,
		"larger than all limits":  testHuge,
		"invalid record":          testInvalidRecord,
		"rejected unsent":         testRejectedUnsent,
		"key goes on elsewhere":   testKeyGoesOnElsewhere,
		"corrupt message":         testCorrupt,
		"server error":            testServerError,
		"unknown compression":     testCompression,
	} {
		t.Run(name, func(t *testing.T) { test(t, k) })
	}
}

// amongMany publishes good events of one topic with a poison in the middle, in one call of the good
// ones' lane, and returns the poison's outcome. All others are confirmed.
func amongMany(t *testing.T, r *running, good []*event.Event, poison *event.Event) sink.Outcome {
	t.Helper()
	at := len(good) / 2
	call := append(append(append([]*event.Event{}, good[:at]...), poison), good[at:]...)
	outcomes, err := r.call(r.laneOf(good[0]), call...)
	must(t, err)
	wantConfirmed(t, outcomes, at)
	return outcomes[at]
}

// call publishes events on one lane, whatever their own.
func (r *running) call(lane int, events ...*event.Event) ([]sink.Outcome, error) {
	r.t.Helper()
	outcomes := make([]sink.Outcome, len(events))
	err := r.Publish(context.Background(), lane, events, outcomes)
	if fault := brokenContract(events, outcomes, err); fault != "" {
		r.t.Errorf("the contract is broken: %s", fault)
	}
	return outcomes, err
}

func testMissingTopic(t *testing.T, k *kafkaserver.Kafka) {
	nowhere := unused()
	r := start(t, Config{Brokers: k.Brokers()})
	// It has one lane, which fills all of its partitions when it is there.
	late := events(200, nowhere)
	lane := r.laneOf(late[0])
	for _, ev := range late {
		if n := r.laneOf(ev); n != lane {
			t.Fatalf("lanes %d and %d of a missing topic", lane, n)
		}
	}
	outcomes, err := r.call(lane, late...)
	must(t, err)
	for _, o := range outcomes {
		wantRejected(t, o, sink.Destination, sink.NoTopic)
		if o.Fault.Destination != fmt.Sprintf("topic %q", nowhere) || o.Fault.Text == "" {
			t.Fatalf("fault %+v", o.Fault)
		}
	}
	create(t, k, nowhere, 4, 1, nil)
	outcomes, err = r.call(lane, late...)
	must(t, err)
	wantConfirmed(t, outcomes)
	wantStored(t, k, nowhere, late...)
	wantPartitions(t, k, nowhere, 4)
}

// wantPartitions wants records in so many partitions.
func wantPartitions(t *testing.T, k *kafkaserver.Kafka, topic string, n int) {
	t.Helper()
	records, err := k.Records(await.Context(t), topic)
	must(t, err)
	used := map[int]bool{}
	for _, rec := range records {
		used[rec.Partition] = true
	}
	if len(used) != n {
		t.Errorf("%d partitions have records, want %d", len(used), n)
	}
}

func testTooLarge(t *testing.T, k *kafkaserver.Kafka) {
	for _, compression := range []string{"none", "lz4"} {
		t.Run(compression, func(t *testing.T) {
			topic := topicWith(t, k, 1, 1, map[string]string{"max.message.bytes": "30000"})
			r := start(t, Config{Brokers: k.Brokers(), Compression: compression})
			large := newEvent(topic, "large")
			large.Payload = make([]byte, 40000)
			_, err := rand.Read(large.Payload)
			must(t, err)
			good := events(500, topic) // 100 kB
			got := amongMany(t, r, good, large)
			wantRejected(t, got, sink.Permanent, sink.TooLarge)
			wantStored(t, k, topic, good...)
			must(t, k.SetTopicConfig(await.Context(t), topic, "max.message.bytes", "1000000"))
			await.Until(t, "the broker to obey the new limit", func() bool { return allConfirmed(r.send(large)) })
			more := events(500, topic)
			wantConfirmed(t, r.send(more...))
			wantStored(t, k, topic, append(append(good, large), more...)...)
		})
	}
}

// A record that no broker's request carries is refused before it is sent; a large one goes alone
// and arrives.
func testHuge(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 1, 1, map[string]string{"max.message.bytes": "200000000"})
	r := start(t, Config{Brokers: k.Brokers()})
	huge := newEvent(topic, "k")
	huge.Payload = make([]byte, 110<<20)
	wantRejected(t, r.send(huge)[0], sink.Permanent, sink.TooLarge)
	large := newEvent(topic, "k")
	large.Payload = make([]byte, 6<<20)
	wantConfirmed(t, r.send(large))
	wantStored(t, k, topic, large)
}

// A compacted topic takes no record without a key, and names those in the batch.
func testInvalidRecord(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 1, 1, map[string]string{"cleanup.policy": "compact"})
	r := start(t, Config{Brokers: k.Brokers()})
	good := events(100, topic)
	got := amongMany(t, r, good, newEvent(topic, ""))
	wantRejected(t, got, sink.Permanent, sink.Invalid)
	if !strings.Contains(got.Fault.Text, "key") {
		t.Errorf("text %q", got.Fault.Text)
	}
	wantStored(t, k, topic, good...)
}

func testRejectedUnsent(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	null, odd, undecodable := newEvent(topic, "k"), newEvent("no topic's name", "k"), newEvent(topic, "k")
	null.Columns = [][]byte{nil}
	undecodable.Fault = fmt.Errorf("the id is NULL")
	good := events(3, topic)
	for _, c := range []struct {
		ev     *event.Event
		reason sink.Reason
	}{{null, sink.NullInTemplate}, {odd, sink.Invalid}, {undecodable, sink.Undecodable}} {
		if lane := r.laneOf(c.ev); lane != laneOfNoTopic {
			t.Errorf("lane %d of an event without a topic", lane)
		}
		wantRejected(t, r.send(c.ev)[0], sink.Permanent, c.reason)
		wantRejected(t, amongMany(t, r, events(3, topic), c.ev), sink.Permanent, c.reason)
	}
	wantConfirmed(t, r.send(good...))
}

func allConfirmed(outcomes []sink.Outcome) bool {
	for _, o := range outcomes {
		if o.State != sink.Confirmed {
			return false
		}
	}
	return true
}

// A rejected event stops its key in its own topic. In another one that key goes on, in its place
// among the others.
func testKeyGoesOnElsewhere(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: k.Brokers(), OneLane: true})
	refused, behind := newEvent("no topic's name", "k"), newEvent("no topic's name", "k")
	before, same, after := newEvent(topic, "other"), newEvent(topic, "k"), newEvent(topic, "other")
	behind.Hash, same.Hash = refused.Hash, refused.Hash
	outcomes, err := r.call(0, before, refused, same, behind, after)
	must(t, err)
	wantRejected(t, outcomes[1], sink.Permanent, sink.Invalid)
	wantConfirmed(t, []sink.Outcome{outcomes[0], outcomes[2], outcomes[4]})
	if outcomes[3].State != sink.Unsent {
		t.Errorf("behind the rejected one is %s", outcomes[3].State)
	}
	wantStored(t, k, topic, before, same, after)
}
