//go:build nightly

package kafka

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

func init() {
	onClusterNightly = []clusterTest{
		{"too few replicas everywhere", testTooFewReplicasEverywhere},
		{"replica frozen", testReplicaFrozen},
		{"leader moved", testLeaderMoved},
		{"two killed", testTwoKilled},
	}
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

func testLeaderMoved(t *testing.T, k *kafkaserver.Kafka) {
	topic := replicated(t, k, 1)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(500)
	for range 3 {
		before, err := k.Leader(await.Context(t), topic, 0)
		must(t, err)
		must(t, k.MoveLeader(await.Context(t), topic, 0, before%3+1))
		f.wait(500)
	}
	wantStored(t, k, topic, f.end()...)
}

// Two of three brokers are killed under load and start again: what was under way comes again as the
// same bytes.
func testTwoKilled(t *testing.T, k *kafkaserver.Kafka) {
	topic := replicated(t, k, 6)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(1000)
	must(t, k.KillNode(1))
	must(t, k.KillNode(2))
	await.Until(t, "the brokers are missed", func() bool { up, why := r.Up(); return !up && why != "" })
	must(t, k.StartNode(await.Context(t), 1))
	must(t, k.StartNode(await.Context(t), 2))
	f.wait(1000)
	must(t, k.WaitInSync(await.Context(t), topic))
	wantStored(t, k, topic, f.end()...)
	await.Until(t, "all is well", func() bool { up, _ := r.Up(); return up })
}
