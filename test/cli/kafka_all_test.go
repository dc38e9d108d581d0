//go:build testall

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// With ordering commit the events of all keys are in one partition in the order of their commits.
func TestKafkaInCommitOrder(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 1)
	k.more = "delivery: {ordering: commit}\n"
	relay := k.start()
	for range 3 {
		k.insert(50)
	}
	last := ""
	for _, r := range k.records(k.topic, 150) {
		if position := r.Header("cdc_position"); position <= last {
			t.Fatalf("%s comes after %s", position, last)
		} else {
			last = position
		}
	}
	relay.Stop(t)
}

// A stop does not wait for a Kafka that never came.
func TestStopWithoutKafka(t *testing.T) {
	t.Parallel()
	k := newRig(t)
	k.sink = "  kafka: {brokers: ['127.0.0.1:1'], topic: nowhere}"
	k.more = "delivery: {shutdown_grace: 500ms}\n"
	relay := runner.Start(t, k.binary, k.yaml())
	state(t, relay, "broker down", "127.0.0.1:1", "connection refused")
	k.insert(1)
	if code := relay.Stop(t); code != 0 { // the event was not read: nobody knew its partition
		t.Errorf("exit %d", code)
	}
}

// A topic that does not exist is paused by name, and its events are deferred; those of other topics
// flow, and it goes on when the topic is there.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 1)
	later := k.topic + ".later"
	k.publishTo(k.kafka.Brokers(), "{aggregate}")
	relay := k.start()
	k.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), $1, '1', 'created')`, later)
	id := ask[string](k.rig, `SELECT id::text FROM outbox`)
	if p := deferred(t, relay, 1).Broker.Paused[0]; p.Destination != fmt.Sprintf("topic %q", later) || p.Reason != "no_topic" {
		t.Errorf("paused is %+v", p)
	}
	k.exec(`INSERT INTO outbox (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), $1, '1', 'created')`, k.topic)
	k.records(k.topic, 1)
	must(t, k.kafka.CreateTopic(await.Context(t), later, 2, 1, nil))
	t.Cleanup(func() { must(t, k.kafka.DeleteTopic(await.Context(t), later)) })
	if r := k.records(later, 1)[0]; r.Header("id") != id {
		t.Errorf("what arrived is %+v", r)
	}
	eventually(t, func() string { return drained(t, relay) })
	if n := strings.Count(relay.Log(), `"destination paused`); n != 1 {
		t.Errorf("%d lines about the topic, want 1: %s", n, relay.Log())
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}
