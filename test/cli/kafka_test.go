package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// topical is a rig whose events go to a topic of the shared Kafka.
type topical struct {
	*rig
	kafka *kafkaserver.Kafka
	topic string
}

func withKafka(t *testing.T, partitions int) *topical {
	t.Helper()
	k := &topical{rig: newRig(t), kafka: servers.SharedKafka(t)}
	k.topic = k.kafka.Topic(t, partitions)
	k.publishTo(k.kafka.Brokers(), k.topic)
	return k
}

func (k *topical) publishTo(brokers []string, topic string) {
	k.sink = fmt.Sprintf("  kafka: {brokers: ['%s'], topic: '%s'}", strings.Join(brokers, ","), topic)
}

// records waits until a topic has n records, and returns them by partition and offset.
func (k *topical) records(topic string, n int) []kafkaserver.Record {
	k.t.Helper()
	var found []kafkaserver.Record
	eventually(k.t, func() string {
		var err error
		found, err = k.kafka.Records(await.Context(k.t), topic)
		must(k.t, err)
		if len(found) != n {
			return fmt.Sprintf("the topic has %d records, want %d", len(found), n)
		}
		return ""
	})
	return found
}

// From nothing to a stop: init, check, run, status, metrics; every row arrives once, at the time of
// its commit.
func TestKafkaFromInitToStop(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 3)
	k.ok("init")
	found := map[string]bool{}
	for _, f := range checked(t, k.ok("check", "--json")) {
		found[f.Name] = true
		if !ofSuperuser(f) && (f.Level != "ok" || f.Detail == "" || f.Fix != "") {
			t.Errorf("after init: %+v", f)
		}
		documented(t, f.Name)
	}
	if !found["broker"] || !found[fmt.Sprintf("topic %q", k.topic)] {
		t.Errorf("check has no line for the broker or for the topic: %v", found)
	}
	relay := k.start()
	k.insert(25)
	ids := map[string]bool{}
	for _, r := range k.records(k.topic, 25) {
		ids[r.Header("id")] = true
		if age := ask[float64](k.rig, `SELECT abs(extract(epoch FROM created_at) - $1::bigint / 1000.0)::float8 FROM outbox WHERE id::text = $2`, r.Time.UnixMilli(), r.Header("id")); age > time.Hour.Seconds() {
			t.Errorf("the record's time is %s, %g s from its row's", r.Time, age)
		}
	}
	if len(ids) != 25 {
		t.Errorf("%d rows arrived, want 25", len(ids))
	}
	eventually(t, func() string {
		if out := k.ok("status", "--admin", relay.AdminSocket()); !hasAll(out, []string{"broker     up, kafka, ", " connection", "0 messages unanswered", "published  25 events"}) || strings.Contains(out, "channel") {
			return out
		}
		return ""
	})
	var s struct {
		Broker struct {
			Kind string
			Up   bool
		}
	}
	must(t, json.Unmarshal([]byte(k.ok("status", "--json", "--admin", relay.AdminSocket())), &s))
	if s.Broker.Kind != "kafka" || !s.Broker.Up {
		t.Errorf("--json says %+v", s)
	}
	says(t, relay, "/metrics", 200, "\ncdc_relay_events_total{outcome=\"published\"} 25\n", "\ncdc_relay_confirms_total{result=\"ack\"} 25\n",
		"\ncdc_relay_confirms_total{result=\"nack\"} 0\n", "\ncdc_relay_confirms_total{result=\"timeout\"} 0\n", "\ncdc_relay_sink_up 1\n",
		"\ncdc_relay_sink_pending_confirms 0\n", "\ncdc_relay_backlog_events 0\n")
	if scrape(t, relay).values[`cdc_relay_sink_connections`] < 1 {
		t.Error("no connection is counted")
	}
	ended(t, relay)
	for _, word := range []string{"warn", "error"} {
		if strings.Contains(relay.Log(), `"level":"`+word+`"`) {
			t.Errorf("something went wrong without a fault: %s", relay.Log())
		}
	}
}

// What check finds of Kafka, a line for each thing, with its fix.
func TestCheckOfKafka(t *testing.T) {
	t.Parallel()
	k := withKafka(t, 3)
	k.ok("init")
	topic := func(name string) string { return fmt.Sprintf("topic %q", name) }
	k.finds(topic(k.topic), "ok", []string{"3 partitions"}, nil)

	k.publishTo(k.kafka.Brokers(), k.topic+"x")
	k.finds(topic(k.topic+"x"), "fail", []string{"does not exist"}, []string{"create"})
	k.publishTo(k.kafka.Brokers(), k.topic+"{type}")
	k.finds(topic(k.topic), "ok", []string{"3 partitions", "max.message.bytes"}, nil)
	k.publishTo(k.kafka.Brokers(), k.topic+".{type}")
	k.finds(topic(k.topic+".{type}"), "warn", []string{"no such topic"}, []string{"--create --topic " + k.topic + ".TYPE"})
	k.publishTo([]string{"127.0.0.1:1"}, k.topic)
	k.finds("broker", "fail", []string{"127.0.0.1:1", "connection refused"}, []string{"sink.kafka.brokers"})
	k.publishTo(append(k.kafka.Brokers(), "127.0.0.1:1"), k.topic)
	k.finds("broker", "warn", []string{"127.0.0.1:1", "connection refused"}, []string{"sink.kafka.brokers"})
}

// finds runs check and looks for one line of it, the only one that is not ok.
func (k *topical) finds(name, level string, words, fix []string) {
	k.t.Helper()
	res := k.command("check", "--json")
	hidden(k.t, res.Stdout+res.Stderr)
	if (level == "fail") != (res.Code == 1) {
		k.t.Errorf("exit %d: %s", res.Code, res.Stdout)
	}
	found := false
	for _, f := range checked(k.t, res.Stdout) {
		if f.Name == name && f.Level == level && hasAll(f.Detail, words) && hasAll(f.Fix, fix) {
			found = true
		} else if f.Level == "fail" {
			k.t.Errorf("also failed: %+v", f)
		}
	}
	if !found {
		k.t.Errorf("no line %q of level %s that says %q and %q: %s", name, level, words, fix, res.Stdout)
	}
}
