//go:build testall

package cli

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// The quick start on Kafka: one broker takes the topic as it is written there, and the
// record is in it with all that the consumer is told to show. Kafka's tools are not among the jars
// of scripts/kafka.sh, so the test does what they would.
func TestQuickStartOnKafka(t *testing.T) {
	t.Parallel()
	k := &topical{rig: bare(t), kafka: servers.SharedKafka(t)}
	broker := k.kafka.Brokers()[0]
	prefix := k.slot + "." // the topic's name is the whole cluster's
	var records []kafkaserver.Record
	addresses := strings.NewReplacer(
		documentedDatabase, k.db, documentedKafka, broker,
		"outbox.event.", prefix, "sink: {kafka: {", "sink: {kafka: {topic: '"+prefix+"{aggregate}', ",
	)
	relay := k.play("docs/getting-started.md", "With Kafka", addresses, func(line string) bool {
		command, rest, _ := strings.Cut(line, " ")
		given := options(rest)
		topic := given["topic"]
		switch command + " " + strings.Join(slices.Sorted(maps.Keys(given)), " ") {
		case "kafka-topics.sh bootstrap-server create partitions replication-factor topic":
			must(t, k.kafka.CreateTopic(await.Context(t), topic, number(t, given["partitions"]), number(t, given["replication-factor"]), nil))
			t.Cleanup(func() { must(t, k.kafka.DeleteTopic(await.Context(t), topic)) })
		case "kafka-console-consumer.sh bootstrap-server from-beginning max-messages property topic":
			if shown := "print.timestamp=true print.headers=true print.key=true"; given["property"] != shown {
				t.Errorf("the consumer shows %s, want %s", given["property"], shown)
			}
			records = k.records(topic, number(t, given["max-messages"]))
		default:
			return false
		}
		if given["bootstrap-server"] != broker {
			t.Errorf("%s goes to another broker than the relay", line)
		}
		return true
	})
	if len(records) != 1 {
		t.Fatalf("%d records were read, want 1", len(records))
	}
	r := records[0]
	if string(r.Key) != "42" || string(r.Value) != `{"total": 12.50}` || r.Time.UnixMilli() <= 0 ||
		r.Header("id") == "" || r.Header("eventType") != "created" || r.Header("aggregateType") != "order" {
		t.Errorf("what arrived is %+v", r)
	}
	ended(t, relay)
}

// options are the flags of a command line by name. Values of one that stands more than once are
// joined.
func options(line string) map[string]string {
	given := map[string]string{}
	for _, option := range strings.Split(" "+line, " --")[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(option), " ")
		given[name] = strings.TrimSpace(given[name] + " " + strings.TrimSpace(value))
	}
	return given
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	must(t, err)
	return n
}
