//go:build testall

package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// onCluster are the tests that TestCluster makes one after the other; onClusterNightly come before.
var (
	onCluster        = []clusterTest{{"too few replicas", testTooFewReplicas}, {"no leader", testNoLeader}, {"read back wants a confirm", testReadBackWantsAConfirm}}
	onClusterNightly []clusterTest
)

type clusterTest struct {
	name string
	test func(*testing.T, *kafkaserver.Kafka)
}

// Three brokers, of which leaders move, die and freeze. Nothing is lost, nothing is stored twice.
func TestCluster(t *testing.T) {
	k, err := kafkaserver.Start(await.Context(t), kafkaserver.Options{Nodes: 3, Authorizer: true, Proxied: 1, Settings: map[string]string{
		"replica.fetch.backoff.ms": "20",
		// How long a frozen replica counts as in sync: what is seen meanwhile is seen on a loaded
		// machine, too.
		"broker.session.timeout.ms": "8000",
	}})
	must(t, err)
	t.Cleanup(func() { must(t, k.Close()) })
	for _, c := range append(onClusterNightly, onCluster...) {
		t.Run(c.name, func(t *testing.T) { c.test(t, k) })
	}
	t.Run("check", func(t *testing.T) { testCheck(t, k) }) // it ends with a node less
}

// With one replica left of the two that must be in sync the partition is at fault, and others flow.
func testTooFewReplicas(t *testing.T, k *kafkaserver.Kafka) {
	refusing := func(kind sinktest.Kind) bool { return kind == sinktest.DestinationRefusing }
	sinktest.Run(t, refusing, func(t *testing.T) sinktest.Broker {
		return openConformance(t, k, k.Way(0), sinktest.DestinationRefusing)
	})
}

// A leader is killed under load. A partition of several replicas gets another leader, and what was
// under way goes there as the same bytes: it is stored once. One whose only replica is away is at
// fault after ConfirmTimeout, since others confirm.
func testNoLeader(t *testing.T, k *kafkaserver.Kafka) {
	topic, other := topicWith(t, k, 1, 1, nil), replicated(t, k, 1)
	leader, err := k.Leader(await.Context(t), topic, 0)
	must(t, err)
	r := start(t, Config{Brokers: k.Brokers(), ConfirmTimeout: 4 * time.Second})
	first := newEvent(topic, "k")
	wantConfirmed(t, r.send(first))
	must(t, k.MoveLeader(await.Context(t), other, 0, leader))
	f := flow(t, r, other, 10)
	f.wait(100)
	must(t, k.KillNode(leader))
	await.Until(t, "another leader", func() bool {
		node, err := k.Leader(await.Context(t), other, 0)
		return err == nil && node > 0 && node != leader
	})
	f.wait(100)
	ev := newEvent(topic, "k")
	got := r.send(ev)
	wantRejected(t, got[0], sink.Destination, sink.NoLeader)
	if f := got[0].Fault; f.Destination != partitionName(topic, 0) || f.Whole {
		t.Errorf("fault %+v", f)
	}
	must(t, k.StartNode(await.Context(t), leader))
	await.Until(t, "the leader is back", func() bool { return r.send(ev)[0].State == sink.Confirmed })
	wantStored(t, k, other, f.end()...)
	wantStored(t, k, topic, first, ev)
	must(t, k.WaitInSync(await.Context(t), other))
}

// replicated makes a topic of three replicas, of which two must be in sync.
func replicated(t *testing.T, k *kafkaserver.Kafka, partitions int) string {
	return topicWith(t, k, partitions, 3, map[string]string{"min.insync.replicas": "2"})
}

// A record that consumers see, and that too few replicas have, is not taken for stored. It is sent,
// and waits for the replicas.
func testReadBackWantsAConfirm(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 1, 3, map[string]string{"min.insync.replicas": "3"})
	ev := repeated(1, topic)[0]
	must(t, k.WaitInSync(await.Context(t), topic))
	must(t, k.StopNode(await.Context(t), 3))
	await.Until(t, "the replica to be missed", func() bool {
		_, inSync, err := k.Replicas(await.Context(t), topic, 0)
		return err == nil && len(inSync) == 2
	})
	storeUnconfirmed(t, k, topic, ev)
	next := nextTerm(t, k)
	confirmed := make(chan error, 1)
	go func() {
		_, err := next.try(await.Context(t), ev)
		confirmed <- err
	}()
	await.Until(t, "the reading to be given up", func() bool { return next.states.stateOf(topic, 0).tail.term.Load() == 1 })
	if n := next.readBack.found.Load(); n != 0 {
		t.Errorf("%d events are taken for stored", n)
	}
	must(t, k.StartNode(await.Context(t), 3))
	must(t, <-confirmed)
	wantRecords(t, k, topic, 2)
}

// Everything that a cluster of three can lack, each named with its fix; and nothing is published.
func testCheck(t *testing.T, kafka *kafkaserver.Kafka) {
	ctx := await.Context(t)
	must := func(err error) {
		t.Helper()
		must(t, err)
	}
	cfg := Config{Brokers: kafka.Brokers()}
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
	await.Until(t, "two replicas in sync", func() bool {
		_, inSync, err := kafka.Replicas(ctx, "strict", 0)
		return err == nil && len(inSync) < 3
	})
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
