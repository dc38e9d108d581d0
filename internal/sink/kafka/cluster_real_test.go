package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

// Three brokers, of which leaders move, die and freeze. Nothing is lost, nothing is stored twice.
func TestCluster(t *testing.T) {
	k := ownKafka(t, devenv.KafkaOptions{Nodes: 3, Proxied: 1, Settings: map[string]string{
		"replica.fetch.backoff.ms": "20",
		// How long a frozen replica counts as in sync: what is seen meanwhile is seen on a loaded machine, too.
		"broker.session.timeout.ms": "6000",
	}})
	for _, c := range []struct {
		name string
		test func(*testing.T, *devenv.Kafka)
	}{
		{"leader moved", testLeaderMoved},
		{"leader killed", testLeaderKilled},
		{"leader frozen", testLeaderFrozen},
		{"too few replicas", testTooFewReplicas},
		{"replica frozen", testReplicaFrozen},
		{"no leader", testNoLeader},
		{"two killed", testTwoKilled},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, k) })
	}
}

// replicated makes a topic of three replicas, of which two must be in sync.
func replicated(t *testing.T, k *devenv.Kafka, partitions int) string {
	return topicWith(t, k, partitions, 3, map[string]string{"min.insync.replicas": "2"})
}

// elected watches who leads a partition, asking every 10 ms, and returns when that is another node.
func elected(t *testing.T, k *devenv.Kafka, topic string, before int) time.Time {
	t.Helper()
	ctx := limited(t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if node, err := k.Leader(ctx, topic, 0); err == nil && node > 0 && node != before {
			return time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("no other leader")
		}
	}
}

func testLeaderMoved(t *testing.T, k *devenv.Kafka) {
	topic := replicated(t, k, 1)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(500)
	for range 3 {
		before, err := k.Leader(limited(t), topic, 0)
		must(t, err)
		f.mu.Lock()
		f.longest = 0
		f.mu.Unlock()
		moved := make(chan time.Time, 1)
		go func() { moved <- elected(t, k, topic, before) }()
		t.Logf("%s: move from %d to %d", time.Now().Format("05.000"), before, before%3+1)
		must(t, k.MoveLeader(limited(t), topic, 0, before%3+1))
		t.Logf("%s: another leader is known", (<-moved).Format("05.000"))
		f.wait(500)
		f.mu.Lock()
		t.Logf("the longest stall was %s, up to %s", f.longest, f.at.Format("05.000"))
		f.mu.Unlock()
	}
	wantStored(t, k, topic, f.end()...)
}

func testLeaderKilled(t *testing.T, k *devenv.Kafka) {
	topic := replicated(t, k, 1)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(500)
	before, err := k.Leader(limited(t), topic, 0)
	must(t, err)
	killed := time.Now()
	must(t, k.KillNode(before))
	moved := elected(t, k, topic, before)
	f.wait(500)
	f.mu.Lock()
	t.Logf("election %s, longest stall %s", moved.Sub(killed), f.longest)
	f.mu.Unlock()
	must(t, k.StartNode(limited(t), before))
	must(t, k.WaitInSync(limited(t), topic))
	f.wait(500)
	wantStored(t, k, topic, f.end()...)
}

// A frozen broker keeps its connections and answers nothing. Its requests are given up when others lead.
func testLeaderFrozen(t *testing.T, k *devenv.Kafka) {
	topic := replicated(t, k, 3)
	r := start(t, Config{Brokers: k.Brokers(), ConfirmTimeout: time.Minute})
	f := flow(t, r, topic, 50)
	f.wait(500)
	before, err := k.Leader(limited(t), topic, 0)
	must(t, err)
	frozen := time.Now()
	must(t, k.FreezeNode(before))
	thawed := false
	defer func() {
		if !thawed {
			must(t, k.ThawNode(before))
		}
	}()
	ctx := limited(t)
	var moved time.Time
	until(t, "another leads", func() bool {
		leader, ok := r.known.Load().leader(topic, 0)
		moved = time.Now()
		return ok && leader.node != int32(before) || ctx.Err() != nil
	})
	f.wait(500)
	f.mu.Lock()
	t.Logf("another leader was known after %s, longest stall of any partition %s", moved.Sub(frozen), f.longest)
	f.mu.Unlock()
	must(t, k.ThawNode(before))
	thawed = true
	must(t, k.WaitInSync(limited(t), topic))
	f.wait(500)
	wantStored(t, k, topic, f.end()...)
	until(t, "all is well", func() bool { up, _ := r.Up(); return up })
}

// With one replica left of the two that must be in sync the partition is at fault, and others flow.
func testTooFewReplicas(t *testing.T, k *devenv.Kafka) {
	refusing := func(kind sinktest.Kind) bool { return kind == sinktest.DestinationRefusing }
	sinktest.Run(t, refusing, func(t *testing.T) sinktest.Broker { return openConformance(t, k) })
}

// A partition whose only replica is away is at fault after ConfirmTimeout when others confirm; without others it is waited
// for.
func testNoLeader(t *testing.T, k *devenv.Kafka) {
	topic, other := topicWith(t, k, 1, 1, nil), replicated(t, k, 1)
	leader, err := k.Leader(limited(t), topic, 0)
	must(t, err)
	r := start(t, Config{Brokers: k.Brokers(), ConfirmTimeout: 2 * time.Second})
	first := event(topic, "k")
	wantConfirmed(t, r.send(first))
	must(t, k.KillNode(leader))
	ev := event(topic, "k")
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	if outcomes, err := r.try(ctx, ev); err == nil {
		t.Errorf("without others that confirm: %v", outcomes)
	}
	f := flow(t, r, other, 10)
	f.wait(100)
	got := r.send(ev)
	wantRejected(t, got[0], sink.Destination, sink.NoLeader)
	wantPaused(t, r, partitionName(topic, 0))
	must(t, k.StartNode(limited(t), leader))
	until(t, "the leader is back", func() bool { return r.send(ev)[0].State == sink.Confirmed })
	wantStored(t, k, other, f.end()...)
	wantStored(t, k, topic, first, ev)
	must(t, k.WaitInSync(limited(t), other))
}

// Two of three brokers are killed under load and start again: what was under way comes again as the same bytes.
func testTwoKilled(t *testing.T, k *devenv.Kafka) {
	topic := replicated(t, k, 6)
	r := start(t, Config{Brokers: k.Brokers()})
	f := flow(t, r, topic, 50)
	f.wait(1000)
	must(t, k.KillNode(1))
	must(t, k.KillNode(2))
	until(t, "the brokers are missed", func() bool { up, why := r.Up(); return !up && why != "" })
	must(t, k.StartNode(limited(t), 1))
	must(t, k.StartNode(limited(t), 2))
	f.wait(1000)
	must(t, k.WaitInSync(limited(t), topic))
	wantStored(t, k, topic, f.end()...)
	until(t, "all is well", func() bool { up, _ := r.Up(); return up })
}
