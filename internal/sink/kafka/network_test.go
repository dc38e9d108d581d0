package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/event"
	kafkarecord "github.com/cdc-relay/cdc-relay/internal/sink/kafka/record"
)

// One broker, and the way to it. Nothing is lost, nothing is stored twice.
func TestOneBroker(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *kafkaserver.Kafka, *kafkaserver.Way)
	}{
		{"answers come late", testLateAnswers},
		{"connections end", testConnectionsEnd},
		{"topic re-created", testProducerUnknown},
		{"batch of a timeout", testTimeout},
		{"other events after a timeout", testOthersAfterTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, way := servers.SharedKafkaWay(t)
			c.test(t, k, way)
		})
	}
}

// Requests are stored and not answered in time; the answers come when nobody waits for them any
// more.
func testLateAnswers(t *testing.T, k *kafkaserver.Kafka, way *kafkaserver.Way) {
	topic := topicWith(t, k, 2, 1, nil)
	r := start(t, Config{Brokers: way.Brokers(), ConfirmTimeout: time.Millisecond})
	f := flow(t, r, topic, 20)
	f.wait(200)
	before := r.Stats().Connections
	way.Proxy(1).Hold(netproxy.Down)
	must(t, way.Proxy(1).WaitHeld(await.Context(t), netproxy.Down, 1))
	// The answers that make a connection are delayed, too, so there is none in place of one that
	// was given up. One of two is not that for metadata: it is given up over events.
	await.Until(t, "two connections are given up", func() bool { return r.Stats().Connections <= before-2 })
	way.Proxy(1).Release(netproxy.Down)
	f.wait(500)
	wantStored(t, k, topic, f.end()...)
}

// Connections end under load, again and again.
func testConnectionsEnd(t *testing.T, k *kafkaserver.Kafka, way *kafkaserver.Way) {
	topic := topicWith(t, k, 4, 1, nil)
	r := start(t, Config{Brokers: way.Brokers()})
	f := flow(t, r, topic, 50)
	for range 20 {
		f.wait(100)
		way.Proxy(1).Reset()
	}
	f.wait(500)
	wantStored(t, k, topic, f.end()...)
}

// A topic that was deleted and re-created knows no producer: the stream goes on with the sequence
// numbers it has.
func testProducerUnknown(t *testing.T, k *kafkaserver.Kafka, _ *kafkaserver.Way) {
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	wantConfirmed(t, r.send(events(10, topic)...))
	must(t, k.DeleteTopic(await.Context(t), topic))
	must(t, k.CreateTopic(await.Context(t), topic, 1, 1, nil))
	more := events(10, topic)
	await.Until(t, "the topic takes events", func() bool { return allConfirmed(r.send(more...)) })
	wantStored(t, k, topic, more...)
}

// The call's context ends while its request is at the broker. The events come again, and are there
// once.
func testTimeout(t *testing.T, k *kafkaserver.Kafka, way *kafkaserver.Way) {
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: way.Brokers()})
	wantConfirmed(t, r.send(newEvent(topic, "k")))
	first := events(100, topic)
	way.Proxy(1).Hold(netproxy.Down)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := r.try(ctx, first...); err == nil {
		t.Error("no answer, and no error")
	}
	way.Proxy(1).Release(netproxy.Down)
	all := append(first, events(50, topic)...)
	wantConfirmed(t, r.send(all...))
	records, err := k.Records(await.Context(t), topic)
	must(t, err)
	if len(records) != 1+len(all) {
		t.Errorf("%d records of %d events", len(records), 1+len(all))
	}
}

// The call's context ends while its request is at the broker. What comes then are as many other
// events, and fewer of the same, as a relay offers them that goes on one by one. Under the numbers
// of the batch in doubt the broker would take the others and store nothing.
func testOthersAfterTimeout(t *testing.T, k *kafkaserver.Kafka, way *kafkaserver.Way) {
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: way.Brokers()})
	wantConfirmed(t, r.send(newEvent(topic, "k")))
	doubted := events(5, topic)
	way.Proxy(1).Hold(netproxy.Down)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := r.try(ctx, doubted...); err == nil {
		t.Error("no answer, and no error")
	}
	way.Proxy(1).Reset() // the answer is lost: an answer that comes late would end the doubt
	way.Proxy(1).Release(netproxy.Down)
	others := events(5, topic)
	for _, call := range [][]*event.Event{others, doubted[:1], doubted[1:]} {
		wantConfirmed(t, r.send(call...))
	}
	records, err := k.Records(await.Context(t), topic)
	must(t, err)
	stored := map[string]bool{}
	for _, record := range records {
		stored[record.Header(kafkarecord.HeaderID)] = true
	}
	for _, ev := range append(doubted, others...) {
		if !stored[string(ev.ID)] {
			t.Errorf("event %s was confirmed and is not there", ev.ID)
		}
	}
}
