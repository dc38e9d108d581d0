package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// examined runs Check for a topic and returns what it has found. Each line that is not OK has a mend.
func examined(t *testing.T, cfg Config, topic string) []sink.Finding {
	t.Helper()
	template, err := sink.ParseTemplate(topic)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Topic = template
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := Check(ctx, cfg)
	for _, f := range found {
		if f.OK && (f.Warn || f.Mend != "") || !f.OK && f.Mend == "" || f.Detail == "" {
			t.Errorf("found %+v", f)
		}
	}
	return found
}

// checked is examined by name, for what is found once.
func checked(t *testing.T, cfg Config, topic string) map[string]sink.Finding {
	t.Helper()
	found := map[string]sink.Finding{}
	for _, f := range examined(t, cfg, topic) {
		found[f.Name] = f
	}
	return found
}

// named are the findings of a name.
func named(found []sink.Finding, name string) []sink.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f sink.Finding) bool { return f.Name != name })
}

// want looks at one finding.
func want(t *testing.T, f sink.Finding, ok, warn bool, detail, mend string) {
	t.Helper()
	if f.OK != ok || f.Warn != warn || !strings.Contains(f.Detail, detail) || !strings.Contains(f.Mend, mend) {
		t.Errorf("found %+v, want OK %v, a warning %v, with %q and %q", f, ok, warn, detail, mend)
	}
}

// Everything that a cluster of three can lack, each named with its mend; and nothing is published.
func TestCheck(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	kafka, err := devenv.StartKafka(ctx, devenv.KafkaOptions{Nodes: 3, Authorizer: true, Proxied: 1})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	t.Cleanup(func() { must(kafka.Close()) })
	cfg := Config{Brokers: kafka.Brokers()}
	const anybody = "User:ANONYMOUS"
	topic := func(name string, replicas int, settings map[string]string) string {
		t.Helper()
		must(kafka.CreateTopic(ctx, name, 3, replicas, settings))
		return fmt.Sprintf("topic %q", name)
	}

	good := topic("good", 3, map[string]string{"min.insync.replicas": "2", "max.message.bytes": "123456"})
	found := checked(t, cfg, "good")
	want(t, found["broker"], true, false, "with 3 brokers", "")
	want(t, found["advertised addresses"], true, false, "every broker is reached", "")
	want(t, found["producer id"], true, false, "", "")
	want(t, found[good], true, false, "3 partitions, 3 replicas", "")
	for _, setting := range []string{"min.insync.replicas 2", "max.message.bytes 123456"} {
		want(t, found[good], true, false, setting, "")
	}
	want(t, checked(t, cfg, "gone")[`topic "gone"`], false, false, "does not exist", "--replication-factor 3 --config min.insync.replicas=2")

	weak := topic("weak", 3, nil)
	want(t, checked(t, cfg, "weak")[weak], false, true, "on the leader alone", "min.insync.replicas=2")
	single := topic("single", 1, nil)
	want(t, checked(t, cfg, "single")[single], false, true, "lost with one broker", "three replicas by kafka-reassign-partitions.sh")

	must(kafka.Deny(ctx, "good", anybody))
	want(t, checked(t, cfg, "good")[good], false, false, "may not write", "kafka-acls.sh")
	must(kafka.Allow(ctx, "good", anybody))
	must(kafka.DenyIdempotence(ctx, anybody))
	want(t, checked(t, cfg, "good")["producer id"], false, false, "", "--operation Write --operation Describe --topic TOPIC;")
	want(t, checked(t, cfg, "go{type}")["producer id"], false, false, "", "--topic go --resource-pattern-type prefixed;")
	must(kafka.AllowIdempotence(ctx, anybody))

	way := kafka.Way(0)
	way.Proxy(2).Cut()
	way.Proxy(3).Cut()
	lines := examined(t, Config{Brokers: way.Brokers()[:1]}, "good")
	want(t, lines[0], true, false, "", "")
	advertised := named(lines, "advertised addresses")
	if len(advertised) != 2 {
		t.Fatalf("found of the brokers that are not reached: %+v", advertised)
	}
	for i, f := range advertised {
		want(t, f, false, false, fmt.Sprintf("broker %d advertises %s", i+2, way.Brokers()[i+1]), "advertised.listeners")
	}

	strict := topic("strict", 3, map[string]string{"min.insync.replicas": "3"})
	must(kafka.StopNode(ctx, 3))
	must(awaitShrink(ctx, kafka, "strict"))
	cfg.Brokers = cfg.Brokers[:2]
	want(t, checked(t, cfg, "good")[good], true, false, "", "")
	want(t, checked(t, cfg, "strict")[strict], false, false, "has 2 in sync, and takes nothing", "bring back broker 3")
	want(t, checked(t, cfg, "single")[single], false, false, "partitions without a leader: 1", "bring back broker 3")
	for _, name := range []string{"good", "weak", "strict"} {
		ends, err := kafka.EndOffsets(ctx, name)
		must(err)
		for p, end := range ends {
			if end != 0 {
				t.Errorf("something was published to %s-%d", name, p)
			}
		}
	}
}

// Of a template check examines the topics that its events may name: the first of them, and none of anybody else's.
func TestCheckOfTemplate(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	kafka := ownKafka(t, devenv.KafkaOptions{Authorizer: true})
	cfg := Config{Brokers: kafka.Brokers(), Columns: []string{"region"}}
	find := func(template string) []sink.Finding {
		t.Helper()
		return slices.DeleteFunc(examined(t, cfg, template), func(f sink.Finding) bool { return !strings.HasPrefix(f.Name, "topic ") })
	}
	for _, template := range []string{"outbox.{aggregate}.v1", "{column:region}", "{type}{id}"} {
		found := find(template)
		if len(found) != 1 || found[0].Name != topicName(template) {
			t.Fatalf("found %+v", found)
		}
		want(t, found[0], false, true, "no such topic", "--create --topic "+map[string]string{
			"outbox.{aggregate}.v1": "outbox.AGGREGATE.v1 ", "{column:region}": "REGION ", "{type}{id}": "TYPEID ",
		}[template])
	}
	for _, name := range []string{"outbox.b.v1", "outboxxb.v1", "an.outbox.b.v1", "outbox.b.v10"} {
		must(t, kafka.CreateTopic(ctx, name, 2, 1, nil))
	}
	found := find("outbox.{aggregate}.v1")
	if len(found) != 1 || found[0].Name != topicName("outbox.b.v1") {
		t.Fatalf("found %+v", found)
	}
	want(t, found[0], true, false, "2 partitions, 1 replicas, ", "")
	if found := find("{aggregate}"); len(found) != 4 { // and nothing of Kafka's own
		t.Errorf("found %+v", found)
	}

	// The one topic cannot be written to: nothing can. Beside another it is a warning.
	must(t, kafka.Deny(ctx, "outbox.b.v1", "User:ANONYMOUS"))
	want(t, find("outbox.{aggregate}.v1")[0], false, false, "may not write", "--topic outbox. --resource-pattern-type prefixed")
	must(t, kafka.CreateTopic(ctx, "outbox.a.v1", 1, 1, nil))
	found = find("outbox.{aggregate}.v1")
	if len(found) != 2 {
		t.Fatalf("found %+v", found)
	}
	want(t, found[0], true, false, "1 partitions", "")
	want(t, found[1], false, true, "may not write", "prefixed")

	// Settings that cannot hold: no partition has two replicas. And more topics than are looked at.
	must(t, kafka.SetTopicConfig(ctx, "outbox.a.v1", "min.insync.replicas", "2"))
	found = find("outbox.a{key}")
	want(t, found[0], false, false, "never have that many in sync", "--add-config min.insync.replicas=1")
	for i := range maxTopics {
		must(t, kafka.CreateTopic(ctx, fmt.Sprintf("many.%d", i), 1, 1, nil))
	}
	if found = find("many.{id}"); len(found) != maxTopics {
		t.Errorf("%d findings of %d topics: %+v", len(found), maxTopics, found)
	}
	must(t, kafka.CreateTopic(ctx, "many.more", 1, 1, nil))
	found = find("many.{id}")
	if len(found) != maxTopics+1 {
		t.Fatalf("%d findings of %d topics: %+v", len(found), maxTopics+1, found)
	}
	want(t, found[maxTopics], true, false, "1 more", "")

	// Names that are made from keys are not shown.
	if found = find("many.{key}"); len(found) != 2 || found[0].Name != topicName("many.{key}") {
		t.Fatalf("found %+v", found)
	}
	want(t, found[0], true, false, "1 partitions", "")
}

// A password that crosses the network as it is.
func TestCheckOfPlainWithoutTLS(t *testing.T) {
	for name, c := range map[string]struct {
		mechanism string
		tls       bool
		warns     bool
	}{
		"plain":          {"plain", false, true},
		"plain over TLS": {"plain", true, false},
		"scram":          {"scram-sha-256", false, false},
	} {
		cfg := Config{
			Brokers: []string{"127.0.0.1:1"},
			SASL:    func() (*SASL, error) { return &SASL{Mechanism: c.mechanism, Username: "relay", Password: "p"}, nil },
		}
		if c.tls {
			cfg.TLS = func() (*tls.Config, error) { return new(tls.Config), nil }
		}
		found := named(examined(t, cfg, "t"), "login")
		if len(found) > 0 != c.warns {
			t.Errorf("%s: found %+v", name, found)
		}
		if c.warns {
			want(t, found[0], false, true, "plain without TLS", "tls.enabled: true")
		}
	}
}

// What can be wrong with a connection has a mend of its own.
func TestMendDial(t *testing.T) {
	_, missing := os.Open("/nowhere/ca.pem")
	for want, err := range map[string]error{
		"firewall":                    &net.OpError{Op: "dial", Err: errors.New("refused")},
		"correct the path":            fmt.Errorf("sink.kafka.tls.ca: %w", missing),
		"what the port expects":       fmt.Errorf("open TLS: %w", io.EOF),
		"listener.security.protocol":  context.DeadlineExceeded,
		"what this line names":        errors.New("broker has no Produce request"),
		"check sink.kafka.sasl":       errLogin,
		"set sink.kafka.sasl, or use": errWantsLogin,
		"set sink.kafka.tls.enabled":  errWantsTLS,
		"does not speak TLS":          tls.RecordHeaderError{},
	} {
		if got := mendDial(fmt.Errorf("connect: %w", err)); !strings.Contains(got, want) {
			t.Errorf("of %v: %q, want %q", err, got, want)
		}
	}
}

// The commands of the mends can be copied: with TLS or a login they name the file that has them, and the user where it is known.
func TestMendCommands(t *testing.T) {
	template, err := sink.ParseTemplate("outbox.event.{aggregate}")
	must(t, err)
	overTLS := func() (*tls.Config, error) { return new(tls.Config), nil }
	login := func() (*SASL, error) { return &SASL{Mechanism: "plain", Username: "relay", Password: "p"}, nil }
	unreadable := func() (*SASL, error) { return nil, errors.New("no such file") }
	const plain, secure = "--bootstrap-server b:9092 --", "--bootstrap-server b:9092 --command-config admin.properties --"
	for name, c := range map[string]struct {
		cfg           Config
		at, principal string
	}{
		"plaintext":      {Config{}, plain, "User:NAME "},
		"TLS":            {Config{TLS: overTLS}, secure, "User:NAME "},
		"login":          {Config{SASL: login}, secure, "User:relay "},
		"login over TLS": {Config{TLS: overTLS, SASL: login}, secure, "User:relay "},
		"unreadable":     {Config{SASL: unreadable}, secure, "User:NAME "},
	} {
		c.cfg.Topic = template
		e := examination{sink: &Sink{cfg: c.cfg}, conn: &conn{addr: "b:9092"}, cluster: new(metadata.Response)}
		for _, command := range []string{e.grant("t"), e.create("t"), e.setLeast("t", 2), e.describe("t")} {
			if !strings.Contains(command, c.at) {
				t.Errorf("%s: %s", name, command)
			}
		}
		if command := e.grant("t"); !strings.Contains(command, "--allow-principal "+c.principal) {
			t.Errorf("%s: %s", name, command)
		}
	}
}

// awaitShrink returns when a partition of the topic has fewer than three replicas in sync.
func awaitShrink(ctx context.Context, kafka *devenv.Kafka, topic string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, inSync, err := kafka.Replicas(ctx, topic, 0)
		if err != nil || len(inSync) < 3 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
