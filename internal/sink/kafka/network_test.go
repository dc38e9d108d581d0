package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// One broker, and the way to it. Nothing is lost, nothing is stored twice.
func TestOneBroker(t *testing.T) {
	k := ownKafka(t, devenv.KafkaOptions{Proxied: 1})
	for _, c := range []struct {
		name string
		test func(*testing.T, *devenv.Kafka)
	}{
		{"killed", testKilled},
		{"answers come late", testLateAnswers},
		{"connections end", testConnectionsEnd},
		{"over its quota", testQuota},
		{"topic made anew", testProducerUnknown},
		{"batch of a timeout", testTimeout},
		{"other events after a timeout", testOthersAfterTimeout},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, k) })
	}
}

// The broker is killed under load and starts again, twice.
func testKilled(t *testing.T, k *devenv.Kafka) {
	topic := topicWith(t, k, 6, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	for range 2 {
		f.wait(1000)
		must(t, k.KillNode(1))
		until(t, "the broker is missed", func() bool { up, why := r.Up(); return !up && why != "" })
		must(t, k.StartNode(limited(t), 1))
	}
	f.wait(1000)
	wantStored(t, k, topic, f.end()...)
	if len(f.rejected) > 0 {
		t.Errorf("rejected: %v", f.rejected)
	}
}

// Requests are stored and not answered in time; the answers come when nobody waits for them any more.
func testLateAnswers(t *testing.T, k *devenv.Kafka) {
	topic, way := topicWith(t, k, 2, 1, nil), k.Way(0)
	r := start(t, Config{Brokers: way.Brokers(), ConfirmTimeout: time.Millisecond})
	f := flow(t, r, topic, 20)
	f.wait(200)
	before := r.Stats().Connections
	way.Proxy(1).Hold(devenv.Down)
	must(t, way.Proxy(1).WaitHeld(limited(t), devenv.Down, 1))
	// The answers that make a connection are held, too, so there is none in place of one that was given up. One of two is not
	// that for metadata: it is given up over events.
	until(t, "two connections are given up", func() bool { return r.Stats().Connections <= before-2 })
	way.Proxy(1).Release(devenv.Down)
	f.wait(500)
	wantStored(t, k, topic, f.end()...)
}

// Connections end under load, again and again.
func testConnectionsEnd(t *testing.T, k *devenv.Kafka) {
	topic, way := topicWith(t, k, 4, 1, nil), k.Way(0)
	r := start(t, Config{Brokers: way.Brokers()})
	f := flow(t, r, topic, 50)
	for range 20 {
		f.wait(100)
		way.Proxy(1).Reset()
	}
	f.wait(500)
	wantStored(t, k, topic, f.end()...)
}

// Over its quota the sink slows down: it is no reason to call anybody down, or to send anything twice.
func testQuota(t *testing.T, k *devenv.Kafka) {
	topic := topicWith(t, k, 2, 1, nil)
	must(t, k.SetProducerQuota(limited(t), "slow", 20_000))
	r := start(t, Config{Brokers: k.Brokers(), ClientID: "slow"})
	f := flow(t, r, topic, 20)
	began := time.Now()
	f.wait(2000)
	if up, why := r.Up(); !up {
		t.Errorf("down: %s", why)
	}
	t.Logf("2000 events in %s", time.Since(began))
	must(t, k.SetProducerQuota(limited(t), "slow", 0))
	f.wait(500)
	wantStored(t, k, topic, f.end()...)
}

// A topic that was deleted and made anew knows no producer: the stream goes on with the sequence numbers it has.
func testProducerUnknown(t *testing.T, k *devenv.Kafka) {
	topic := topicWith(t, k, 1, 1, nil)
	r := start(t, Config{Brokers: k.Brokers()})
	wantConfirmed(t, r.send(events(10, topic)...))
	must(t, k.DeleteTopic(limited(t), topic))
	must(t, k.CreateTopic(limited(t), topic, 1, 1, nil))
	more := events(10, topic)
	until(t, "the topic takes events", func() bool { return allConfirmed(r.send(more...)) })
	wantStored(t, k, topic, more...)
}

// The call's context ends while its request is at the broker. The events come again, and are there once.
func testTimeout(t *testing.T, k *devenv.Kafka) {
	topic, way := topicWith(t, k, 1, 1, nil), k.Way(0)
	r := start(t, Config{Brokers: way.Brokers()})
	wantConfirmed(t, r.send(event(topic, "k")))
	first := events(100, topic)
	way.Proxy(1).Hold(devenv.Down)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := r.try(ctx, first...); err == nil {
		t.Error("no answer, and no error")
	}
	way.Proxy(1).Release(devenv.Down)
	all := append(first, events(50, topic)...)
	wantConfirmed(t, r.send(all...))
	records, err := k.Records(limited(t), topic)
	must(t, err)
	if len(records) != 1+len(all) {
		t.Errorf("%d records of %d events", len(records), 1+len(all))
	}
}

// The call's context ends while its request is at the broker. What comes then are as many other events, and fewer of the same,
// as a relay offers them that goes on one by one. Under the numbers of the batch in doubt the broker would take the others and
// store nothing.
func testOthersAfterTimeout(t *testing.T, k *devenv.Kafka) {
	topic, way := topicWith(t, k, 1, 1, nil), k.Way(0)
	r := start(t, Config{Brokers: way.Brokers()})
	wantConfirmed(t, r.send(event(topic, "k")))
	doubted := events(5, topic)
	way.Proxy(1).Hold(devenv.Down)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := r.try(ctx, doubted...); err == nil {
		t.Error("no answer, and no error")
	}
	way.Proxy(1).Reset() // the answer is lost: an answer that comes late would end the doubt
	way.Proxy(1).Release(devenv.Down)
	others := events(5, topic)
	for _, call := range [][]*outbox.Event{others, doubted[:1], doubted[1:]} {
		wantConfirmed(t, r.send(call...))
	}
	records, err := k.Records(limited(t), topic)
	must(t, err)
	stored := map[string]bool{}
	for _, record := range records {
		stored[record.Header(headerID)] = true
	}
	for _, ev := range append(doubted, others...) {
		if !stored[string(ev.ID)] {
			t.Errorf("event %s was confirmed and is not there", ev.ID)
		}
	}
}
