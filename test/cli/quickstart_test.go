// This file does what a newcomer does: the quick starts of the documents, line by line, on real servers.
package cli

import (
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
)

const (
	documentedDatabase = "postgres://postgres@localhost:5432/shop"
	documentedRabbitMQ = "amqp://guest:guest@localhost:5672/"
	documentedKafka    = "localhost:9092"
)

// play runs the blocks of a page's quick start, as they are but for the addresses, and returns the relay. The lines of the
// broker's own tools are the caller's: tool reports whether it knows one.
func (r *rig) play(page string, addresses *strings.Replacer, tool func(line string) bool) *devenv.Relay {
	r.t.Helper()
	_, section, found := strings.Cut(document(r.t, page), "## Quick start\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		r.t.Fatalf("%s has no quick start", page)
	}
	var config string
	var relay *devenv.Relay
	for _, block := range blocks.FindAllStringSubmatch(section, -1) {
		if block[1] == "yaml" {
			// The slot's name is the whole server's.
			config = strings.Replace(addresses.Replace(block[2]), "source: {", "source: {slot: "+r.slot+", ", 1)
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(block[2], "\\\n", "")) {
			line = addresses.Replace(strings.TrimSpace(line))
			switch command, rest, _ := strings.Cut(line, " "); {
			case line == "cdc-relay run":
				relay = devenv.StartRelay(r.t, r.binary, config)
				must(r.t, relay.WaitReady(within(r.t, bound)))
			case command == "cdc-relay":
				args := strings.Fields(rest)
				if rest == "status" {
					args = append(args, "--admin", relay.Admin())
				}
				res, err := devenv.RunCommand(within(r.t, bound), r.binary, config, args...)
				must(r.t, err)
				if res.Code != 0 {
					r.t.Fatalf("%s: exit %d: %s%s", line, res.Code, res.Stdout, res.Stderr)
				}
			case command == "psql":
				if out, err := exec.CommandContext(within(r.t, bound), "bash", "-c", line).CombinedOutput(); err != nil {
					r.t.Fatalf("%s: %v: %s", line, err, out)
				}
			case !tool(line):
				r.t.Fatalf("the quick start has a line that this test does not know: %s", line)
			}
		}
	}
	if relay == nil {
		r.t.Fatalf("the quick start of %s runs no relay", page)
	}
	return relay
}

// The quick start of the README: the INSERT arrives.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	r := bare(t)
	r.ok("version")
	vhost := devenv.SharedRabbitMQ(t).VHost(t)
	var consumer *devenv.Consumer
	got := false
	relay := r.play("README.md", strings.NewReplacer(documentedDatabase, r.db, documentedRabbitMQ, vhost), func(line string) bool {
		switch line {
		case "rabbitmqadmin declare queue name=orders durable=true": // and the line after it
			var err error
			consumer, err = devenv.StartConsumer(within(t, bound), devenv.ConsumerOptions{URL: vhost})
			must(t, err)
			t.Cleanup(consumer.Close)
		case "rabbitmqadmin declare binding source=outbox.events destination=orders routing_key='#'":
		case "rabbitmqadmin get queue=orders":
			must(t, consumer.WaitCount(within(t, bound), 1))
			got = true
		default:
			return false
		}
		return true
	})
	if !got {
		t.Fatal("the quick start does not look at the event")
	}
	if d := consumer.Deliveries()[0]; d.Aggregate != "order" || d.Key != "42" {
		t.Errorf("what arrived is %+v", d)
	}
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// The quick start of docs/kafka.md: one broker takes the topic as it is written there, and the record is in it with all that
// the consumer is told to show. Kafka's tools are not among the jars of scripts/kafka.sh, so the test does what they would.
func TestQuickStartOnKafka(t *testing.T) {
	t.Parallel()
	k := &topical{rig: bare(t), kafka: devenv.SharedKafka(t)}
	broker := k.kafka.Brokers()[0]
	prefix := k.slot + "." // the topic's name is the whole cluster's
	var records []devenv.KafkaRecord
	addresses := strings.NewReplacer(
		documentedDatabase, k.db, documentedKafka, broker,
		"outbox.event.", prefix, "sink: {kafka: {", "sink: {kafka: {topic: '"+prefix+"{aggregate}', ",
	)
	relay := k.play("docs/kafka.md", addresses, func(line string) bool {
		command, rest, _ := strings.Cut(line, " ")
		given := options(rest)
		topic := given["topic"]
		switch command + " " + strings.Join(slices.Sorted(maps.Keys(given)), " ") {
		case "kafka-topics.sh bootstrap-server create partitions replication-factor topic":
			must(t, k.kafka.CreateTopic(within(t, bound), topic, number(t, given["partitions"]), number(t, given["replication-factor"]), nil))
			t.Cleanup(func() { must(t, k.kafka.DeleteTopic(within(t, bound), topic)) })
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
	if code := relay.Stop(t); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// options are the flags of a command line by name. Values of one that stands more than once are joined.
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
