//go:build testall

package cli

import (
	"testing"

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
