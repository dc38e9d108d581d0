//go:build testall

package cli

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

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

// A Kafka that is not there is waited for, with one line; what is committed meanwhile arrives when
// it comes.
func TestWaitsForKafka(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 1)
	// in front of the first address only: the brokers name their own
	p := proxy(t, k.kafka.Brokers()[0])
	p.Cut()
	k.publishTo([]string{p.Addr()}, k.topic)
	relay := runner.Start(t, k.binary, k.yaml())
	state(t, relay, "broker down", "connection refused")
	k.insert(2)
	says(t, relay, "/healthz", 200)
	says(t, relay, "/readyz", 503, "broker down", "connection refused")
	// The partitions are not known, so the first event is read and waits outside the max_in_flight:
	// it is a backlog all the same.
	says(t, relay, "/metrics", 200, "\ncdc_relay_sink_up 0\n", "\ncdc_relay_backlog_events 1\n", "\ncdc_relay_in_flight_events 0\n")
	if age := scrape(t, relay).values["cdc_relay_oldest_unsettled_seconds"]; age <= 0 {
		t.Errorf("the event that waits is %g s old", age)
	}
	must(t, p.Restore())
	must(t, relay.WaitReady(await.Context(t)))
	k.records(k.topic, 2)
	if n := strings.Count(relay.Log(), "broker unavailable"); n != 1 {
		t.Errorf("%d lines about the broker, want 1: %s", n, relay.Log())
	}
	ended(t, relay)
}
