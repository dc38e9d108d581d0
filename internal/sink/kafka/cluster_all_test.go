//go:build testall

package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// onCluster are the tests that TestCluster makes one after the other.
var onCluster = []clusterTest{
	{"too few replicas", testTooFewReplicas},
	{"too few replicas everywhere", testTooFewReplicasEverywhere},
	{"replica frozen", testReplicaFrozen},
	{"no leader", testNoLeader},
}

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
	for _, c := range onCluster {
		t.Run(c.name, func(t *testing.T) { c.test(t, k) })
	}
	t.Run("check", func(t *testing.T) { testCheck(t, k) }) // it ends with a node less
}

// replicated makes a topic of three replicas, of which two must be in sync.
func replicated(t *testing.T, k *kafkaserver.Kafka, partitions int) string {
	return topicWith(t, k, partitions, 3, map[string]string{"min.insync.replicas": "2"})
}

// With one replica left of the two that must be in sync the partition is at fault, and others flow.
func testTooFewReplicas(t *testing.T, k *kafkaserver.Kafka) {
	refusing := func(kind sinktest.Kind) bool { return kind == sinktest.DestinationRefusing }
	sinktest.Run(t, refusing, func(t *testing.T) sinktest.Broker {
		return openConformance(t, k, k.Way(0), sinktest.DestinationRefusing)
	})
}

// Every partition that is written to has too few replicas in sync, while all brokers that lead are
// there: the relay waits and says so, and nobody is accused. When the broker is back each event is
// stored, once and in order.
func testTooFewReplicasEverywhere(t *testing.T, k *kafkaserver.Kafka) {
	topic := topicWith(t, k, 3, 3, map[string]string{"min.insync.replicas": "3"})
	must(t, k.WaitInSync(await.Context(t), topic))
	r := start(t, Config{Brokers: k.Brokers()})
	all := events(50, topic)
	wantConfirmed(t, r.send(all...))
	// nothing is on its way when it stops: that would be answered after ConfirmTimeout
	must(t, k.StopNode(await.Context(t), 2))
	await.Until(t, "every partition to miss a replica", func() bool {
		for partition := range 3 {
			if _, inSync, err := k.Replicas(await.Context(t), topic, partition); err != nil || len(inSync) == 3 {
				return false
			}
		}
		return true
	})
	f := flow(t, r, topic, 20)
	await.Until(t, "the relay to say that the cluster is away", func() bool {
		up, why := r.Up()
		return !up && strings.Contains(why, "too few replicas in sync for every partition that was tried: topic "+strconv.Quote(topic))
	})
	must(t, k.StartNode(await.Context(t), 2))
	f.wait(100)
	if up, why := r.Up(); !up {
		t.Error(why)
	}
	wantStored(t, k, topic, append(all, f.end()...)...)
	if len(f.rejected) > 0 {
		t.Errorf("rejected while nobody confirms: %v", f.rejected)
	}
	records, err := k.Records(await.Context(t), topic) // each partition by offset
	must(t, err)
	last := map[string]string{}
	for _, rec := range records {
		key, position := string(rec.Key), rec.Header("cdc_position")
		if position <= last[key] {
			t.Errorf("key %s: %s is behind %s", key, position, last[key])
		}
		last[key] = position
	}
	must(t, k.WaitInSync(await.Context(t), topic))
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

// A frozen replica is in sync until the cluster misses it: until then the broker answers that it
// has waited in vain (7), and from then on that there are too few (19), before it appends anything.
// While others confirm the partition is at fault after ConfirmTimeout. (Kafka 4 no longer says that
// there are too few after it has appended, 20: it waits for them in vain.)
func testReplicaFrozen(t *testing.T, k *kafkaserver.Kafka) {
	topic, other := topicWith(t, k, 1, 2, map[string]string{"min.insync.replicas": "2"}), topicWith(t, k, 3, 1, nil)
	leader, err := k.Leader(await.Context(t), topic, 0)
	must(t, err)
	replicas, _, err := k.Replicas(await.Context(t), topic, 0)
	must(t, err)
	lagging := replicas[0] + replicas[1] - leader
	r := start(t, Config{Brokers: k.Brokers(), ConfirmTimeout: 2 * time.Second})
	first := newEvent(topic, "k")
	wantConfirmed(t, r.send(first))
	healthy := newEvent(other, "") // of a partition that another node leads
	for {
		node, err := k.Leader(await.Context(t), other, int(keyPartition(healthy, 3)))
		must(t, err)
		if node != lagging {
			break
		}
		healthy.Hash++
	}
	wantConfirmed(t, r.send(healthy))
	must(t, k.FreezeNode(lagging))
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			must(t, k.ThawNode(lagging))
		}
	}
	defer thaw()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for kafkaclient.Sleep(ctx, 50*time.Millisecond) {
			if o := r.send(healthy)[0]; o.State != sink.Confirmed {
				t.Errorf("a healthy partition: %+v", o)
			}
		}
	}()
	defer func() { stop(); <-done }()
	ev := newEvent(topic, "k")
	want := func(reasons ...sink.Reason) {
		t.Helper()
		got := r.send(ev)[0]
		if got.State != sink.Rejected || got.Fault.Class != sink.Destination || !slices.Contains(reasons, got.Fault.Reason) ||
			got.Fault.Whole || got.Fault.Destination != partitionName(topic, 0) {
			t.Errorf("got %v %+v, want rejected, destination, one of %v", got.State, got.Fault, reasons)
		}
	}
	// On a slow machine the cluster may have missed it by the time that the relay gives up.
	want(sink.Unconfirmed, sink.TooFewReplicas)
	await.Until(t, "the cluster to miss the replica", func() bool {
		_, inSync, err := k.Replicas(await.Context(t), topic, 0)
		return err == nil && len(inSync) == 1
	})
	// one that just waited for them says first that it waited in vain
	await.Until(t, "the leader to say that too few replicas are in sync", func() bool {
		o := r.send(ev)[0]
		return o.State == sink.Rejected && o.Fault.Reason == sink.TooFewReplicas
	})
	want(sink.TooFewReplicas)
	thaw()
	await.Until(t, "the replica is back", func() bool { return r.send(ev)[0].State == sink.Confirmed })
	must(t, k.WaitInSync(await.Context(t), topic))
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
