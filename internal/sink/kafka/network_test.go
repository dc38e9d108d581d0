package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// One broker, and the way to it. Nothing is lost, nothing is stored twice.
func TestOneBroker(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *kafkaserver.Kafka, *kafkaserver.Way)
	}{
		{"answers come late", testLateAnswers},
		{"connections end", testConnectionsEnd},
		{"call ends in doubt", testCallEndsInDoubt},
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
	before := r.Status().Connections
	way.Proxy(1).Hold(netproxy.Down)
	must(t, way.Proxy(1).WaitHeld(await.Context(t), netproxy.Down, 1))
	// The answers that make a connection are delayed, too, so there is none in place of one that
	// was given up. One of two is not that for metadata: it is given up over events.
	await.Until(t, "two connections are given up", func() bool { return r.Status().Connections <= before-2 })
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

// The call's context ends while its request is at the broker. As many other events come then, and
// after them the same ones. Under the numbers of the batch in doubt the broker would acknowledge
// the others and store nothing.
func testCallEndsInDoubt(t *testing.T, k *kafkaserver.Kafka, way *kafkaserver.Way) {
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: way.Brokers()})
	wantConfirmed(t, r.send(newEvent(topic, "k")))
	doubted, others := events(5, topic), events(5, topic)
	way.Proxy(1).Hold(netproxy.Down)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := r.try(ctx, doubted...); err == nil {
		t.Error("no answer, and no error")
	}
	way.Proxy(1).Release(netproxy.Down)
	wantConfirmed(t, r.send(others...))
	wantConfirmed(t, r.send(doubted...))
	records, err := k.Records(await.Context(t), topic)
	must(t, err)
	stored := map[string]int{}
	for _, rec := range records {
		stored[rec.Header(HeaderID)]++
	}
	for _, ev := range others {
		if n := stored[string(ev.ID)]; n != 1 {
			t.Errorf("another event is stored %d times", n)
		}
	}
	for _, ev := range doubted {
		if n := stored[string(ev.ID)]; n < 1 || n > 2 {
			t.Errorf("an event in doubt is stored %d times", n)
		}
	}
}
